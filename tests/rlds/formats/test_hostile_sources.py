"""Mutated raw data of every format, and inputs that failed once; see `make fuzz`."""

import itertools
import os
import signal
import threading
import time
from pathlib import Path

import hostile_sources
import pytest

from rlds.sources import DamagedEpisode, SourceError, reading

# Mutated flags may cause warnings of conventions.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
# The number of inputs of each format.
FEW = 8 if "FEW_EXAMPLES" in os.environ else 4
# Inputs that failed once; their names begin with the name of the format.
FINDINGS = sorted(Path(__file__).with_name("hostile_inputs").glob("*.zip"))


@pytest.mark.parametrize("name", hostile_sources.FORMATS)
def test_mutated_raw_data_raises_only_known_errors(name):
    assert hostile_sources.outcome(name, dict(hostile_sources.files_of(name))) == "read"
    results = (
        hostile_sources.outcome(name, hostile_sources.mutated(name, seed))
        for seed in range(8 * FEW)
    )
    first = set(itertools.islice(results, FEW))
    is_reached = any(it not in ("read", "endless") for it in itertools.chain(first, results))
    assert is_reached, "the mutations do not reach the reader"


@pytest.mark.parametrize("archive", FINDINGS, ids=lambda archive: archive.stem)
def test_archived_fuzz_findings_raise_only_known_errors(archive):
    name = archive.stem.partition("-")[0]
    hostile_sources.outcome(name, hostile_sources.unpack(archive))


# Files and folders that may be links without a target.
LINKS = {
    "agibot": ("observations", "observations/327/9/videos", "task_info", "proprio_stats/327/9"),
    "calvin": ("training/lang_annotations", "training/scene_info.npy"),
    "droid": ("LAB/failure", "LAB/failure/2023-07-07/Fri_Jul__7_09-42-1/recordings"),
    "exported_webdataset": ("data/features.json",),
    "exported_zarr": ("data/rlds", "data/data"),
    "layout": ("run_1", "run_1/log.csv", "run_1/rgb", "run_0/rgb/2.png"),
    "logs": ("metadata.riegeli",),
    "maniskill": ("t.json",),
    "robomind": tuple(
        f"h5_agilex_3rgb/10_packplate_2/success_episodes/train/{name}"
        for name in ("1", "2/data", "2/data/trajectory.hdf5")
    ),
    "zarr": ("data/robot0_eef_pos", "data/robot0_eef_pos/.zarray"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LINKS)
def test_a_link_without_a_target_is_an_error(name, tmp_path):
    raw = hostile_sources.FORMATS[name]
    raw.write(tmp_path)
    for link in LINKS[name]:
        (tmp_path / link).rename(tmp_path / "away")
        (tmp_path / link).symlink_to("nowhere")
        with pytest.raises(SourceError, match=r"which does not exist|the episode needs it"):
            source = raw.source(tmp_path)
            for episode in reading.episodes(source, "train", *reading.parts(source, "train")):
                if isinstance(episode, DamagedEpisode):
                    raise episode.error
        (tmp_path / link).unlink()
        (tmp_path / "away").rename(tmp_path / link)


def test_file_access_of_other_threads_is_ignored():
    ended = threading.Event()

    def read():
        while not ended.is_set():
            Path("/etc/passwd").read_bytes()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert hostile_sources.outcome("d4rl", dict(hostile_sources.files_of("d4rl"))) == "read"
    finally:
        ended.set()
        thread.join()


def read_a_secret():
    with open(hostile_sources.canary(), "rb") as file:
        file.read()


MISTAKES = {
    "AssertionError": read_a_secret,
    "KeyError": lambda: {}["x"],
    "MemoryError": lambda: bytes(1 << 33),
    "signal -11": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "more than 0.5 s": lambda: time.sleep(60),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_fuzzer_reports_mistakes(mistake, tmp_path, monkeypatch):
    """Other errors, other files, the death of the process, and too much time."""
    log = tmp_path / "log"
    log.touch()
    target = tmp_path / "made"

    class FaultyRaw(hostile_sources.Raw):
        def source(self, directory):
            if not target.exists():
                target.mkdir()
                MISTAKES[mistake]()
            return super().source(directory)

    raw = FaultyRaw(*hostile_sources.FORMATS["d4rl"])
    num_inputs = 3
    if mistake.endswith("0.5 s"):  # Other inputs may take as long on a busy machine.
        monkeypatch.setattr(hostile_sources, "MAX_SECONDS", 0.5)
        num_inputs = 1
    monkeypatch.setitem(hostile_sources.FORMATS, "d4rl", raw)
    hostile_sources.try_many("d4rl", 0, num_inputs, log)
    (line,) = [line for line in log.read_text().splitlines() if not line.startswith(" ")]
    assert line.startswith("d4rl 0: ")
    assert mistake in line
