import numpy as np

import envlogger
import rlds.sources
from envlogger.testing.catch_env import Catch
from rlds.formats.logs import source as logs


def record(directory, metadata):
    indices = iter(metadata)

    def take_next(timestep, action, env):
        return next(indices) if timestep.last() else None

    with envlogger.EnvLogger(Catch(), data_directory=str(directory), episode_fn=take_next) as env:
        for _ in metadata:
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(1)


def test_types_of_metadata_are_cached_for_large_logs(tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    record(tmp_path / "log", [{"a": 1}, {"a": 2}, {"a": 3, "b": "x"}, {"a": 4}])
    read_indices, original = [], logs.EnvLoggerSource._episode_columns

    def record_index(self, metadata, log, index):
        read_indices.append(index)
        return original(self, metadata, log, index)

    monkeypatch.setattr(logs.EnvLoggerSource, "_episode_columns", record_index)
    opened = [rlds.sources.open(tmp_path / "log")]
    assert not (tmp_path / "cache").exists()  # Small logs are not cached.
    monkeypatch.setattr(logs, "_MIN_CACHED_EPISODES", 3)
    for expected in ([0, 1, 2, 3], [0, 2]):
        read_indices.clear()
        opened.append(rlds.sources.open(tmp_path / "log"))
        assert read_indices == expected
    fields = [dict(episodes.source.fields.episode) for episodes in opened]
    assert fields[0] == fields[1] == fields[2]
    assert {"a", "b", "b_known"} <= fields[0].keys()
    for episodes in opened:
        assert [episode.metadata["a"] for episode in episodes] == [1, 2, 3, 4]
    # If there are new episodes, their types are searched for.
    record(tmp_path / "log", [{"a": 5, "c": np.float32(2)}])
    read_indices.clear()
    longer = rlds.sources.open(tmp_path / "log")
    assert "c" in longer.source.fields.episode
    assert (read_indices, len(longer)) == ([0, 1, 2, 3, 4], 5)
