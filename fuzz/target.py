"""Fuzzes one target with atheris: `python fuzz/target.py NAME EXTENSION [options of libFuzzer]`.

`EXTENSION` is the compiled core to test, instead of the installed core: `run.py` builds it with
sanitizers.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[1]


class _Finder:
    """Finds the compiled core to test."""

    def __init__(self, extension: str) -> None:
        self._extension = extension

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "riegeli._compiled":
            return None
        return importlib.util.spec_from_file_location(name, self._extension)


def main() -> None:
    """Fuzzes until libFuzzer ends the process."""
    name, extension = sys.argv[1:3]
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
    sys.meta_path.insert(0, _Finder(extension))
    with atheris.instrument_imports(include=["riegeli"]):
        import fuzz_targets

        import riegeli
    if riegeli.IMPLEMENTATION != "cython":
        raise RuntimeError(f"{extension} was not loaded")
    atheris.Setup([sys.argv[0], *sys.argv[3:]], fuzz_targets.TARGETS[name])
    with fuzz_targets.low_limits():
        atheris.Fuzz()


if __name__ == "__main__":
    main()
