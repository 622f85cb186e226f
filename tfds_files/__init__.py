"""The files of TFDS datasets, read and written without TensorFlow and without TFDS.

    dataset = tfds_files.open_folder("~/tensorflow_datasets/my_robot/1.0.0")
    episode = dataset["train"][0]                          # All fields, as columns.
    dataset["train"].example(0, fields=["steps/action"])   # Or only some.

    with tfds_files.DatasetWriter(directory, features, "my_robot") as writer:
        writer.add(episode)

Floor 0: it knows bytes and files, and nothing of episodes.
"""

from typing import TYPE_CHECKING

from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
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
    from tfds_files.images import decode_image
    from tfds_files.indexing import index_shard, open_indexes
    from tfds_files.record_files import FILE_FORMATS, RecordFile, open_record_file
    from tfds_files.shard_index import NOT_DIRECT, FieldLayout, ShardIndex
    from tfds_files.splits import Split
    from tfds_files.summary import FieldSummary, FolderSummary, summarize
    from tfds_files.writer import DatasetWriter

__all__ = [
    "FILE_FORMATS",
    "NOT_DIRECT",
    "DamagedFileError",
    "Dataset",
    "DatasetFolder",
    "DatasetWriter",
    "ExampleDecoder",
    "ExampleEncoder",
    "Feature",
    "Features",
    "FieldLayout",
    "FieldSummary",
    "FolderSummary",
    "Image",
    "RaggedColumn",
    "RecordFile",
    "Sequence",
    "ShardIndex",
    "Split",
    "Tensor",
    "TfdsFilesError",
    "UnsupportedFileError",
    "decode_image",
    "find_folder",
    "index_shard",
    "open_folder",
    "open_indexes",
    "open_record_file",
    "parse_example",
    "parse_features",
    "read_features",
    "stack",
    "summarize",
]

__version__: str

# Their modules load NumPy, which `summarize` does without.
_HOMES = {
    "tfds_files.columns": ["RaggedColumn", "stack"],
    "tfds_files.errors": ["DamagedFileError", "TfdsFilesError", "UnsupportedFileError"],
    "tfds_files.example_encoder": ["ExampleEncoder"],
    "tfds_files.examples": ["ExampleDecoder", "parse_example"],
    "tfds_files.features": [
        *("Dataset", "Feature", "Features", "Image", "Sequence", "Tensor"),
        *("parse_features", "read_features"),
    ],
    "tfds_files.folder": ["DatasetFolder", "find_folder", "open_folder"],
    "tfds_files.images": ["decode_image"],
    "tfds_files.indexing": ["index_shard", "open_indexes"],
    "tfds_files.record_files": ["FILE_FORMATS", "RecordFile", "open_record_file"],
    "tfds_files.shard_index": ["NOT_DIRECT", "FieldLayout", "ShardIndex"],
    "tfds_files.splits": ["Split"],
    "tfds_files.summary": ["FieldSummary", "FolderSummary", "summarize"],
    "tfds_files.writer": ["DatasetWriter"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
