"""Errors and limits of untrusted data."""

import errno
import os
import pickle

import pytest

from rlds.raw_files.untrusted import (
    SourceChangedError,
    check_declared,
    check_is_file,
    source_errors,
)
from rlds.sources.source import SourceError, require_files
from rlds_ecosystem.model.nests import nest


def test_names_nested_too_deep_for_recursion_are_refused():
    with pytest.raises(ValueError, match=r"'d/d/d.* has more than 50 components"):
        nest({"/".join("d" * 500): 0})


def test_long_error_message_is_shortened():
    error = SourceError("w" * 10**6, file="a.raw", field="f" * 10**6)
    assert len(str(error)) < 3000
    assert error.field == "f" * 10**6


def test_errors_survive_pickling():
    for kind in (SourceError, SourceChangedError):
        error = kind("torn", file="a.raw", episode="b", row=3, field="c/d")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == str(error) == "a.raw, episode b, row 3, field 'c/d': torn"
        assert str(kind(f"Caught {error}")) == f"Caught {error}"  # As PyTorch wraps errors.


def test_an_inner_source_error_keeps_its_details():
    inner = SourceError("torn", file="inner", field="x")
    with pytest.raises(SourceError) as caught, source_errors("outer", episode=1, field="y"):
        raise inner
    assert caught.value is inner
    assert str(inner) == "inner, episode 1, field 'x': torn"


def test_file_name_is_computed_only_if_needed():
    def name():
        raise AssertionError("the name is not needed")

    for error in (SourceError("torn", file="inner"), PermissionError(errno.EACCES, "denied")):
        with pytest.raises(type(error)) as caught, source_errors(name):
            raise error
        assert caught.value is error
    with pytest.raises(SourceError, match="outer: cannot be read"), source_errors(lambda: "outer"):
        raise KeyError


def test_declared_size_beyond_the_deflate_ratio_is_refused():
    check_declared(1000 * 1032, 1000, file="a.hdf5")
    with pytest.raises(SourceError, match=r"a\.hdf5, field 'x': 8,000,000,000 bytes are declared"):
        check_declared(8 * 10**9, 1000, file="a.hdf5", field="x")


def test_pipes_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="pipe: not a regular file"):
        require_files(tmp_path / "pipe")
    with pytest.raises(SourceError, match="not a regular file"):
        require_files("/dev/zero")
    for name in ("n" * 300, "a\0b"):
        with pytest.raises(SourceError, match="cannot be read"):
            check_is_file(tmp_path / name)


def test_programming_errors_are_not_reported_as_damage():
    def read(*, reward):
        del reward

    class Header:
        def __init__(self, size):
            del size

    for mistake, error in [(lambda: undefined, NameError), (lambda: read(), TypeError)]:  # noqa: F821
        with pytest.raises(error) as raised:
            with source_errors("a.csv", episode=3):
                mistake()
        assert type(raised.value) is error
    # A damaged file may lack arguments or keys, or hold other types.
    for damage in (lambda: Header(**{}), lambda: {}["size"], lambda: None + 1):
        with pytest.raises(SourceError, match="cannot be read"):
            with source_errors("a.csv", episode=3):
                damage()
