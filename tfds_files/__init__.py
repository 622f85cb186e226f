"""The files of TFDS datasets, read and written without TensorFlow and without TFDS.

    dataset = tfds_files.open_folder("~/tensorflow_datasets/my_robot/1.0.0")
    episode = dataset["train"][0]                          # All fields, as columns.
    dataset["train"].example(0, fields=["steps/action"])   # One field only.

    with tfds_files.append_to(directory, features, "my_robot") as writer:
        writer.add(episode)

Floor 0: this package reads bytes and files, and has no notion of episodes.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
