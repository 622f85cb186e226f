"""The tests run the compiled hot functions, unless the plain Python ones are chosen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from riegeli_internals import core, pure

import riegeli

HOT_FUNCTIONS = [
    "count_followers",
    "encode_transitions",
    "encode_varints",
    "highway_hash64",
    "interleave_block_headers",
    "join",
    "read_varint",
    "read_varints",
    "run_machine",
    "split_records",
    "split_fields",
    "strip_block_headers",
]

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


def test_the_suite_runs_the_chosen_implementation():
    assert os.environ.get("RIEGELI_IMPLEMENTATION", "cython") == riegeli.IMPLEMENTATION
    module = {"cython": compiled, "python": pure}[riegeli.IMPLEMENTATION]
    for name in HOT_FUNCTIONS:
        assert getattr(core, name) is getattr(module, name)


def test_the_list_of_hot_functions_is_complete():
    assert {*core.__all__} == {*HOT_FUNCTIONS, "IMPLEMENTATION"}
    for name in HOT_FUNCTIONS:
        assert getattr(compiled, name) is not getattr(pure, name)


def test_the_compiled_core_is_built_from_the_sources_under_test():
    source = Path(riegeli.__file__).with_name("_compiled.pyx")
    library = Path(compiled.__file__)
    assert library.parent == source.parent
    assert library.stat().st_mtime >= source.stat().st_mtime, "run `make test`, which rebuilds it"


def test_plain_python_can_be_chosen_without_a_warning():
    assert (
        _run(
            "import warnings; warnings.simplefilter('error');" + PRINT,
            RIEGELI_IMPLEMENTATION="python",
        ).stdout
        == "python\n"
    )


def test_a_missing_core_gives_one_warning_with_advice():
    process = _run(HIDE + PRINT, RIEGELI_IMPLEMENTATION="")
    assert process.stdout == "python\n"
    assert process.stderr.count("RuntimeWarning") == 1
    assert "its compiled core does not load (import of riegeli._compiled halted" in process.stderr
    assert "pip install" in process.stderr


def test_choosing_a_missing_core_is_an_error():
    assert "ModuleNotFoundError" in _run(HIDE + PRINT, RIEGELI_IMPLEMENTATION="cython").stderr


def test_an_unknown_implementation_is_refused():
    process = _run("import riegeli", RIEGELI_IMPLEMENTATION="fortran")
    assert "RIEGELI_IMPLEMENTATION is 'fortran'" in process.stderr
