"""The door that raw data goes through: what becomes of errors, and of what is too much."""

import dataclasses
import errno
import os
import pickle
import struct
import zipfile

import pytest
from toy_source import ToySource

from envlogger.errors import StorageError
from rlds.raw_files.untrusted import Budget, SourceChangedError, check_is_file, source_errors
from rlds.sources.source import DamagedEpisode, Source, SourceError, require_files
from rlds_ecosystem.nests import nest
from tfds_builders.builder import convert


class Failing(ToySource):
    """The third episode raises whatever it is given."""

    error: BaseException = Exception()

    def read(self, split, index):
        if index == 2:
            raise self.error
        return super().read(split, index)


class FailingStream(ToySource):
    """Its parts are read in order: after an error nothing can be read."""

    def episodes(self, split, part, after=None):
        for episode in super().episodes(split, part, after):
            if episode.key.endswith(":2"):
                raise struct.error("no such bytes")
            yield episode


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "toy.raw"
    path.write_text("toy")
    return path


def failing(raw, error):
    source = Failing(raw)
    source.error = error
    return source


# What no library should raise, but does, and bugs in a source.
ERRORS = [
    AttributeError("'NoneType' object has no attribute 'x'"),
    RecursionError(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    OSError("Can't open file (bad\n superblock)"),  # As HDF5 does: the system said nothing.
    OSError(errno.EINVAL, "Invalid argument"),
    AssertionError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_a_library_is_damage_of_an_episode(raw, error):
    episodes = list(failing(raw, error).episodes("train", "0-4"))
    assert [type(episode) is DamagedEpisode for episode in episodes] == [False, False, True, False]
    damage = episodes[2].error
    assert damage.__cause__ is error
    expected = f"{raw}, episode toy.raw:2: cannot be read: {type(error).__name__}"
    assert str(damage).startswith(expected)
    assert "\n" not in str(damage)


def test_an_error_of_a_library_is_left_out(raw, tmp_path):
    with pytest.raises(SourceError, match=r"episode toy\.raw:2: cannot be read: KeyError: 'x'"):
        convert(failing(raw, KeyError("x")), name="toy", data_dir=tmp_path)
    with pytest.warns(UserWarning, match="1 damaged episodes"):
        made = convert(
            failing(raw, KeyError("x")), name="toy", data_dir=tmp_path, skip_damaged=True
        )
    assert made.info.splits["train"].num_examples == 9


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EIO, "Input/output error"),
        StorageError("no space"),
        MemoryError(),
        ImportError("no h5py"),
        SourceChangedError("it is another one", file="raw"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_about_the_data_leaves_nothing_out(raw, tmp_path, error):
    with pytest.raises(type(error)) as caught:
        convert(failing(raw, error), name="toy", data_dir=tmp_path, skip_damaged=True)
    assert caught.value is error


def test_a_generator_that_raises_ends_its_part(raw):
    *_, damaged = FailingStream(raw).episodes("train", "0-4")
    assert damaged.ends_part
    assert "episode after 'toy.raw:1': cannot be read: error: no such" in str(damaged.error)


def test_an_episode_that_cannot_be_encoded(raw, tmp_path):
    class Odd(ToySource):
        def read(self, split, index):
            return dataclasses.replace(super().read(split, index), steps=None)

    with pytest.raises(SourceError, match=r"episode toy\.raw:0: cannot be read: TypeError"):
        convert(Odd(raw), name="toy", data_dir=tmp_path)


def test_every_method_that_reads_goes_through_the_door(raw):
    class Broken(Source):
        def _fail(self, *args):
            raise IndexError("9")

        inputs = _fail  # Which is asked what to call the files.

    with_split = ("parts", "totals", "shard_lengths")
    for name in ("step_fields", "episode_fields", "metadata", "kept_aside", *with_split):
        broken = type("Broken", (Broken,), {name: lambda self, *args: self._fail()})
        broken.__abstractmethods__ = frozenset()
        with pytest.raises(SourceError, match="the source Broken: cannot be read: IndexError: 9"):
            getattr(broken(), name)(*[""] * (name in with_split))


@pytest.mark.parametrize(
    "error", [IndexError("9"), RecursionError(), zipfile.BadZipFile(), OSError(errno.ELOOP, "loop")]
)
def test_what_the_data_does_to_a_new_source_is_a_source_error(raw, error):
    class Broken(ToySource):
        def __init__(self, path):
            raise error

        def faults(self, split):
            raise error
            yield

    with pytest.raises(SourceError, match=rf"{raw}: cannot be read: {type(error).__name__}"):
        Broken(raw)
    with pytest.raises(SourceError, match=r"cannot be read"):
        list(Broken.__new__(Broken).faults("train"))


@pytest.mark.parametrize("error", [KeyError("no split"), TypeError("x"), ValueError("y")])
def test_what_an_argument_does_to_a_new_source_stays(raw, error):
    class Wrong(ToySource):
        def __init__(self, path):
            raise error

    with pytest.raises(type(error)) as caught:
        Wrong(raw)
    assert caught.value is error


def test_names_that_are_too_deep_for_recursion():
    with pytest.raises(ValueError, match=r"'d/d/d.* has more than 50 parts"):
        nest({"/".join("d" * 500): 0})


def test_an_error_is_of_a_length_that_can_be_read():
    error = SourceError("w" * 10**6, file="a.raw", field="f" * 10**6)
    assert len(str(error)) < 3000
    assert error.field == "f" * 10**6


def test_errors_cross_processes():
    for kind in (SourceError, SourceChangedError):
        error = kind("torn", file="a.raw", episode="b", row=3, field="c/d")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == str(error) == "a.raw, episode b, row 3, field 'c/d': torn"


def test_what_knows_more_is_kept():
    inner = SourceError("torn", file="inner", field="x")
    with pytest.raises(SourceError) as caught, source_errors("outer", episode=1, field="y"):
        raise inner
    assert caught.value is inner
    assert str(inner) == "inner, episode 1, field 'x': torn"


def test_the_file_is_found_out_only_if_it_is_needed():
    def name():
        raise AssertionError("nobody asked")

    for error in (SourceError("torn", file="inner"), PermissionError(errno.EACCES, "denied")):
        with pytest.raises(type(error)) as caught, source_errors(name):
            raise error
        assert caught.value is error
    with pytest.raises(SourceError, match="outer: cannot be read"), source_errors(lambda: "outer"):
        raise KeyError


def test_paths_to_objects_need_bytes():
    budget = Budget("a.hdf5", 1600, max_depth=3)
    for _ in range(101):
        budget.enter(3)
    with pytest.raises(SourceError, match="102 paths, more than 1,600 bytes have room for"):
        budget.enter(1, "infos")
    with pytest.raises(SourceError, match="field 'infos': in more than 3 groups"):
        Budget("a.hdf5", 1600, max_depth=3).enter(4, "infos")


def test_a_limit_of_ones_own():
    budget = Budget("a.hdf5", 1 << 20, max_bytes=100)
    budget.take(100)
    with pytest.raises(SourceError, match="101 bytes are declared, more than the 100 that there"):
        budget.take(1)


def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="pipe: no regular file"):
        require_files(tmp_path / "pipe")
    with pytest.raises(SourceError, match="no regular file"):
        require_files("/dev/zero")
    for name in ("n" * 300, "a\0b"):
        with pytest.raises(SourceError, match="cannot be read"):
            check_is_file(tmp_path / name)
