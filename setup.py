"""Builds the compiled core of `riegeli`; all other settings are in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [Extension("riegeli._compiled", ["riegeli/_compiled.pyx"])],
        compiler_directives={"language_level": "3"},
    )
)
