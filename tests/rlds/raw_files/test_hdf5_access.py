"""Malicious HDF5 files, and files that change while they are read."""

import multiprocessing
import os
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import raw_d4rl
from file_watch import Watch, not_opened

import rlds.sources
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_episodes import EpisodeGroup
from rlds.raw_files.untrusted import SourceChangedError, SourceError
from rlds.sources import reading
from tfds_builders.builder import convert
from tfds_builders.published import D4rlConfig, RldsD4rl

D4rlSource = rlds.sources.formats()["d4rl"].load()

ROWS = 12


def make_arrays():
    rows = raw_d4rl.without(raw_d4rl.transitions((4, 5, 3), 3, 2), "next_observations")
    return {**rows, "terminals": raw_d4rl.flags(ROWS, 3), "timeouts": raw_d4rl.flags(ROWS, 8)}


@pytest.fixture
def secret(tmp_path):
    """A file outside the dataset."""
    (tmp_path / "secret").mkdir()
    path = tmp_path / "secret" / "secret.hdf5"
    with h5py.File(path, "w") as file:
        file["rewards"] = np.full(ROWS, 666, np.float32)
        file["group/deep"] = np.full(ROWS, 666, np.float32)
    return path


def read_all(source):
    """Reads the fields, the description and all episodes of a source."""
    _ = source.fields, source.source_info
    return [
        episode
        for episode_range in reading.parts(source, "train")
        for episode in reading.episodes(source, "train", episode_range)
    ]


# --- Other files ---------------------------------------------------------------------------------


def add_external_storage(file, name, secret):
    file.create_dataset(
        name, (ROWS,), np.float32, external=[(os.fspath(secret), 0, h5py.h5f.UNLIMITED)]
    )


def add_external_link(file, name, secret):
    file[name] = h5py.ExternalLink(os.fspath(secret), "/rewards")


def add_external_group(file, name, secret):
    file[name] = h5py.ExternalLink(os.fspath(secret), "/group")


def add_view(file, name, secret):
    layout = h5py.VirtualLayout((ROWS,), np.float32)
    layout[...] = h5py.VirtualSource(os.fspath(secret), "rewards", (ROWS,))
    file.create_virtual_dataset(name, layout)


def add_view_of_itself(file, name, secret):
    layout = h5py.VirtualLayout((ROWS,), np.float32)
    layout[...] = h5py.VirtualSource(".", name, (ROWS,))
    file.create_virtual_dataset(name, layout)


def add_soft_link_out(file, name, secret):
    file["hidden"] = h5py.ExternalLink(os.fspath(secret), "/")
    file[name] = h5py.SoftLink("/hidden/rewards")


def add_soft_link_to_itself(file, name, secret):
    file[name] = h5py.SoftLink(f"/{name}")


ESCAPES = [
    *(add_external_storage, add_external_link, add_external_group, add_view, add_view_of_itself),
    *(add_soft_link_out, add_soft_link_to_itself),
]


def read_file(path, **options):
    """Reads all arrays of a file; returns them by path."""
    hdf5 = Hdf5File(path, **options)
    with hdf5.read() as file:
        return {path: item[()] for path, item in hdf5.items(file) if isinstance(item, h5py.Dataset)}


@pytest.mark.parametrize("name", ["rewards", "infos/x"])
@pytest.mark.parametrize("add_escape", ESCAPES, ids=lambda add_escape: add_escape.__name__)
def test_links_to_other_files_are_refused_unopened(tmp_path, secret, add_escape, name):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        add_escape(file, name, secret)
    with not_opened(secret), pytest.raises(SourceError, match=r"a\.hdf5, .*follow_links=True"):
        read_file(tmp_path / "a.hdf5")


@pytest.mark.parametrize("target", ["/infos/rewards", "rewards"])
def test_soft_links_to_arrays_of_the_same_file_are_followed(tmp_path, target):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["infos/rewards"] = np.arange(3)
        file["infos/again"] = h5py.SoftLink(target)
    assert read_file(tmp_path / "a.hdf5")["infos/again"].tolist() == [0, 1, 2]
    with h5py.File(tmp_path / "a.hdf5", "a") as file:
        file["infos/group"] = h5py.SoftLink("/infos")
    with pytest.raises(SourceError, match="field 'infos/group': a link to a group"):
        read_file(tmp_path / "a.hdf5")


