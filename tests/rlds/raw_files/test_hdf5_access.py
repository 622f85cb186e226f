"""HDF5 files that somebody made with bad intentions, or that changed."""

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


def arrays():
    rows = raw_d4rl.without(raw_d4rl.transitions((4, 5, 3), 3, 2), "next_observations")
    return {**rows, "terminals": raw_d4rl.flags(ROWS, 3), "timeouts": raw_d4rl.flags(ROWS, 8)}


@pytest.fixture
def secret(tmp_path):
    """Another file of this machine."""
    (tmp_path / "secret").mkdir()
    path = tmp_path / "secret" / "secret.hdf5"
    with h5py.File(path, "w") as file:
        file["rewards"] = np.full(ROWS, 666, np.float32)
        file["group/deep"] = np.full(ROWS, 666, np.float32)
    return path


def read_all(source):
    """Reads all that a source has to say."""
    _ = source.fields, source.about
    return [
        episode
        for part in reading.parts(source, "train")
        for episode in reading.episodes(source, "train", part)
    ]


# --- Other files ---------------------------------------------------------------------------------


def external_storage(file, name, secret):
    file.create_dataset(
        name, (ROWS,), np.float32, external=[(os.fspath(secret), 0, h5py.h5f.UNLIMITED)]
    )


def external_link(file, name, secret):
    file[name] = h5py.ExternalLink(os.fspath(secret), "/rewards")


def external_group(file, name, secret):
    file[name] = h5py.ExternalLink(os.fspath(secret), "/group")


def view(file, name, secret):
    layout = h5py.VirtualLayout((ROWS,), np.float32)
    layout[...] = h5py.VirtualSource(os.fspath(secret), "rewards", (ROWS,))
    file.create_virtual_dataset(name, layout)


def view_of_itself(file, name, secret):
    layout = h5py.VirtualLayout((ROWS,), np.float32)
    layout[...] = h5py.VirtualSource(".", name, (ROWS,))
    file.create_virtual_dataset(name, layout)


def soft_link_out(file, name, secret):
    file["hidden"] = h5py.ExternalLink(os.fspath(secret), "/")
    file[name] = h5py.SoftLink("/hidden/rewards")


def soft_link_to_itself(file, name, secret):
    file[name] = h5py.SoftLink(f"/{name}")


WAYS_OUT = [
    *(external_storage, external_link, external_group, view, view_of_itself),
    *(soft_link_out, soft_link_to_itself),
]


def read_file(path, **options):
    """Reads all arrays of a file; returns them by path."""
    hdf5 = Hdf5File(path, **options)
    with hdf5.read() as file:
        return {path: item[()] for path, item in hdf5.items(file) if isinstance(item, h5py.Dataset)}


@pytest.mark.parametrize("name", ["rewards", "infos/x"])
@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way_out: way_out.__name__)
def test_no_other_file_is_read(tmp_path, secret, way_out, name):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        way_out(file, name, secret)
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
    path = raw_d4rl.write(tmp_path / "a.hdf5", raw_d4rl.without(arrays(), "rewards"))
    with h5py.File(path, "a") as file:
        external_link(file, "rewards", secret)
        view(file, "infos/x", secret)
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


# --- More than the bytes justify -----------------------------------------------------------------


def linked_twice(file):
    group = file.create_group("infos")
    for _ in range(40):
        child = group.create_group("a")
        group["b"] = child
        group = child


def deep(file):
    group = file
    for _ in range(1500):
        group = group.create_group("g")


def loop(file):
    file["infos/again"] = file["/"]


def many_rows(file):
    shapes = {"observations": (3,), "actions": (2,), "rewards": (), "terminals": ()}
    for name, shape in shapes.items():
        del file[name]
        file.create_dataset(name, (2**40, *shape), np.float32, chunks=(1024, *shape))


def long_rows(file):
    file.create_dataset("infos/x", (ROWS, 2**35), np.float32, chunks=(1, 2**20))


def large_chunks(file):
    file.create_dataset("infos/x", (ROWS,), np.float32, maxshape=(None,), chunks=(2**29,))


def many_constants(file):
    for index in range(40):
        file.create_dataset(f"metadata/{index}", (60 << 20,), np.uint8, chunks=(1 << 20,))


COSTS = {
    linked_twice: "(paths, more than|in more than 32 groups)",
    deep: "in more than 32 groups",
    loop: "in more than 32 groups",
    many_rows: "bytes are declared, but the .* bytes of the file",
    long_rows: "bytes are declared, but the .* bytes of the file",
    large_chunks: "bytes are declared, but the .* bytes of the file",
    many_constants: "bytes are declared, (more|but)",
}


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.__name__)
def test_small_files_cost_little(tmp_path, cost):
    path = raw_d4rl.write(tmp_path / "a.hdf5", arrays())
    with h5py.File(path, "a") as file:
        cost(file)
    with pytest.raises(SourceError, match=rf"a\.hdf5, .*{COSTS[cost]}"):
        read_file(path)


