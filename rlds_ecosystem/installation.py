"""What is wrong with an installation, in words that say what to do."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

__all__ = ["other_distributions", "warn_of_other_distributions", "why_not_compiled"]

# Distributions that have packages of the same names as this one. (That was its own name once, too.)
_OTHERS = re.compile(r"(envlogger|riegeli|rlds)-([^-]+)\.dist-info", re.IGNORECASE)


def other_distributions(directories: Iterable[str]) -> list[tuple[str, str, str]]:
    """Finds installed distributions whose packages have the names of those here.

    Whichever was installed last has overwritten files of the other, and whichever is uninstalled
    first takes files of the other along.

    Args:
      directories: Where to look, such as `sys.path`.

    Returns:
      The name, the version and the directory of each.
    """
    found = []
    for directory in directories:
        try:
            names = os.listdir(directory or ".")
        except OSError:  # Archives, and directories that are not there.
            continue
        matches = filter(None, map(_OTHERS.fullmatch, names))
        found += [(match[1], match[2], directory) for match in matches]
    return found


def warn_of_other_distributions(directories: Iterable[str]) -> None:
    """Warns once for all distributions that `other_distributions` finds."""
    others = other_distributions(directories)
    if not others:
        return
    names = ", ".join(f"{name} {version}" for name, version, _ in others)
    uninstalled = " ".join(sorted({name for name, _, _ in others}))
    warnings.warn(
        f"{names} in {others[0][2]} and rlds-ecosystem have packages of the same names, and "
        "overwrite each other's files. Keep one of them: for rlds-ecosystem, pip uninstall "
        f"{uninstalled}, and then install it anew with pip install --force-reinstall --no-deps, "
        "as uninstalling takes files of both.",
        RuntimeWarning,
        stacklevel=3,
    )


def why_not_compiled(package: Path, *, error: ImportError) -> str:
    """Says why there is no compiled core of `riegeli`, and what to do.

    Args:
      package: The directory of `riegeli`.
      error: What importing the core raised.
    """
    checkout = package.parent if (package.parent / "setup.py").exists() else None
    how = f"pip install --editable {checkout}" if checkout else _INSTALL_ANEW
    built = [path.name for path in _compiled_files(package)]
    if any(f"_compiled{suffix}" in built for suffix in EXTENSION_SUFFIXES):
        return f"its compiled core does not load ({error}). Install it anew: {how}"
    if built:
        return (
            f"its compiled core is for another Python ({built[0]}; this one needs "
            f"{EXTENSION_SUFFIXES[0]}). Install it with this Python: {how}"
        )
    if checkout:
        others = [Path(place, "riegeli") for place in sys.path if place]
        for other in others:
            if other != package and _compiled_files(other):
                return (
                    f"the checkout {checkout} is not compiled, and hides the installed package in "
                    f"{other.parent}. Start Python in another directory, or compile it: {how}"
                )
    lacking = _what_the_build_lacks()
    what = "the checkout" if checkout else "the installed package"
    if lacking:
        return f"{what} is not compiled, and {lacking}, and then: {how}"
    return f"{what} is not compiled, though it could be: {how}"


_INSTALL_ANEW = "pip install --force-reinstall --no-deps ., in the checkout it came from"


def _compiled_files(package: Path) -> list[Path]:
    return [path for path in sorted(package.glob("_compiled.*")) if path.suffix in (".so", ".pyd")]


def _what_the_build_lacks() -> str | None:
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
