import numpy as np

import envlogger
import rlds.sources
from envlogger.testing.catch_env import Catch
from rlds.formats.logs import source as logs


def record(directory, metadata):
    indices = iter(metadata)

    def of_episode(timestep, action, env):
        return next(indices) if timestep.last() else None

    with envlogger.EnvLogger(Catch(), data_directory=str(directory), episode_fn=of_episode) as env:
        for _ in metadata:
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(1)


def test_kinds_of_metadata_are_kept_of_large_logs(tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    record(tmp_path / "log", [{"a": 1}, {"a": 2}, {"a": 3, "b": "x"}, {"a": 4}])
    looked, columns_of = [], logs.EnvLoggerSource._episode_columns

    def noted(self, metadata, log, index):
        looked.append(index)
        return columns_of(self, metadata, log, index)

    monkeypatch.setattr(logs.EnvLoggerSource, "_episode_columns", noted)
    opened = [rlds.sources.open(tmp_path / "log")]
    assert not (tmp_path / "cache").exists()  # Of small ones there is nothing to keep.
    monkeypatch.setattr(logs, "_MIN_CACHED_EPISODES", 3)
    for expected in ([0, 1, 2, 3], [0, 2]):
        looked.clear()
        opened.append(rlds.sources.open(tmp_path / "log"))
        assert looked == expected
    fields = [dict(episodes.source.fields.episode) for episodes in opened]
    assert fields[0] == fields[1] == fields[2]
    assert {"a", "b", "b_known"} <= fields[0].keys()
    for episodes in opened:
        assert [episode.metadata["a"] for episode in episodes] == [1, 2, 3, 4]
    # Further types are searched for once there are more episodes.
    record(tmp_path / "log", [{"a": 5, "c": np.float32(2)}])
    looked.clear()
    grown = rlds.sources.open(tmp_path / "log")
    assert "c" in grown.source.fields.episode
    assert (looked, len(grown)) == ([0, 1, 2, 3, 4], 5)
