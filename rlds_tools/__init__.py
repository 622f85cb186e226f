"""The commands of `rlds`, as functions.

    rlds inspect data/walker2d               rlds_tools.inspect("data/walker2d")
    rlds validate data/walker2d --json       rlds_tools.validate("data/walker2d").to_dict()

A function returns a result: a dataclass that prints like the command, and displays as HTML in a
notebook. `rlds_tools.command_line` parses the command line, calls the function, and prints.
Modules are imported on first use, because commands must start fast.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
