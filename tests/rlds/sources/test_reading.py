"""Errors of raw data: the layer that all sources are read through."""

import dataclasses
import errno
import struct
import zipfile

import pytest
from toy_source import ToySource

from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import Episodes, reading
from rlds.sources.source import DamagedEpisode, SourceError, Stream
from rlds_ecosystem.model.errors import StorageError
from tfds_builders.builder import convert


class FailingSource(ToySource):
    """A source whose third episode raises `error`."""

    error: BaseException = Exception()

    def read(self, split, index, fields=None, rows=slice(None)):
        if index == 2:
            raise self.error
        return super().read(split, index)


class FailingStream(Stream):
    """A stream that cannot be read after an error."""

    fields = ToySource.fields

    def inputs(self):
        return []

    def parts(self, split):
        return ["part"]

    def episodes(self, split, part, after=None):
        yield ToySource("toy.raw").read(split, 1)
        raise struct.error("no such bytes")


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "toy.raw"
    path.write_text("toy")
    return path


def make_failing(raw, error):
    source = FailingSource(raw)
    source.error = error
    return source


# Errors that libraries raise for damaged data.
ERRORS = [
    RecursionError(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    OSError("Can't open file (bad\n superblock)"),  # Like HDF5, without a number.
    OSError(errno.EINVAL, "Invalid argument"),
    AssertionError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_library_errors_are_damage_of_an_episode(raw, error):
    episodes = list(reading.episodes(make_failing(raw, error), "train", "0-4"))
    assert [type(episode) is DamagedEpisode for episode in episodes] == [False, False, True, False]
    damage = episodes[2].error
    assert damage.__cause__ is error
    words = {UnicodeDecodeError: "not valid UTF-8"}.get(type(error), type(error).__name__)
    expected = f"{raw}, episode toy.raw:2: cannot be read: {words}"
    assert str(damage).startswith(expected)
    assert "\n" not in str(damage)


def test_episodes_with_library_errors_are_left_out_on_request(raw, tmp_path):
    with pytest.raises(SourceError, match=r"episode toy\.raw:2: cannot be read: KeyError: 'x'"):
        convert(make_failing(raw, KeyError("x")), name="toy", data_dir=tmp_path)
    with pytest.warns(UserWarning, match="1 episode is damaged"):
        builder = convert(
            make_failing(raw, KeyError("x")), name="toy", data_dir=tmp_path, skip_damaged=True
        )
    assert builder.info.splits["train"].num_examples == 9


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EIO, "Input/output error"),
        StorageError("no space"),
        MemoryError(),
        ImportError("no h5py"),
        AttributeError("'NoneType' object has no attribute 'x'"),
        TypeError("unsupported operand type(s) for +: 'int' and 'NoneType'"),
        NameError("name 'x' is not defined"),
        SourceChangedError("it is another one", file="raw"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_system_errors_are_raised_even_if_damage_is_skipped(raw, tmp_path, error):
    with pytest.raises(type(error)) as caught:
        convert(make_failing(raw, error), name="toy", data_dir=tmp_path, skip_damaged=True)
    assert caught.value is error


def test_a_generator_that_raises_ends_its_part():
    *_, damaged = reading.episodes(FailingStream(), "train", "part")
    assert damaged.ends_part
    assert "episode after 'toy.raw:1': cannot be read: error: no such" in str(damaged.error)


def test_error_names_episode_that_cannot_be_encoded(raw, tmp_path):
    class Odd(ToySource):
        def read(self, split, index, fields=None, rows=slice(None)):
            return dataclasses.replace(super().read(split, index), steps=None)

    with pytest.raises(SourceError, match=r"episode toy\.raw:0: cannot be read: TypeError"):
        convert(Odd(raw), name="toy", data_dir=tmp_path)


def test_errors_while_describing_data_become_source_errors(raw):
    class Broken(ToySource):
        @property
        def fields(self):
            raise IndexError("9")

    class Undescribed(ToySource):
        @property
        def source_info(self):
            raise IndexError("9")

    with pytest.raises(SourceError, match=rf"{raw}: cannot be read: IndexError: 9"):
        Episodes(Broken(raw))
    with pytest.raises(SourceError, match=rf"{raw}: cannot be read: IndexError: 9"):
        _ = Episodes(Undescribed(raw)).metadata


@pytest.mark.parametrize(
    "error", [IndexError("9"), RecursionError(), zipfile.BadZipFile(), OSError(errno.ELOOP, "loop")]
)
def test_errors_of_data_in_a_new_source_become_source_errors(raw, error):
    class Broken(ToySource):
        def __init__(self, path):
            raise error

    with pytest.raises(SourceError, match=rf"{raw}: cannot be read: {type(error).__name__}"):
        reading.open_source(Broken, raw)


@pytest.mark.parametrize("error", [KeyError("no split"), TypeError("x"), ValueError("y")])
def test_errors_of_arguments_of_a_new_source_stay(raw, error):
    class Wrong(ToySource):
        def __init__(self, path):
            raise error

    with pytest.raises(type(error)) as caught:
        reading.open_source(Wrong, raw)
    assert caught.value is error
