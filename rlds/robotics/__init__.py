"""What the numbers of robot datasets mean, and the standard that policies train on.

    meaning = rlds.robotics.meaning_of("bridge_dataset")
    print(meaning.action[6])  # gripper: 0 to 1; 1 is open, 0 is closed

    episodes = rlds.sources.open("~/tensorflow_datasets/bridge_dataset/1.0.0", "train")
    standard = rlds.robotics.standardized(episodes)
    standard.columns(0, ["standard/action", "standard/state"])

Its files say little of what a dataset means. What is said elsewhere is in a table here, with who
says it and how sure it is. The stored action is never replaced.
"""

from typing import TYPE_CHECKING

from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
    from rlds.robotics.registry import (
        DatasetMeaning,
        Dimension,
        Disagreement,
        Gripper,
        find_meaning,
        known_datasets,
        meaning_of,
        register,
    )
    from rlds.robotics.rules import binarize, euler, rel2abs
    from rlds.robotics.standard import standard_columns
    from rlds.sources.standardized import standardized

__all__ = [
    "DatasetMeaning",
    "Dimension",
    "Disagreement",
    "Gripper",
    "binarize",
    "euler",
    "find_meaning",
    "known_datasets",
    "meaning_of",
    "register",
    "rel2abs",
    "standard_columns",
    "standardized",
]

# Loaded on first use: who asks what a dimension means need not load what reads episodes.
_HOMES = {
    "rlds.robotics.registry": [
        "DatasetMeaning",
        "Dimension",
        "Disagreement",
        "Gripper",
        "find_meaning",
        "known_datasets",
        "meaning_of",
        "register",
    ],
    "rlds.robotics.rules": ["binarize", "euler", "rel2abs"],
    "rlds.robotics.standard": ["standard_columns"],
    "rlds.sources.standardized": ["standardized"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
