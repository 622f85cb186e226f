"""Packages whose names are imported when they are first used, so that importing them is cheap."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["lazy_package"]


def lazy_package(
    package: str,
    public: Iterable[str],
    homes: Mapping[str, Iterable[str]],
    instead: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and the `__dir__` of a package (PEP 562).

    Args:
      package: Its name.
      public: The names in its `__all__`. Those without a home are modules of the package.
      homes: The modules that have its names, or the packages that have them as modules.
      instead: Names that one may look for and that it does not have, and what to use for them.

    Its modules are attributes of it too, whether they have been imported or not; so is its
    `__version__`.

    >>> get, names = lazy_package("xml", ["dom", "parse"], {"xml.etree.ElementTree": ["parse"]})
    >>> get("parse").__module__, get("dom").__name__, names()
    ('xml.etree.ElementTree', 'xml.dom', ['dom', 'parse'])
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    listed = sorted(public)

    def get_attribute(name: str) -> Any:
        if name in home_of:
            return _find(home_of[name], name)
        if name == "__version__":
            from rlds_ecosystem import version

            return version()
        found = None if name.startswith("__") else _find_module(f"{package}.{name}")
        if found is None:
            hint = f": use {instead[name]}" if instead and name in instead else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        return found

    return get_attribute, lambda: list(listed)


def _find(home: str, name: str) -> Any:
    module = importlib.import_module(home)
    return getattr(module, name) if hasattr(module, name) else _find_module(f"{home}.{name}")


def _find_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None
