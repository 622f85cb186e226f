"""`rlds.sources.open`."""

import json
import os
import subprocess
import sys

import h5py
import hostile_sources
import numpy as np
import pytest
import raw_d4rl
import raw_npz
import raw_rlu
import raw_robomimic
import tree
from hostile_sources import NAMES, OPENED, OPTIONS

import envlogger
import rlds
import rlds.sources
import tfds_files
from envlogger.testing.catch_env import Catch
from rlds.sources import (
    DamagedEpisode,
    Episodes,
    Field,
    SourceError,
    formats,
    opening,
    registry,
)
from rlds.sources import open as open_episodes
from rlds.sources.testing import check_source

RluRwrlSource = rlds.sources.formats()["rlu_rwrl"].load()


@pytest.fixture(scope="module")
def raw_data(tmp_path_factory):
    """Directories with data of every format."""
    root = tmp_path_factory.mktemp("raw")
    hostile_sources.write_all(root)
    return root


def assert_equal(one, other):
    tree.map_structure(
        lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), one, other
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_format_is_recognized_and_keeps_the_contract(raw_data, name):
    path, expected_format = OPENED[name]
    episodes = open_episodes(raw_data / name / path, **OPTIONS.get(name, {}))
    assert episodes.format == expected_format
    assert type(episodes.source) is formats()[episodes.format].load()
    check_source(episodes.source)
    count = len(episodes)
    assert count > 0
    fields = episodes.spec[rlds.STEPS]
    for index in (count - 1, 0):
        columns = episodes.columns(index)
        tree.assert_same_structure(columns, fields)
        for column, field in zip(tree.flatten(columns), tree.flatten(fields)):
            check_column(column, field, episodes[index].num_steps)
    with pytest.raises(IndexError, match=f"has {count} episodes, got index {count}"):
        episodes.episode(count)
    assert "observation" in episodes.explain()


def check_column(column, field, num_steps):
    assert len(column) == num_steps
    if isinstance(field, Field) and not field.is_text and isinstance(column, np.ndarray):
        assert column.dtype == field.column_dtype
        assert len(column.shape) == 1 + len(field.shape)


def test_opening_needs_no_tensorflow(raw_data):
    calls = [(str(raw_data / name / OPENED[name][0]), OPTIONS.get(name, {})) for name in NAMES]
    script = """
import json, sys
import rlds.sources
for path, options in json.load(sys.stdin):
    episodes = rlds.sources.open(path, **options)
    episodes.columns(len(episodes) - 1)
    episodes.explain()
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"tensorflow", "tensorflow_datasets"}, loaded
"""
    command = [sys.executable, "-W", "error", "-c", script]
    subprocess.run(command, input=json.dumps(calls), text=True, check=True)


def test_columns_return_the_requested_fields_and_steps(raw_data):
    for name in ("logs", "minari_hdf5", "folder_tfrecord", "d4rl"):
        path, _ = OPENED[name]
        episodes = open_episodes(raw_data / name / path)
        all_columns = episodes.columns(0)
        selected = episodes.columns(0, ["reward", "is_last"], start=1, stop=-1)
        assert list(selected) == ["reward", "is_last"]
        for field, column in selected.items():
            np.testing.assert_array_equal(column, all_columns[field][1:-1])
        with pytest.raises(KeyError, match=r"'rewards'; did you mean 'reward'\? There are: "):
            episodes.columns(0, ["rewards"])
        for index in (1.0, "train", None):
            with pytest.raises(TypeError, match="has a number as its index"):
                episodes[index]
        with pytest.raises(IndexError, match="got index -999"):
            episodes[-999]


def test_an_episode_that_differs_from_the_first_raises_a_source_error(tmp_path):
    """A record of RL Unplugged that lacks a field, or has it in another shape."""
    episodes = raw_rlu.control_suite_episodes()
    del episodes[-1]["observation/height"]
    raw_rlu.write_files(tmp_path, "train", episodes, num_files=1)
    opened = open_episodes(tmp_path)
    assert opened.columns(0, ["reward"])
    with pytest.raises(SourceError, match="height"):
        opened.columns(len(opened) - 1)


