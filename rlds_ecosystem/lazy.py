"""Packages whose names are imported when they are first used, so that importing them is cheap."""

import ast
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_package"]


def lazy_package(
    package: str, file: str, instead: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns the `__getattr__`, the `__dir__` (PEP 562) and the `__all__` of a package.

    Its names, and where they are from, are in `__init__.pyi` beside its `__init__.py`, which type
    checkers and editors read too: `from package.module import name as name`. One without `as` is
    there for old code, and is not in `__all__`. The modules of the package are attributes of it,
    whether they have been imported or not; so is its `__version__`.

    Args:
      package: Its name.
      file: Its `__file__`.
      instead: Names that one may look for and that it does not have, and what to use for them.
    """
    home_of: dict[str, str] = {}
    public: list[str] = []
    with open(f"{os.path.splitext(file)[0]}.pyi", encoding="utf-8") as stub:
        nodes = ast.parse(stub.read()).body
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            home_of.update(dict.fromkeys((alias.name for alias in node.names), node.module))
            public += [alias.name for alias in node.names if alias.asname]
    public.sort()

    def get_attribute(name: str) -> Any:
        home = home_of.get(name, package)
        if home != package:
            module = importlib.import_module(home)
            value = getattr(module, name) if hasattr(module, name) else _module(f"{home}.{name}")
            setattr(sys.modules[package], name, value)  # Cached from now on.
            return value
        if name == "__version__":
            from rlds_ecosystem import version

            return version()
        value = None if name.startswith("__") else _module(f"{package}.{name}")
        if value is None:
            hint = f": use {instead[name]}" if instead and name in instead else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        return value

    return get_attribute, lambda: list(public), public


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None
