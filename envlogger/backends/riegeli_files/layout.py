"""The files of a dataset in Riegeli format.

    data_directory/
      metadata.riegeli             one record, `Data`: a dict with the metadata of the dataset
      20260131T235959123456/       a shard, named after the UTC time of its creation
        steps.riegeli              `Data` for each step
        step_offsets.riegeli       `Datum`s, int64 arrays [n]: the positions in steps.riegeli
        episode_metadata.riegeli   `Data` for each episode with metadata
        episode_index.riegeli      `Datum`s, int64 arrays [n, 2]: for each episode the index of the
                                   first step in the shard, and the position of the metadata in
                                   episode_metadata.riegeli, or -1

Shards are read in the order of their names, and the arrays of a file are concatenated. An episode
ends at the start of the next episode; the last episode of a shard has all remaining steps of
`step_offsets.riegeli`. Positions are numeric record positions: the position of the chunk plus the
index in the chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envlogger.converters import codec
from envlogger.proto.storage_pb2 import Datum

METADATA_FILE = "metadata.riegeli"
STEPS_FILE = "steps.riegeli"
STEP_OFFSETS_FILE = "step_offsets.riegeli"
EPISODE_METADATA_FILE = "episode_metadata.riegeli"
EPISODE_INDEX_FILE = "episode_index.riegeli"

SHARD_NAME_FORMAT = "%Y%m%dT%H%M%S%f"

NO_METADATA = -1


def encode_positions(values: Sequence[Any] | np.ndarray) -> Datum:
    """Encodes an int64 array as a record of an index file."""
    return codec.encode(np.array(values, np.int64)).datum
