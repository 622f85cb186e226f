import dataclasses
import warnings

import pytest
from tiny_datasets import episode, write_dataset

import rlds.sources
import rlds_tools
from rlds.sources import SourceError
from rlds_tools import reading


def test_results_do_not_depend_on_the_number_of_processes(tmp_path, monkeypatch):
    path = write_dataset(tmp_path / "many", [episode(3 + n % 4, seed=n) for n in range(40)])
    file = next((tmp_path / "many").glob("*.tfrecord*"))
    content = bytearray(file.read_bytes())
    content[200] ^= 1  # In the first episode.
    file.write_bytes(content)
    monkeypatch.setattr(reading, "_MIN_EPISODES_FOR_JOBS", 10)
    monkeypatch.setattr(reading, "_CHUNK_EPISODES", 4)
    one, two = (rlds_tools.validate(path, jobs=jobs).checks for jobs in (1, 2))
    assert [dataclasses.replace(check, seconds=0) for check in one] == [
        dataclasses.replace(check, seconds=0) for check in two
    ]
    assert "cannot be read: " in two[0].findings[0].text
    with pytest.raises(SourceError, match="tiny-train"):
        rlds_tools.stats(path, jobs=2)


def test_a_large_chunk_ends_early_and_keeps_its_warnings(dataset, monkeypatch):
    episodes = rlds.sources.open(dataset)
    monkeypatch.setattr(reading, "_CHUNK_BYTES", 10)
    read = reading._read

    def warn(*args):
        warnings.warn("old", stacklevel=1)
        return read(*args)

    monkeypatch.setattr(reading, "_read", warn)
    result, messages = reading._read_chunk(episodes, [0, 1, 2])
    assert (len(result), list(map(str, messages))) == (1, ["old"])
