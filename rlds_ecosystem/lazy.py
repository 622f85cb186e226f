"""Packages that import their names on first use, so that importing the package is cheap."""

import ast
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_package"]


def lazy_package(
    package: str, file: str, replacements: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns the `__getattr__`, the `__dir__` (PEP 562) and the `__all__` of a package.

    The file `__init__.pyi` next to `__init__.py` declares the names and their modules, also for
    type checkers and editors: `from package.module import name as name`. Names without `as` are for
    old code, and not in `__all__`. Modules of the package and `__version__` are attributes, too.

    Args:
      package: The name of the package.
      file: The `__file__` of the package.
      replacements: Names that the package does not have, with the names to use instead.
    """
    modules_by_name: dict[str, str] = {}
    public: list[str] = []
    with open(f"{os.path.splitext(file)[0]}.pyi", encoding="utf-8") as stub:
        nodes = ast.parse(stub.read()).body
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            modules_by_name.update(dict.fromkeys((alias.name for alias in node.names), node.module))
            public += [alias.name for alias in node.names if alias.asname]
    public.sort()

    def get_attribute(name: str) -> Any:
        module_name = modules_by_name.get(name, package)
        if module_name != package:
            module = importlib.import_module(module_name)
            is_attribute = hasattr(module, name)
            value = getattr(module, name) if is_attribute else _module(f"{module_name}.{name}")
            setattr(sys.modules[package], name, value)  # Caches the value.
            return value
        if name == "__version__":
            from rlds_ecosystem import version

            return version()
        value = None if name.startswith("__") else _module(f"{package}.{name}")
        if value is None:
            hint = f": use {replacements[name]}" if replacements and name in replacements else ""
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
