"""The files of TFDS datasets, read and written without TensorFlow and without TFDS.

    dataset = tfds_files.open_folder("~/tensorflow_datasets/my_robot/1.0.0")
    episode = dataset["train"][0]                          # All fields, as columns.
    dataset["train"].example(0, fields=["steps/action"])   # Or only some.

    with tfds_files.DatasetWriter(directory, features, "my_robot") as writer:
        writer.add(episode)

Floor 0: it knows bytes and files, and nothing of episodes.
"""

from typing import TYPE_CHECKING

from rlds_ecosystem import package_attribute as _package_attribute
from tfds_files.columns import RaggedColumn, stack
from tfds_files.errors import DamagedFileError, TfdsFilesError, UnsupportedFileError
from tfds_files.example_encoder import ExampleEncoder
from tfds_files.examples import ExampleDecoder, parse_example
from tfds_files.features import (
    Dataset,
    Feature,
    Features,
    Image,
    Sequence,
    Tensor,
    parse_features,
    read_features,
)
from tfds_files.folder import DatasetFolder, find_folder, open_folder
from tfds_files.images import decode as decode_image
from tfds_files.record_files import FILE_FORMATS, RecordFile, open_record_file
from tfds_files.splits import Split
from tfds_files.writer import DatasetWriter

__all__ = [
    "FILE_FORMATS",
    "DamagedFileError",
    "Dataset",
    "DatasetFolder",
    "DatasetWriter",
    "ExampleDecoder",
    "ExampleEncoder",
    "Feature",
    "Features",
    "Image",
    "RaggedColumn",
    "RecordFile",
    "Sequence",
    "Split",
    "Tensor",
    "TfdsFilesError",
    "UnsupportedFileError",
    "decode_image",
    "find_folder",
    "open_folder",
    "open_record_file",
    "parse_example",
    "parse_features",
    "read_features",
    "stack",
]

__version__: str

if not TYPE_CHECKING:  # A type checker would believe that every name is there.

    def __getattr__(name):
        return _package_attribute(__name__, name)
