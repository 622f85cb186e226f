"""Exports to object stores equal local ones, and are complete or unreadable."""

import os
import subprocess
import sys
from pathlib import Path

import many_episodes
import pytest
import stores_of_tests
from conversions import Interrupted
from export_options import NAMES, options_for
from many_episodes import ManyEpisodes

import rlds
import rlds.sources
from rlds.sources import SourceError, export
from rlds_ecosystem.files import stores

pytestmark = [
    pytest.mark.slow,
    # The clients leave open connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with stores_of_tests.running("gcsfs", tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def contents(folder):
    """Returns all files below a folder, local or in a store."""
    folder = stores.as_path(folder)
    paths = [directory / name for directory, _, names in folder.walk() for name in names]
    return {os.fspath(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("format", [*rlds.sources.exports()])
def test_a_store_gets_the_files_of_a_local_export(format, store, cache, tmp_path):
    raw = many_episodes.write(tmp_path / "raw", 3)
    name, options = NAMES.get(format, "made"), options_for(format, rlds.sources.open(raw))
    url = stores.as_path(store.directory()) / name
    for target in (url, tmp_path / "local" / name):
        export(raw, format, target, **options)
    assert contents(url.parent) == contents(tmp_path / "local")
    assert len(rlds.sources.open(url)) == 3
    assert not any(path.is_file() for path in cache.rglob("*"))
    with pytest.raises(FileExistsError, match="not overwritten"):
        export(raw, format, url, **options)


def test_interrupted_upload_resumes(store, cache, tmp_path, monkeypatch):
    raw, target = many_episodes.write(tmp_path / "raw"), f"{store.directory()}/made"
    copied, copy_file = [], stores.copy_file

    def count_copy(source, destination):
        if len(copied) == stop:
            raise Interrupted
        copied.append(os.path.relpath(destination, target))
        copy_file(source, destination)

    paths = stores_of_tests.paths
    monkeypatch.setattr(paths, "copy_file", count_copy)
    monkeypatch.setattr(paths, "in_parallel", lambda function, items, _: [*map(function, items)])
    stop = 4
    with pytest.raises(Interrupted):
        export(ManyEpisodes(raw), "lerobot", target, fps=10, jobs=1)
    with pytest.raises(SourceError, match="upload is not complete; repeat the export"):
        rlds.sources.open(target)
    stop, num_reads = None, len(ManyEpisodes.reads)
    export(ManyEpisodes(raw), "lerobot", target, fps=10, jobs=1)
    assert len(ManyEpisodes.reads) == num_reads  # The parts were kept.
    assert copied[-1] == "meta/info.json"
    assert len(copied) == len({*copied}) == len(contents(target))
    export(ManyEpisodes(raw), "lerobot", tmp_path / "made", fps=10, jobs=1)
    assert contents(target) == contents(tmp_path / "made")
    assert not any(path.is_file() for path in cache.rglob("*"))


def test_an_edit_writes_to_a_store(store, tmp_path):
    raw, edited = many_episodes.write(tmp_path / "raw", 3), f"{store.directory()}/edited"
    export(raw, "tfds", tmp_path / "made")
    change = [rlds.editing.Set("reward", 1.0), rlds.editing.Split({"a": 0.5, "b": 0.5})]
    for target in (edited, tmp_path / "edited"):
        rlds.edit(tmp_path / "made", *change, to=target, draft=tmp_path / "drafts")
    assert contents(edited) == contents(tmp_path / "edited")
    assert rlds.sources.open(edited, "a").metadata["lineage"]
    assert not os.path.exists(tmp_path / "drafts")


HUB_SCRIPT = """
import sys
sys.path.append(sys.argv[1])
import many_episodes, rlds.sources
raw = many_episodes.write(many_episodes.Path(sys.argv[2]), 3)
for suffix, format in {"": "tfds", "/more": "mcap", "/demos.h5": "robomimic"}.items():
    url = "hf://datasets/owner/name" + suffix
    rlds.sources.export(raw, format, url)
    try:
        rlds.sources.export(raw, format, url)
    except FileExistsError:
        assert len(rlds.sources.open(url, format=format)) == 3
"""


def test_each_export_to_the_hub_is_a_commit(tmp_path):
    pytest.importorskip("huggingface_hub")
    support, hub = Path(many_episodes.__file__).parent, tmp_path / "hub"
    hub.mkdir()
    (hub / ".gitattributes").write_text("of a new repository")
    command = [sys.executable, "-u", support / "hub_server.py", hub]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            variables = {"HF_ENDPOINT": server.stdout.readline().strip(), "HF_TOKEN": "of tests"}
            variables |= {"HF_HUB_OFFLINE": "0", "no_proxy": "127.0.0.1"}
            script = [sys.executable, "-c", HUB_SCRIPT, support, tmp_path / "raw"]
            subprocess.run(script, env=os.environ | variables, check=True)
        finally:
            server.kill()
            lines = server.stdout.read().splitlines()
    assert len([line for line in lines if line.endswith("/commit/main")]) == 3
    assert {"features.json", "more", "demos.h5", ".rlds"} <= {*os.listdir(hub)}