def test_links_to_other_files_are_followed_only_on_request(tmp_path, secret):
    path = raw_d4rl.write(tmp_path / "a.hdf5", raw_d4rl.without(make_arrays(), "rewards"))
    with h5py.File(path, "a") as file:
        add_external_link(file, "rewards", secret)
        add_view(file, "infos/x", secret)
    watch = Watch(secret)
    source = D4rlSource(path, follow_links=True)
    episodes = read_all(source)
    assert watch.was_opened()
    watch.close()
    assert {float(episode.steps["reward"][0]) for episode in episodes} == {666.0}
    assert [os.fspath(path) for path in source.inputs()] == [os.fspath(path), os.fspath(secret)]
    config = D4rlConfig(name="linked")
    builder = RldsD4rl(path=path, config=config, data_dir=tmp_path, follow_links=True)
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 3


# --- Declared sizes beyond the file --------------------------------------------------------------


def add_groups_linked_twice(file):
    group = file.create_group("infos")
    for _ in range(40):
        child = group.create_group("a")
        group["b"] = child
        group = child


def add_deep_groups(file):
    group = file
    for _ in range(1500):
        group = group.create_group("g")


def add_loop(file):
    file["infos/again"] = file["/"]


def add_many_rows(file):
    shapes = {"observations": (3,), "actions": (2,), "rewards": (), "terminals": ()}
    for name, shape in shapes.items():
        del file[name]
        file.create_dataset(name, (2**40, *shape), np.float32, chunks=(1024, *shape))


def add_long_rows(file):
    file.create_dataset("infos/x", (ROWS, 2**35), np.float32, chunks=(1, 2**20))


def add_large_chunks(file):
    file.create_dataset("infos/x", (ROWS,), np.float32, maxshape=(None,), chunks=(2**29,))


def add_many_constants(file):
    for index in range(40):
        file.create_dataset(f"metadata/{index}", (60 << 20,), np.uint8, chunks=(1 << 20,))


BOMBS = {
    add_groups_linked_twice: "(paths, more than|in more than 32 groups)",
    add_deep_groups: "in more than 32 groups",
    add_loop: "in more than 32 groups",
    add_many_rows: "bytes are declared, but the .* bytes of the file",
    add_long_rows: "bytes are declared, but the .* bytes of the file",
    add_large_chunks: "bytes are declared, but the .* bytes of the file",
    add_many_constants: "bytes are declared, (more|but)",
}


@pytest.mark.parametrize("add_bomb", BOMBS, ids=lambda add_bomb: add_bomb.__name__)
def test_declared_sizes_beyond_the_file_are_refused(tmp_path, add_bomb):
    path = raw_d4rl.write(tmp_path / "a.hdf5", make_arrays())
    with h5py.File(path, "a") as file:
        add_bomb(file)
    with pytest.raises(SourceError, match=rf"a\.hdf5, .*{BOMBS[add_bomb]}"):
        read_file(path)


@pytest.mark.slow
def test_repeated_filters_may_exceed_the_deflate_ratio(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((1 << 25,))
        properties.set_deflate(9)
        properties.set_deflate(9)
        space = h5py.h5s.create_simple((1 << 25,))
        array = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_UINT8, space, properties)
        array.write(h5py.h5s.ALL, h5py.h5s.ALL, np.zeros(1 << 25, np.uint8))
    assert (tmp_path / "a.hdf5").stat().st_size < 10_000
    assert len(read_file(tmp_path / "a.hdf5")["x"]) == 1 << 25