@pytest.mark.slow
def test_filters_may_make_more_of_a_byte_than_deflate(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((1 << 25,))
        plan.set_deflate(9)
        plan.set_deflate(9)
        space = h5py.h5s.create_simple((1 << 25,))
        array = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_UINT8, space, plan)
        array.write(h5py.h5s.ALL, h5py.h5s.ALL, np.zeros(1 << 25, np.uint8))
    assert (tmp_path / "a.hdf5").stat().st_size < 10_000
    assert len(read_file(tmp_path / "a.hdf5")["x"]) == 1 << 25


def test_no_file_stays_open_after_an_error(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        long_rows(file)
    with pytest.raises(SourceError) as error:
        read_file(tmp_path / "a.hdf5")
    with h5py.File(tmp_path / "a.hdf5", "w"):  # Not as long as it is open.
        pass
    assert error.value.__traceback__ is not None


def test_text_is_read_without_the_rest_of_the_file(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.attrs["made by"] = "somebody"
        file["texts"] = ["one", "two"]
        file["images"] = np.zeros((8 << 20,), np.uint8)

    def bytes_read():
        return int(Path("/proc/self/io").read_text().split()[1])

    before = bytes_read()
    hdf5 = Hdf5File(tmp_path / "a.hdf5")
    with hdf5.read() as file:
        assert EpisodeGroup(hdf5, file).attributes() == {"made by": "somebody"}
        assert hdf5.array(file, "texts")[1] == b"two"
    assert bytes_read() - before < 1 << 20


# --- What nobody expects in a file ----------------------------------------------------------------


ODD = {
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


@pytest.mark.parametrize("odd", ODD)
def test_odd_objects_raise_an_error_that_names_the_field(tmp_path, odd):
    path = raw_d4rl.write(tmp_path / "a.hdf5", raw_d4rl.without(arrays(), "rewards"))
    with h5py.File(path, "a") as file:
        ODD[odd](file, "rewards")
    with pytest.raises(SourceError, match=r"a\.hdf5, field 'rewards"):
        read_all(D4rlSource(path))


@pytest.mark.parametrize("kind", [h5py.ref_dtype, h5py.regionref_dtype])
def test_odd_attributes_raise_an_error_that_names_them(tmp_path, kind):
    path = raw_d4rl.write(tmp_path / "a.hdf5", arrays())
    with h5py.File(path, "a") as file:
        file["rewards"].attrs.create("odd", np.empty(2, kind), dtype=kind)
    with pytest.raises(SourceError, match=r"a\.hdf5, field 'rewards@odd'"):
        D4rlSource(path)


# --- One file -------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return raw_d4rl.write(tmp_path / "a.hdf5", arrays())


def test_a_file_stays_open_while_its_episodes_are_read(path):
    """A file that takes its place meanwhile is not read: here, none could be."""
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
def test_a_file_replaced_while_it_is_read_is_noticed(tmp_path, path, replace):
    source = D4rlSource(path)
    other = arrays()
    other["rewards"] += 1
    if replace:
        os.replace(raw_d4rl.write(tmp_path / "b.hdf5", other), path)
    else:
        raw_d4rl.write(path, other)
    with pytest.raises(SourceChangedError, match=r"a\.hdf5: the file was changed or replaced"):
        list(reading.episodes(source, "train", "0-3"))
    with pytest.raises(SourceChangedError):
        convert(source, name="a", data_dir=tmp_path, skip_damaged=True)
    assert len(read_all(D4rlSource(path))) == 3


def _first_reward(source):
    return float(source.read("train", 0).steps["reward"][0])


def test_other_processes_open_it_themselves(path):
    source = D4rlSource(path)
    expected = _first_reward(source)
    with source._file:
        source._reader.sizes("rewards")
        assert _first_reward(pickle.loads(pickle.dumps(source))) == expected
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(_first_reward, [source] * 4) == [expected] * 4
        source._reader._blocks.clear()
        pid = os.fork()
        if not pid:  # The child has what its parent has open.
            is_right = _first_reward(source) == expected and source._file._process == os.getpid()
            os._exit(not is_right)
        assert os.waitpid(pid, 0)[1] == 0


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.hdf5")
    with (
        pytest.raises(SourceError, match="not a regular file"),
        Hdf5File(tmp_path / "pipe.hdf5").read(),
    ):
        pass
