from tfds_builders.builder import SourceBuilder as SourceBuilder
from tfds_builders.builder import convert as convert
from tfds_builders.formats import *
from tfds_builders.logs import EnvLoggerSource as EnvLoggerSource
from tfds_builders.logs import build_from_logs as build_from_logs
from tfds_builders.published import *
from tfds_builders.statistics import dataset_statistics as dataset_statistics
from tfds_builders.streaming import episodes_from_logs as episodes_from_logs
from tfds_builders.streaming import episodes_from_source as episodes_from_source

__version__: str
