"""Every source there is: killed, resumed, and read by a pipeline, it gives the same bytes.

This file is also the program that is killed: a process that has loaded all there is to load starts
one child after the other by `fork`, which converts, and dies at some access to a file.
"""

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import conversions
import pytest
import tensorflow_datasets as tfds
from hostile_sources import FORMATS, NAMES

import tfds_builders
from rlds.sources.source import Source

pytestmark = pytest.mark.slow

MAX_KILLS = 6


@pytest.fixture(scope="module")
def sources(request, tmp_path_factory):
    """The sources of the tests that were chosen."""
    items = [item for item in request.session.items if item.path == Path(__file__)]
    chosen = {item.callspec.params["name"] for item in items}
    return {name: written(name, tmp_path_factory.mktemp(name)) for name in NAMES if name in chosen}


def written(name, directory):
    """Writes small raw data of a format, and returns its source."""
    FORMATS[name].write(directory)
    return FORMATS[name].source(directory)


@pytest.fixture(scope="module")
def killed(sources, tmp_path_factory):
    """For each source, what became of conversions that were killed."""
    directory = tmp_path_factory.mktemp("killed")
    (directory / "sources").write_bytes(pickle.dumps(sources))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, __file__, str(directory)], env=environment, check=True)
    return json.loads((directory / "results").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_killed_and_resumed(killed, name):
    result = killed[name]
    assert result["num_kills"]
    assert result["contents"] == result["expected"]
    assert result["left"] == ["1.0.0"]


@pytest.mark.parametrize("name", NAMES)
def test_goes_on_after_any_episode(sources, name):
    source = sources[name]
    for split in source.splits:
        for part in source.parts(split):
            whole = [pickle.dumps(episode) for episode in source.episodes(split, part)]
            for index, episode in enumerate(map(pickle.loads, whole)):
                rest = source.episodes(split, part, episode.key)
                assert [digest(e) for e in rest] == [
                    digest(pickle.loads(e)) for e in whole[index + 1 :]
                ]


def digest(episode):
    """An episode without what is only for the progress bar, in a form that can be compared."""
    described = dict(vars(episode), fraction=None)
    return conversions.to_lists(described)


@pytest.mark.filterwarnings("ignore")  # Of Beam, in a version that others decide.
@pytest.mark.parametrize("name", NAMES)
def test_pipeline_gives_the_same_bytes(sources, killed, tmp_path, name):
    made = tfds_builders.convert(
        sources[name],
        name="dataset",
        data_dir=tmp_path,
        download_config=tfds.download.DownloadConfig(
            beam_runner="DirectRunner", beam_options=["--direct_running_mode=in_memory"]
        ),
    )
    assert conversions.contents(made.data_path) == killed[name]["expected"]


# --- The program that is killed ------------------------------------------------------------------


def main(directory: Path) -> None:
    sources: dict[str, Source] = pickle.loads((directory / "sources").read_bytes())
    results = {}
    for name, source in sources.items():
        whole, data_dir = directory / name / "whole", directory / name / "killed"
        num_accesses = in_child(source, whole, None)[1]
        random.seed(name)
        num_kills = 0
        # Until it was finished, or died after the last thing that it had to do.
        while not (data_dir / "dataset" / "1.0.0").exists() or staged(data_dir):
            may_die = num_kills < MAX_KILLS
            accesses = random.randrange(num_accesses) if may_die else None
            num_kills += in_child(source, data_dir, accesses)[0] == -signal.SIGKILL
        results[name] = {
            "num_kills": num_kills,
            "expected": conversions.contents(whole / "dataset" / "1.0.0"),
            "contents": conversions.contents(data_dir / "dataset" / "1.0.0"),
            "left": sorted(path.name for path in (data_dir / "dataset").iterdir()),
        }
        shutil.rmtree(directory / name)
    (directory / "results").write_text(json.dumps(results))


def staged(data_dir: Path) -> bool:
    return (data_dir / "dataset" / ".staging-1.0.0").exists()


def in_child(source: Source, data_dir: Path, accesses: int | None) -> tuple[int, int]:
    """Converts in a child, which dies after some accesses to files of the dataset.

    Returns:
      How it ended, as `subprocess` says it, and how many accesses there were.
    """
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            num_accesses = die_after(data_dir, accesses)
            tfds_builders.convert(source, name="dataset", data_dir=data_dir)
            os.write(send, str(num_accesses[0]).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(send)
    with open(receive, "rb") as stream:
        seen = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a conversion ended with {status}")
    return status, int(seen or 0)


def die_after(directory: Path, accesses: int | None) -> list[int]:
    """Kills this process at an access to a file of a directory; returns how many there were."""
    num_accesses = [0]

    def count(event, arguments):
        if event.split(".")[0] not in ("open", "os", "shutil", "tempfile"):
            return
        if any(isinstance(a, str) and a.startswith(str(directory)) for a in arguments):
            if num_accesses[0] == accesses:
                os.kill(os.getpid(), signal.SIGKILL)
            num_accesses[0] += 1

    sys.addaudithook(count)
    return num_accesses


if __name__ == "__main__":
    main(Path(sys.argv[1]))
