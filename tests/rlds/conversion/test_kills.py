"""Exports and edits resume after kills and full disks.

The environment variables KILLS and KILLS_SEED set the number and the moments of kills.
"""

import errno
import os
import random
from pathlib import Path

import full_disks
import many_episodes
import pytest
from killed_exports import TARGETS, Killed, contents

from rlds.sources import export

KILLS, SEED = (int(os.environ.get(name, 2)) for name in ("KILLS", "KILLS_SEED"))
KINDS = {"robomimic": "edit, old kept", "zarr": "edit"}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return many_episodes.write(tmp_path_factory.mktemp("raw") / "many")


@pytest.mark.parametrize("format", TARGETS)
def test_killed_export_resumes_and_equals_an_unbroken_one(format, raw, tmp_path):
    kind = KINDS.get(format, "convert")
    Killed(tmp_path / "runs", kind, format, raw, random.Random(f"{SEED} {format}")).kill(KILLS)


@pytest.mark.parametrize("format", TARGETS)
def test_export_resumes_when_a_full_disk_gets_more_space(format, raw, tmp_path):
    source, (name, options) = many_episodes.ManyEpisodes(raw), TARGETS[format]
    export(source, format, tmp_path / "whole" / name, jobs=1, **options)
    errors, left = [], set()
    try:
        with full_disks.small_disk(tmp_path / "disk", 18) as disk:
            target = Path(disk, "data", name)
            target.parent.mkdir()
            (disk / "ballast").write_bytes(bytes(35 << 19))
            for room in range(35):
                os.truncate(disk / "ballast", (35 - room) << 19)
                try:
                    export(source, format, target, jobs=2, **options)
                    break
                except OSError as error:
                    errors.append((error.errno, error.filename))
                    left |= {*os.listdir(target.parent)}
            assert {*errors} == {(errno.ENOSPC, str(target))}
            assert left <= {f".{name}.parts"}
            assert contents(target.parent) == contents(tmp_path / "whole")
    except full_disks.CannotMount as error:
        pytest.skip(str(error))
