"""Builds the compiled core of `riegeli`; all other settings are in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

(core,) = cythonize(
    [Extension("riegeli._compiled", ["riegeli/_compiled.pyx"])],
    compiler_directives={"language_level": "3"},
)
# Without a C compiler the package installs too: `riegeli` then warns that it runs in plain Python.
# As at run time, RIEGELI_IMPLEMENTATION=cython insists on the compiled core.
core.optional = os.environ.get("RIEGELI_IMPLEMENTATION") != "cython"

setup(ext_modules=[core])
