"""Problems of an installation: conflicting distributions, or a missing compiled core."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

__all__ = [
    "choose_implementation",
    "explain_uncompiled",
    "other_distributions",
    "warn_of_other_distributions",
]

# Distributions with packages of the same names as this one.
_FOREIGN_PACKAGES = re.compile(r"(envlogger|riegeli|rlds)-([^-]+)\.dist-info", re.IGNORECASE)


def other_distributions(directories: Iterable[str]) -> list[tuple[str, str, str]]:
    """Finds other installed distributions with packages of the same names as this project.

    The last installed distribution has overwritten files of this project. Uninstalling either of
    them removes files of the remaining distribution.

    Args:
      directories: The folders to search, such as `sys.path`.

    Returns:
      The name, the version and the directory of each distribution.
    """
    distributions = []
    for directory in directories:
        try:
            names = os.listdir(directory or ".")
        except OSError:  # A path may be an archive, or missing.
            continue
        matches = filter(None, map(_FOREIGN_PACKAGES.fullmatch, names))
        distributions += [(match[1], match[2], directory) for match in matches]
    return distributions


def warn_of_other_distributions(directories: Iterable[str]) -> None:
    """Warns once for all distributions that `other_distributions` finds."""
    distributions = other_distributions(directories)
    if not distributions:
        return
    names = ", ".join(f"{name} {version}" for name, version, _ in distributions)
    foreign_names = " ".join(sorted({name for name, _, _ in distributions}))
    warnings.warn(
        f"{names} in {distributions[0][2]} and rlds-ecosystem have packages with the same names, "
        "and overwrite each other's files. To keep rlds-ecosystem, run pip uninstall "
        f"{foreign_names}, and then reinstall it with pip install --force-reinstall --no-deps: "
        "uninstalling removes files of both.",
        RuntimeWarning,
        stacklevel=3,
    )


def choose_implementation(package: str, *, slowdown: str) -> str:
    """Chooses between the compiled core of a package and its slower implementation in Python.

    `RIEGELI_IMPLEMENTATION` in the environment, `python` or `cython`, decides. Without the
    variable, the compiled core is used if it was built.

    Args:
      package: The name of the package, whose compiled functions are in the module `_compiled`.
      slowdown: The slowdown of Python, for the warning.

    Returns:
      "cython" or "python".
    """
    requested = os.environ.get("RIEGELI_IMPLEMENTATION", "")
    if requested not in ("", "cython", "python"):
        raise ImportError(f"RIEGELI_IMPLEMENTATION is {requested!r}, not 'cython' or 'python'")
    if requested == "python":
        return requested
    try:
        importlib.import_module(f"{package}._compiled")
    except ImportError as e:
        if requested == "cython":
            raise
        reason = explain_uncompiled(Path(__file__).parents[1], package, error=e)
        warnings.warn(
            f"{package} runs in plain Python, {slowdown}: {reason}", RuntimeWarning, stacklevel=3
        )
        return "python"
    return "cython"


def explain_uncompiled(root: Path, package: str, *, error: ImportError) -> str:
    """Explains why a package has no compiled core, with the remedy.

    Args:
      root: The directory of the packages.
      package: The name of the package.
      error: The error of importing the core.
    """
    checkout = root if (root / "setup.py").exists() else None
    command = f"pip install --editable {checkout}" if checkout else _REINSTALL_COMMAND
    built_files = [path.name for path in _compiled_files(root, package)]
    if any(f"_compiled{suffix}" in built_files for suffix in EXTENSION_SUFFIXES):
        return f"its compiled core does not load ({error}). Reinstall it: {command}"
    if built_files:
        return (
            f"its compiled core is for another Python ({built_files[0]}; this one needs "
            f"{EXTENSION_SUFFIXES[0]}). Install it with this Python: {command}"
        )
    if checkout:
        for other in map(Path, filter(None, sys.path)):
            if other != root and _compiled_files(other, package):
                return (
                    f"the checkout {checkout} is not compiled, and hides the installed package in "
                    f"{other}. Start Python in another directory, or compile it: {command}"
                )
    missing_tools = _missing_build_tools()
    subject = "the checkout" if checkout else "the installed package"
    if missing_tools:
        return f"{subject} is not compiled, and {missing_tools}, and then: {command}"
    return f"{subject} is not compiled, although that is possible: {command}"


_REINSTALL_COMMAND = "pip install --force-reinstall --no-deps ., in the checkout it came from"


def _compiled_files(root: Path, package: str) -> list[Path]:
    files = sorted(root.joinpath(*package.split(".")).glob("_compiled.*"))
    return [path for path in files if path.suffix in (".so", ".pyd")]


def _missing_build_tools() -> str | None:
    import shlex
    import shutil
    import sysconfig

    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None and shutil.which("cc") is None:
        return f"there is no C compiler ({compiler}). Install one"
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return (
            f"the headers of Python are missing ({header}). Install them (Debian, Ubuntu: "
            "python3-dev)"
        )
    return None
