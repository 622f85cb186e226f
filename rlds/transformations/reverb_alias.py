"""An alias of this package's patterns for code with `import reverb`.

Code for the published package imports `structured_writer` and `PatternDataset` from reverb. All
other functions of reverb need its server, and are not available.
"""

import contextlib
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any, Final

from rlds.transformations import pattern_dataset, structured_writer

__all__ = ["install_reverb_alias"]

_NAME: Final = "reverb"


def install_reverb_alias(*, replace: bool = False) -> contextlib.ExitStack:
    """Installs a module for `import reverb` with the patterns of this package.

    The module has `reverb.structured_writer`, `reverb.pattern_dataset` and `reverb.PatternDataset`.
    If the alias is already installed, the call has no effect.

    Args:
      replace: whether to hide an installed reverb.

    Returns:
      A context manager that removes the module at its end, or when its `close` is called. To keep
      the module, ignore it.

    Raises:
      RuntimeError: if reverb itself is installed, and `replace` is false.

    >>> with install_reverb_alias(replace=True):
    ...     import reverb
    ...     reverb.structured_writer.Condition.step_index() >= 2
    Condition(step_index >= 2)
    """
    undo = contextlib.ExitStack()
    if isinstance(sys.modules.get(_NAME), _Alias):
        return undo
    if not replace and importlib.util.find_spec(_NAME) is not None:
        raise RuntimeError(
            "install_reverb_alias: reverb is installed. Its patterns work here unchanged. To use "
            "the patterns of this package instead, pass replace=True."
        )
    before = _list_loaded_modules()
    undo.callback(_restore, before)
    _restore(
        {
            _NAME: _Alias(),
            f"{_NAME}.pattern_dataset": pattern_dataset,
            f"{_NAME}.structured_writer": structured_writer,
        }
    )
    return undo


class _Alias(types.ModuleType):
    def __init__(self) -> None:
        super().__init__(_NAME, "The patterns of rlds.transformations, under the names of reverb.")
        self.__spec__ = importlib.machinery.ModuleSpec(_NAME, None, is_package=True)
        self.__path__: list[str] = []
        self.pattern_dataset = pattern_dataset
        self.structured_writer = structured_writer
        self.PatternDataset = pattern_dataset.PatternDataset

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the module {_NAME!r} has no {name!r}: rlds.transformations.install_reverb_alias "
            "installed it with patterns only. For all of reverb, install dm-reverb."
        )


def _list_loaded_modules() -> dict[str, types.ModuleType]:
    return {
        name: module
        for name, module in sys.modules.items()
        if name == _NAME or name.startswith(f"{_NAME}.")
    }


def _restore(modules: dict[str, types.ModuleType]) -> None:
    """Replaces all loaded modules of reverb."""
    for name in _list_loaded_modules():
        del sys.modules[name]
    sys.modules.update(modules)