def test_explain_describes_fields_and_splits(raw_data):
    episodes = open_episodes(raw_data / "minari_hdf5" / "toy-v0")
    assert repr(episodes).startswith("Episodes(minari, ")
    assert repr(episodes).endswith("split 'train', 2 episodes)")
    words = episodes.explain()
    assert "      x: float32 of shape (3,)\n" in words
    assert "split 'train': 2 episodes" in words


def record(directory, **splits):
    for split, count in splits.items():
        with envlogger.EnvLogger(Catch(), data_directory=directory / split) as env:
            for _ in range(count):
                timestep = env.reset()
                while not timestep.last():
                    timestep = env.step(1)


def test_split_is_required_if_there_are_several(tmp_path):
    record(tmp_path, train=2, test=1)
    logs = {split: tmp_path / split for split in ("train", "test")}
    with pytest.raises(KeyError, match=r"pass one of the splits \['train', 'test'\]"):
        opening.only_split(open_episodes(logs, "train", format="envlogger").source, None)
    assert len(open_episodes(logs, "test", format="envlogger")) == 1
    with pytest.raises(KeyError, match=r"no split 'other', only \['train', 'test'\]"):
        open_episodes(logs, "other", format="envlogger")


@pytest.mark.parametrize("name", ["folder_tfrecord", "logs", "rlu_rwrl"])
def test_slices_of_splits_equal_those_of_tfds(raw_data, name):
    """With shards, without shards, and without random access."""
    folder = raw_data / name / OPENED[name][0]
    (split,) = open_episodes(folder).splits
    keys = [episode.key for episode in open_episodes(folder)]
    count = len(keys)
    for split_slice, expected in {
        f"{split}[1:]": keys[1:],
        f"{split}[-1:]+{split}[:1]": [keys[-1], keys[0]],
        f"{split}[:34%]": keys[: round(0.34 * count)],
        f"{split}[2:1]": [],
        "all": keys,
    }.items():
        episodes = open_episodes(folder, split_slice)
        assert [episode.key for episode in episodes] == expected, split_slice
        assert len(episodes) == len(expected)
        assert [episodes[index].key for index in range(-len(expected), 0)] == expected
        assert repr(episodes).endswith(f"split {split_slice!r}, {len(expected)} episodes)")
    tail = open_episodes(folder, f"{split}[1:]")
    assert_equal(tail.columns(0, ["reward"]), open_episodes(folder).columns(1, ["reward"]))
    with pytest.raises(IndexError, match=rf"split '{split}\[1:\]' has {count - 1} episodes"):
        tail.episode(count - 1)
    for split_slice, message in {
        f"{split}[:10": "is not a split or a slice of one, such as 'train",
        f"{split}[:{count + 1}]": f"has only {count} examples",
        f"{split}[:200%]": "200% is more than 100%",
    }.items():
        with pytest.raises(ValueError, match=message):
            open_episodes(folder, split_slice)
    with pytest.raises(KeyError, match=r"^.no split 'other\[:2\]', only \["):
        open_episodes(folder, "other[:2]")
    if name != "folder_tfrecord":
        with pytest.raises(ValueError, match="there are no shards"):
            open_episodes(folder, f"{split}[1shard:]")


def test_shards_and_several_splits_can_be_selected(tmp_path):
    action = tfds_files.Tensor(dtype=np.dtype(np.int64))
    steps = tfds_files.Dataset(feature=tfds_files.Features(features={"action": action}))
    features = tfds_files.Features(features={"steps": steps})
    with tfds_files.append_to(tmp_path, features, "mine", max_examples_per_shard=2) as writer:
        for index, split in enumerate(["train"] * 5 + ["test"] * 3):
            writer.add({"steps": {"action": np.array([index])}}, split)
    for splits, expected in {
        "train[1shard:]": [2, 3, 4],
        "test[-1shard]+train[0shard]": [7, 0, 1],
        "all": [0, 1, 2, 3, 4, 5, 6, 7],
    }.items():
        episodes = open_episodes(tmp_path, splits)
        assert [episodes.columns(i)["action"][0] for i in range(len(episodes))] == expected


