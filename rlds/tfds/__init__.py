"""RLDS datasets in TFDS: features for your data, a writer of episodes, and a fast reader."""

from typing import TYPE_CHECKING

from rlds_ecosystem import missing_tensorflow as _missing_tensorflow

if _error := _missing_tensorflow(__name__):
    raise _error

from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
    from rlds.tfds.config_generator import extract_feature_from_data, generate_config_from_spec
    from rlds.tfds.episode_writer import DatasetConfig, EpisodeWriter
    from rlds.tfds.loading import load

__all__ = [
    "DatasetConfig",
    "EpisodeWriter",
    "extract_feature_from_data",
    "generate_config_from_spec",
    "load",
]

# What needs TensorFlow is imported when it is used.
_HOMES = {
    "rlds.tfds.config_generator": ["extract_feature_from_data", "generate_config_from_spec"],
    "rlds.tfds.episode_writer": ["DatasetConfig", "EpisodeWriter"],
    "rlds.tfds.loading": ["load"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
