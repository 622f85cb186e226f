"""Exports with version 1 of sidecars, a protobuf for each episode, are read without loss."""

import importlib.util
import pickle
import shutil
from pathlib import Path

import pytest

import rlds.sources
from rlds.sources.digests import differences

HERE = Path(__file__).parent

spec = importlib.util.spec_from_file_location("golden_sidecars", HERE / "sidecar_episodes.py")
sidecar_episodes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sidecar_episodes)


@pytest.mark.parametrize("format", sidecar_episodes.FORMATS)
def test_exports_with_old_sidecars_are_read_without_loss(format, tmp_path):
    raw = [*rlds.sources.open(sidecar_episodes.write(tmp_path / "raw"))]
    name = sidecar_episodes.FORMATS[format]
    golden, copy = HERE / "sidecars_1" / name, tmp_path / name
    (shutil.copytree if golden.is_dir() else shutil.copyfile)(golden, copy)
    episodes = rlds.sources.open(copy)
    assert episodes.format == format
    assert [summary.num_steps for summary in episodes.summaries()] == [4, 3]
    episodes = pickle.loads(pickle.dumps(episodes))
    for expected, episode in zip(raw, episodes, strict=True):
        assert not [*differences(expected, episode)]
        assert episode.origin == expected.origin
    # Their sidecars of the present version are equal.
    again = rlds.sources.export(episodes, format, tmp_path / "again" / name)
    for expected, episode in zip(raw, rlds.sources.open(again.path), strict=True):
        assert not [*differences(expected, episode)]
