"""Builds the compiled cores of the packages and the text of the package page.

All other settings are in pyproject.toml.
"""

import os
import re
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CompileError, LinkError

ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# The packages that have a core.
COMPILED = ("riegeli", "rlds.feeds")

# A core uses the stable ABI of Python 3.11, the first that has buffers: one wheel for this Python
# and all later ones. Python without the interpreter lock does not load such modules.
ABI = (3, 11)
HAS_STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")

# What to do where nothing can be compiled. pip shows it, as the build fails.
WITHOUT_COMPILER = """
error: the compiled core of {0} was not built: {1}
error: it needs a C compiler and the headers of Python (Debian, Ubuntu: gcc and python3-dev).
error: Install them, or install a wheel, which needs neither.
error: RIEGELI_IMPLEMENTATION=python pip install ... installs the slow version in Python.
"""


class Build(build_ext):
    """Builds the compiled cores, or says what to do."""

    def build_extension(self, ext: Extension) -> None:
        """Builds one of them."""
        try:
            super().build_extension(ext)
        except (BaseError, CompileError, LinkError, OSError) as error:
            raise SystemExit(WITHOUT_COMPILER.format(ext.name, error)) from error


def extensions() -> list[Extension]:
    """Returns the compiled cores; none if the environment asks for plain Python, as at run time."""
    if os.environ.get("RIEGELI_IMPLEMENTATION") == "python":
        return []
    limited: dict[str, Any] = {}
    if HAS_STABLE_ABI:
        version = f"0x{ABI[0]:02X}{ABI[1]:02X}0000"
        macros = [("CYTHON_LIMITED_API", "1"), ("Py_LIMITED_API", version)]
        limited = {"py_limited_api": True, "define_macros": macros}
    cores: list[Extension] = cythonize(
        [
            Extension(
                f"{package}._compiled", [f"{package.replace('.', '/')}/_compiled.pyx"], **limited
            )
            for package in COMPILED
        ],
        compiler_directives={"language_level": "3"},
    )
    return cores


def page(text: str, source: str, version: str) -> str:
    """Makes the links of the README absolute: a package page is alone.

    Args:
      text: The README.
      source: The address of the repository.
      version: The version whose files the links lead to; those of a development version lead to the
        main branch.
    """
    ref = "main" if "dev" in version else f"v{version}"
    raw = source.replace("://github.com/", "://raw.githubusercontent.com/")

    def absolute(link: re.Match[str]) -> str:
        if link[1] is None:  # A block of code.
            return link[0]
        shown = Path(link[1]).suffix in {".gif", ".jpg", ".png", ".svg"}
        return f"]({f'{raw}/{ref}' if shown else f'{source}/blob/{ref}'}/{link[1]})"

    return re.sub(r"```.*?```|\]\((?!\w+:|#)([^)\s]+)\)", absolute, text, flags=re.DOTALL)


if __name__ == "__main__":
    cores = extensions()
    setup(
        ext_modules=cores,
        cmdclass={"build_ext": Build},
        options={"bdist_wheel": {"py_limited_api": f"cp{ABI[0]}{ABI[1]}"}}
        if cores and HAS_STABLE_ABI
        else {},
        long_description=page(
            (ROOT / "README.md").read_text(encoding="utf-8"),
            PROJECT["urls"]["Source"],
            PROJECT["version"],
        ),
        long_description_content_type="text/markdown",
    )