def test_paths_that_cannot_be_opened_raise_an_error_with_advice(tmp_path):
    with pytest.raises(FileNotFoundError, match="minari download door/human-v2"):
        open_episodes("door/human-v2")
    with pytest.raises(FileNotFoundError, match="nowhere' does not exist"):
        open_episodes(tmp_path / "nowhere")
    (tmp_path / "x.txt").write_text("nothing")
    (tmp_path / "log.tar.gz").write_bytes(hostile_sources.files_of("logs_tar")["log.tar.gz"])
    with pytest.raises(SourceError, match=r"log.tar.gz: an archive: unpack it"):
        open_episodes(tmp_path / "log.tar.gz")
    with pytest.raises(SourceError, match=r"x.txt: unknown format. If you know the format, pass"):
        open_episodes(tmp_path / "x.txt")
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["poses"] = file["grips"] = 1
    with pytest.raises(SourceError) as caught:
        open_episodes(tmp_path / "mine.h5")
    message = "unknown format: an HDF5 file with 'grips', 'poses'. The nearest formats are: "
    assert message in str(caught.value)
    (tmp_path / "torn.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99))
    with pytest.raises(SourceError, match=r"torn.hdf5: not a complete HDF5 file"):
        open_episodes(tmp_path / "torn.hdf5")
    with h5py.File(tmp_path / "episode0.hdf5", "w") as file:
        file["joint_action"] = file["observation"] = 1
    with pytest.raises(SourceError, match="a raw file of RoboTwin: run its process_data"):
        open_episodes(tmp_path / "episode0.hdf5")
    (tmp_path / "third").mkdir()
    (tmp_path / "third" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    with pytest.raises(SourceError, match=r"a store of Zarr 3, .* write it with zarr_format=2"):
        open_episodes(tmp_path / "third")
    with pytest.raises(ValueError, match="unknown format 'hdf5'; there are: envlogger, tfds"):
        open_episodes(tmp_path, format="hdf5")
    with pytest.raises(ValueError, match="unknown format 'lerobt'; did you mean 'lerobot'"):
        open_episodes(tmp_path, format="lerobt")
    record(tmp_path, train=1)
    with pytest.raises(TypeError, match="envlogger has no option 'follow'; its options are: "):
        open_episodes(tmp_path / "train", follow=True)
    with pytest.raises(TypeError, match="got list, expected a path; or pass format"):
        open_episodes([tmp_path])


def test_options_reach_the_source(raw_data):
    path = raw_data / "d4rl" / "hopper.hdf5"
    assert len(open_episodes(path, boundary="length", length=3)) == 4
    assert formats()["d4rl"].options["length"].default is None


def test_data_of_two_formats_is_not_guessed(tmp_path, raw_data):
    for name in ("logs", "folder_tfrecord"):
        for path, data in hostile_sources.files_of(name).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)
    with pytest.raises(ValueError, match="could be envlogger or tfds: pass the right"):
        open_episodes(tmp_path)
    assert open_episodes(tmp_path, format="tfds").format == "tfds"


class DamagedSource(RluRwrlSource):
    """A source whose second episode is unreadable."""

    def episodes(self, split, part, after=None):
        for episode in super().episodes(split, part, after):
            if episode.key.endswith(":1"):
                error = SourceError("it is damaged", file="x", episode=episode.key)
                episode = DamagedEpisode(episode.key, error)
            yield episode


def test_damaged_episode_does_not_affect_other_episodes(raw_data):
    episodes = Episodes(DamagedSource(raw_data / "rlu_rwrl"))
    assert not episodes.has_random_access
    assert len(episodes) == 4
    with pytest.raises(SourceError, match="it is damaged"):
        episodes[1]
    assert episodes[2].num_steps
    assert episodes[0].num_steps
    with pytest.raises(SourceError, match="it is damaged"):
        list(episodes)


PLUGIN_MODULE = """
from pathlib import Path

import numpy as np

import rlds
from rlds.sources import Fields, Origin, Source, SourceEpisode


class LineSource(Source):
    '''Text files, each line of which is an episode.'''

    fields = Fields({"observation": np.int64, "action": np.int64, "discount": np.float32})

    def __init__(self, path, *, offset: int = 0):
        self._path, self._offset = Path(path), offset

    @classmethod
    def recognizes(cls, path):
        return str(path).endswith(".lines")

    def inputs(self):
        return [self._path]

    def num_episodes(self, split):
        return len(self._path.read_text().splitlines())

    def key(self, split, index):
        return str(index)

    def read(self, split, index, fields=None, rows=slice(None)):
        line = self._path.read_text().splitlines()[index]
        values = np.array([int(word) for word in line.split()]) + self._offset
        steps = rlds.from_sars(
            observation=values, action=np.diff(values), reward=None, terminal=True
        )
        return SourceEpisode(str(index), steps, Origin("", 0, len(values)), truncated=False)
"""
PLUGIN_SCRIPT = """
import sys
import rlds.sources
path = sys.argv[1]
plugin = rlds.sources.formats()["lines"]
assert plugin.description == "Text files, each line of which is an episode."
assert str(plugin.options["offset"]) == "offset=integer (0)"
episodes = rlds.sources.open(path, offset=5)
assert repr(episodes) == f"Episodes(lines, {path}, split 'train', 2 episodes)"
assert episodes.columns(1, ["observation"])["observation"].tolist() == [9, 8, 12]
assert episodes[0].steps["action"].tolist() == [1, 1, 0]
try:
    rlds.sources.open(path, ofset=5)
except TypeError as error:
    assert "lines has no option 'ofset'; its options are: offset=integer (0)" in str(error)
else:
    raise AssertionError
"""


def run_with_plugin(folder, entry_points, script, *arguments):
    """Runs a script with an installed distribution of the module `plugin_lines`."""
    dist_info = folder / "plugin_lines-1.0.dist-info"
    dist_info.mkdir(exist_ok=True)
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-lines\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\n{entry_points}\n")
    (folder / "plugin_lines.py").write_text(PLUGIN_MODULE)
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_plugins_add_formats_by_an_entry_point(tmp_path):
    (tmp_path / "a.lines").write_text("1 2 3\n4 3 7\n")
    folder = tmp_path / "site"
    folder.mkdir()
    line = "lines = plugin_lines:LineSource"
    run = run_with_plugin(folder, line, PLUGIN_SCRIPT, tmp_path / "a.lines")
    assert not run.returncode, run.stderr
    line = "npz = plugin_lines:LineSource"
    run = run_with_plugin(folder, line, "import rlds.sources as s; s.formats()")
    assert (
        "ValueError: two formats have the name 'npz': rlds.formats.npz.source:NpzSource and "
        "plugin_lines:LineSource" in run.stderr
    )


def test_bugs_in_recognizes_of_a_plugin_are_shown(tmp_path):
    script = (
        "import plugin_lines, rlds.sources\n"
        "plugin_lines.LineSource.recognizes = classmethod(lambda cls, path: len(5))\n"
        f"rlds.sources.open({os.fspath(tmp_path)!r})\n"
    )
    run = run_with_plugin(tmp_path, "lines = plugin_lines:LineSource", script)
    assert "TypeError: object of type 'int' has no len()" in run.stderr
    assert "bug in `recognizes` of plugin_lines:LineSource, the format 'lines'" in run.stderr


def write_with_tfds(path):
    reward = tfds_files.Tensor(dtype=np.dtype(np.float32))
    steps = tfds_files.Dataset(feature=tfds_files.Features(features={"reward": reward}))
    features = tfds_files.Features(features={"steps": steps})
    with tfds_files.append_to(path, features, "toy") as writer:
        writer.add({"steps": {"reward": np.ones(3, np.float32)}})
    return path


@pytest.mark.parametrize(
    ("write", "format", "loaded"),
    [
        (lambda path: raw_npz.write_folder(path, raw_npz.sample()), "npz", "ogbench"),
        (lambda path: raw_robomimic.robomimic(path / "a.hdf5"), "robomimic", ""),
        (lambda path: raw_robomimic.robomimic(path / "a.hdf5").parent, "robomimic", ""),
        (lambda path: raw_d4rl.mujoco_v2(path / "a.hdf5"), "d4rl", ""),
        (lambda path: record(path, log=1) or path / "log", "envlogger", ""),
        (lambda path: write_with_tfds(path / "toy"), "tfds", "tfds"),
    ],
)
def test_formats_that_cannot_match_a_path_are_not_loaded(tmp_path, write, format, loaded):
    code = (
        "import sys, rlds.sources as s\n"
        f"assert s.format_of({os.fspath(write(tmp_path))!r}) == {format!r}\n"
        "loaded = {m.split('.')[2] for m in sys.modules if m.startswith('rlds.formats.')}\n"
        "print(*sorted(name for name in loaded if not name.startswith(('hdf5_', 'rows_'))))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == loaded.split()
