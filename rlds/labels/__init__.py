"""Labels (annotations) of episodes and steps, stored next to data of any format.

labels = rlds.labels.open("my_robot")
labels.add("quality", 3, "good", by="ann")
labels.add("subtask", 3, "grasp", begin=10, end=25, by="ann")
good = rlds.sources.open("my_robot", where="label.quality = 'good'")
good = rlds.labels.labelled(good)  # With the labels as fields.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
