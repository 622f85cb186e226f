"""Every source is converted to the same bytes if killed and resumed, and by a pipeline."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import conversions
import killed_conversions
import pytest
import tensorflow_datasets as tfds
from hostile_sources import FORMATS, NAMES

import tfds_builders
from rlds.sources import reading

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources(request, tmp_path_factory):
    """The sources of the selected tests."""
    items = [item for item in request.session.items if item.path == Path(__file__)]
    chosen = {item.callspec.params["name"] for item in items}
    return {name: write(name, tmp_path_factory.mktemp(name)) for name in NAMES if name in chosen}


def write(name, directory):
    """Writes small raw data of a format, and returns its source."""
    FORMATS[name].write(directory)
    return FORMATS[name].source(directory)


@pytest.fixture(scope="module")
def kill_results(sources, tmp_path_factory):
    """The results of killed conversions, by source."""
    directory = tmp_path_factory.mktemp("killed")
    (directory / "sources").write_bytes(pickle.dumps(sources))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run(
        [sys.executable, killed_conversions.__file__, str(directory)], env=environment, check=True
    )
    return json.loads((directory / "results").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_killed_conversions_resume_to_the_same_files(kill_results, name):
    result = kill_results[name]
    assert result["num_kills"]
    assert result["contents"] == result["expected"]
    assert result["left"] == ["1.0.0"]


@pytest.mark.parametrize("name", NAMES)
def test_reading_resumes_after_any_episode(sources, name):
    source = sources[name]
    for split in source.splits:
        for piece in reading.parts(source, split):
            pickles = [pickle.dumps(it) for it in reading.episodes(source, split, piece)]
            for index, episode in enumerate(map(pickle.loads, pickles)):
                resumed = reading.episodes(source, split, piece, episode.key)
                assert [digest(e) for e in resumed] == [
                    digest(pickle.loads(e)) for e in pickles[index + 1 :]
                ]


def digest(episode):
    """Returns an episode as nested lists, without the fraction of the progress bar."""
    fields = dict(vars(episode), fraction=None)
    return conversions.to_lists(fields)


@pytest.mark.filterwarnings("ignore")  # Of Beam, whose version we do not choose.
@pytest.mark.parametrize("name", NAMES)
def test_a_beam_pipeline_writes_the_same_bytes(sources, kill_results, tmp_path, name):
    builder = tfds_builders.convert(
        sources[name],
        name="dataset",
        data_dir=tmp_path,
        download_config=tfds.download.DownloadConfig(
            beam_runner="DirectRunner", beam_options=["--direct_running_mode=in_memory"]
        ),
    )
    assert conversions.contents(builder.data_path) == kill_results[name]["expected"]
