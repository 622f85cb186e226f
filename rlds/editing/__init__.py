"""Edits of datasets in any format; unchanged episodes are copied in their stored form.

    from rlds.editing import Delete, Set, Split

    rlds.edit("my_robot", Delete(where="not success"), Set("instruction", "pick up the cup"))
    rlds.edit("my_robot", Split({"train": 0.9, "test": 0.1}, seed=1), to="splits")

Conditions are in SQL, over the table of episodes: see `rlds.sources.Episodes.where`.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
