"""Episodes from any format, as columns of NumPy.

    episodes = rlds.sources.open("~/tensorflow_datasets/my_robot/1.0.0", "train")
    len(episodes), episodes.spec
    episodes.columns(7, ["action", "observation/camera"], start=10, stop=20)
    print(episodes.explain())

    rlds.sources.export(episodes, "lerobot", "my_robot")  # In the format of another library.

A source reads one format, independently of the use of its episodes. Sources do not load TensorFlow.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