def test_no_file_stays_open_after_an_error(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        add_long_rows(file)
    with pytest.raises(SourceError) as error:
        read_file(tmp_path / "a.hdf5")
    with h5py.File(tmp_path / "a.hdf5", "w"):  # Fails while the file is open.
        pass
    assert error.value.__traceback__ is not None


def test_text_is_read_without_the_rest_of_the_file(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.attrs["author"] = "somebody"
        file["texts"] = ["one", "two"]
        file["images"] = np.zeros((8 << 20,), np.uint8)

    def bytes_read():
        return int(Path("/proc/self/io").read_text().split()[1])

    before = bytes_read()
    hdf5 = Hdf5File(tmp_path / "a.hdf5")
    with hdf5.read() as file:
        assert EpisodeGroup(hdf5, file).attributes() == {"author": "somebody"}
        assert hdf5.array(file, "texts")[1] == b"two"
    assert bytes_read() - before < 1 << 20


# --- Unsupported objects --------------------------------------------------------------------------


UNSUPPORTED = {
    "a type": lambda file, name: file.create_group("t") and file.__setitem__(name, np.dtype("f4")),
    "no values": lambda file, name: file.__setitem__(name, h5py.Empty("f4")),
    "references": lambda file, name: file.create_dataset(name, (ROWS,), h5py.ref_dtype),
    "regions": lambda file, name: file.create_dataset(name, (ROWS,), h5py.regionref_dtype),
    "ragged": lambda file, name: file.create_dataset(name, (ROWS,), h5py.vlen_dtype(np.int8)),
    "compound": lambda file, name: file.create_dataset(name, (ROWS,), [("a", "f4"), ("b", "i4")]),
    "opaque": lambda file, name: file.create_dataset(
        name, (ROWS,), h5py.opaque_dtype(np.dtype("datetime64[ns]"))
    ),
    "group": lambda file, name: file.create_group(name),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_unsupported_objects_raise_an_error_that_names_the_field(tmp_path, kind):
    path = raw_d4rl.write(tmp_path / "a.hdf5", raw_d4rl.without(make_arrays(), "rewards"))
    with h5py.File(path, "a") as file:
        UNSUPPORTED[kind](file, "rewards")
    with pytest.raises(SourceError, match=r"a\.hdf5, field 'rewards"):
        read_all(D4rlSource(path))


@pytest.mark.parametrize("kind", [h5py.ref_dtype, h5py.regionref_dtype])
def test_unsupported_attributes_raise_an_error_that_names_them(tmp_path, kind):
    path = raw_d4rl.write(tmp_path / "a.hdf5", make_arrays())
    with h5py.File(path, "a") as file:
        file["rewards"].attrs.create("odd", np.empty(2, kind), dtype=kind)
    with pytest.raises(SourceError, match=r"a\.hdf5, field 'rewards@odd'"):
        D4rlSource(path)


# --- Open files -----------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return raw_d4rl.write(tmp_path / "a.hdf5", make_arrays())


def test_a_file_stays_open_while_its_episodes_are_read(path):
    """A file that replaces it meanwhile is never opened."""
    source = D4rlSource(path)
    watch = Watch(path)
    episodes = reading.episodes(source, "train", "0-3")
    next(episodes)
    assert watch.was_opened()
    descriptors = len(os.listdir("/proc/self/fd"))
    remaining = list(episodes)
    assert len(remaining) == 2
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1
    watch.close()


def test_values_beyond_the_end_of_the_file_are_refused(path):
    file = Hdf5File(path)
    with pytest.raises(SourceError, match=r"one.*'x': cut short: 8 b"), file.read("one"):
        file.read_at(path.stat().st_size - 8, np.zeros((2, 1)), "x")


@pytest.mark.parametrize("replace", [True, False], ids=["replaced", "written to"])
def test_file_changed_while_it_is_read_raises_an_error(tmp_path, path, replace):
    source = D4rlSource(path)
    changed_arrays = make_arrays()
    changed_arrays["rewards"] += 1
    if replace:
        os.replace(raw_d4rl.write(tmp_path / "b.hdf5", changed_arrays), path)
    else:
        raw_d4rl.write(path, changed_arrays)
    with pytest.raises(SourceChangedError, match=r"a\.hdf5: the file was changed or replaced"):
        list(reading.episodes(source, "train", "0-3"))
    with pytest.raises(SourceChangedError):
        convert(source, name="a", data_dir=tmp_path, skip_damaged=True)
    assert len(read_all(D4rlSource(path))) == 3


def _read_reward(source):
    return float(source.read("train", 0).steps["reward"][0])


def test_other_processes_open_the_file_themselves(path):
    source = D4rlSource(path)
    expected = _read_reward(source)
    with source._file:
        source._reader.sizes("rewards")
        assert _read_reward(pickle.loads(pickle.dumps(source))) == expected
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(_read_reward, [source] * 4) == [expected] * 4
        source._reader._blocks.clear()
        pid = os.fork()
        if not pid:  # The child inherits the open file.
            is_right = _read_reward(source) == expected and source._file._process == os.getpid()
            os._exit(not is_right)
        assert os.waitpid(pid, 0)[1] == 0


def test_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.hdf5")
    with (
        pytest.raises(SourceError, match="not a regular file"),
        Hdf5File(tmp_path / "pipe.hdf5").read(),
    ):
        pass
