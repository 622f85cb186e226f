"""Conversions and statistics by several processes."""

from pathlib import Path

import conversions
import numpy as np
import pytest
import tensorflow_datasets as tfds
import toy_source
from toy_source import ToySource

from rlds.sources.source import SourceError
from tfds_builders import dataset_statistics
from tfds_builders.builder import convert

pytestmark = pytest.mark.filterwarnings("ignore")  # Of Beam, whose version we do not choose.

# More than a piece of a conversion has.
NUM_EPISODES = 110
PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
IN_MEMORY = ["--direct_running_mode=in_memory"]


def on_beam(options, **kwargs):
    return tfds.download.DownloadConfig(beam_runner="DirectRunner", beam_options=options, **kwargs)


@pytest.fixture(autouse=True)
def _workers_find_the_source(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(toy_source.__file__).parent))


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "toy.raw"
    path.write_text("toy")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "float64"),
    [
        pytest.param(PROCESSES, "float32", marks=pytest.mark.slow),
        (IN_MEMORY, None),
    ],
    ids=["processes, rounded", "in memory"],
)
def test_several_processes_write_the_same_bytes_as_one(raw, tmp_path, options, float64):
    serial = convert(
        ToySource(raw, NUM_EPISODES),
        name="toy",
        data_dir=tmp_path / "one",
        float64=float64,
        download_config=tfds.download.DownloadConfig(num_shards=4),
    )
    parallel = convert(
        ToySource(raw, NUM_EPISODES),
        name="toy",
        data_dir=tmp_path / "many",
        float64=float64,
        download_config=on_beam(options, num_shards=4),
    )
    assert conversions.contents(serial.data_path) == conversions.contents(parallel.data_path)
    if float64 is None:
        conversions.check_against_source(parallel, ToySource(raw, NUM_EPISODES))
        return
    stored = {
        episode["episode_id"].decode(): [step["observation"] for step in episode["steps"]]
        for episode in tfds.as_numpy(parallel.as_dataset(split="train"))
    }
    source = ToySource(raw, NUM_EPISODES)
    for episode in (source.read("train", index) for index in range(NUM_EPISODES)):
        rounded = episode.steps["observation"].astype(np.float32)
        np.testing.assert_array_equal(stored.pop(episode.key), rounded, strict=True)
    assert not stored


def test_an_interrupted_conversion_is_resumed_on_beam(raw, tmp_path, monkeypatch):
    conversions.cut_finely(monkeypatch)
    keys = []
    with pytest.raises(conversions.Interrupted):
        source = conversions.interrupted(ToySource(raw), 6, keys)
        convert(source, name="toy", data_dir=tmp_path)
    parallel = convert(
        ToySource(raw), name="toy", data_dir=tmp_path, download_config=on_beam(IN_MEMORY)
    )
    serial = convert(ToySource(raw), name="toy", data_dir=tmp_path / "one")
    assert conversions.contents(serial.data_path) == conversions.contents(parallel.data_path)


@pytest.mark.slow
def test_damage_is_the_same_error_on_beam(raw, tmp_path):
    with pytest.raises(SourceError, match=r"episode 5, row 3, field 'action': scratched"):
        convert(
            ToySource(raw, damaged=5),
            name="toy",
            data_dir=tmp_path,
            download_config=on_beam(IN_MEMORY),
        )
    assert not (tmp_path / "toy" / "1.0.0").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [pytest.param(PROCESSES, marks=pytest.mark.slow), IN_MEMORY],
    ids=["processes", "in memory"],
)
def test_statistics_of_beam_equal_those_of_one_process(raw, tmp_path, options):
    builder = convert(
        ToySource(raw, 30),
        name="toy",
        data_dir=tmp_path,
        download_config=tfds.download.DownloadConfig(num_shards=3),
    )
    serial = dataset_statistics(builder.data_path)
    parallel = dataset_statistics(
        builder.data_path, beam_runner="DirectRunner", beam_options=options, temp_dir=tmp_path
    )
    assert serial.to_json() == parallel.to_json()
    observations = np.concatenate(
        [ToySource(raw, 30).read("train", index).steps["observation"] for index in range(30)]
    )
    stats = serial["observation"]
    assert stats.count == len(observations)
    np.testing.assert_allclose(stats.mean, observations.mean())
    np.testing.assert_allclose(stats.std, observations.std())
    assert (stats.min, stats.max) == (observations.min(), observations.max())
    np.testing.assert_allclose(stats.quantiles[0.99], np.quantile(observations, 0.99), rtol=0.02)
    assert serial.num_trajectories == 30
