"""The compiled hot functions are what is tested, and equal their plain Python twins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import riegeli
from riegeli import _core, _pure

PRINT = "import riegeli; print(riegeli.IMPLEMENTATION)"
HIDE = "import sys; sys.modules['riegeli._compiled'] = None;"

compiled = pytest.importorskip("riegeli._compiled")


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_suite_runs_the_implementation_it_was_asked_for():
    assert os.environ.get("RIEGELI_IMPLEMENTATION", "cython") == riegeli.IMPLEMENTATION
    module = {"cython": compiled, "python": _pure}[riegeli.IMPLEMENTATION]
    assert _core.highway_hash64 is module.highway_hash64
    assert _core.encode_varints is module.encode_varints
    assert _core.split_records is module.split_records


def test_the_compiled_core_is_built_from_the_sources_under_test():
    source = Path(riegeli.__file__).with_name("_compiled.pyx")
    built = Path(compiled.__file__)
    assert built.parent == source.parent
    assert built.stat().st_mtime >= source.stat().st_mtime, "run `make test`, which rebuilds it"


def test_plain_python_can_be_asked_for_without_a_warning():
    assert (
        _run(
            "import warnings; warnings.simplefilter('error');" + PRINT,
            RIEGELI_IMPLEMENTATION="python",
        ).stdout
        == "python\n"
    )


def test_a_missing_core_warns_once_and_says_what_to_do():
    run = _run(HIDE + PRINT, RIEGELI_IMPLEMENTATION="")
    assert run.stdout == "python\n"
    assert run.stderr.count("RuntimeWarning") == 1
    assert "pip install" in run.stderr


def test_insisting_on_a_missing_core_fails():
    assert "ModuleNotFoundError" in _run(HIDE + PRINT, RIEGELI_IMPLEMENTATION="cython").stderr


def test_an_unknown_implementation_is_refused():
    run = _run("import riegeli", RIEGELI_IMPLEMENTATION="fortran")
    assert "RIEGELI_IMPLEMENTATION is 'fortran'" in run.stderr


@given(st.binary(max_size=200))
def test_twins_hash_equally(data):
    assert compiled.highway_hash64(data) == _pure.highway_hash64(data)


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_twins_encode_varints_equally(values):
    assert compiled.encode_varints(values) == _pure.encode_varints(values)


def _outcome(function, *args):
    try:
        return function(*args)
    except ValueError as e:
        return str(e)


@given(st.binary(max_size=30), st.integers(0, 40), st.binary(max_size=60))
def test_twins_split_or_refuse_equally(sizes, num_records, values):
    args = (sizes, num_records, values)
    assert _outcome(compiled.split_records, *args) == _outcome(_pure.split_records, *args)


@given(st.lists(st.binary(max_size=40)))
def test_twins_split_what_was_joined(records):
    for twin in (compiled, _pure):
        sizes = twin.encode_varints(map(len, records))
        assert twin.split_records(sizes, len(records), b"".join(records)) == records
