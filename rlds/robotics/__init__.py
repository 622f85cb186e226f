"""The meaning of actions and states in robot datasets, and the standard for training policies.

    meaning = rlds.robotics.meaning_of("bridge_dataset")
    print(meaning.action[6])  # gripper: 0 to 1; 1 is open, 0 is closed

    episodes = rlds.sources.open("~/tensorflow_datasets/bridge_dataset/1.0.0", "train")
    standard = rlds.robotics.standardized(episodes)
    standard.columns(0, ["standard/action", "standard/state"])

The files of a dataset hardly describe the meaning of actions. The registry takes it from other
sources, with a reference and a confidence for each entry; `rlds.auditing` infers it from the
values. Stored actions are never replaced.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
