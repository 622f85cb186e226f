"""Every source there is: killed, resumed, and read by a pipeline, it gives the same bytes."""

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
    subprocess.run(
        [sys.executable, killed_conversions.__file__, str(directory)], env=environment, check=True
    )
    return json.loads((directory / "results").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_killed_conversions_resume_to_the_same_files(killed, name):
    result = killed[name]
    assert result["num_kills"]
    assert result["contents"] == result["expected"]
    assert result["left"] == ["1.0.0"]


@pytest.mark.parametrize("name", NAMES)
def test_goes_on_after_any_episode(sources, name):
    source = sources[name]
    for split in source.splits:
        for part in reading.parts(source, split):
            whole = [pickle.dumps(it) for it in reading.episodes(source, split, part)]
            for index, episode in enumerate(map(pickle.loads, whole)):
                rest = reading.episodes(source, split, part, episode.key)
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
