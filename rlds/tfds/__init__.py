"""RLDS datasets in TFDS: features for your data, a writer of episodes, and a fast reader."""

from rlds_ecosystem import missing_tensorflow as _missing_tensorflow

if _error := _missing_tensorflow(__name__):
    raise _error

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
