from rlds.tfds.config_generator import extract_feature_from_data as extract_feature_from_data
from rlds.tfds.config_generator import generate_config_from_spec as generate_config_from_spec
from rlds.tfds.episode_writer import DatasetConfig as DatasetConfig
from rlds.tfds.episode_writer import EpisodeWriter as EpisodeWriter
from rlds.tfds.loading import load as load
