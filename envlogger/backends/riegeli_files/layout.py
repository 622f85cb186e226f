"""The files of a dataset in Riegeli format.

    data_directory/
      metadata.riegeli             one record, `Data`: a dict about the whole dataset
      20260131T235959123456/       a shard, named after the UTC time at which it was begun
        steps.riegeli              `Data` for each step
        step_offsets.riegeli       `Datum`s, int64 arrays [n]: where in steps.riegeli the steps are
        episode_metadata.riegeli   `Data` for each episode that has metadata
        episode_index.riegeli      `Datum`s, int64 arrays [n, 2]: for each episode the number of its
                                   first step in this shard, and where in episode_metadata.riegeli
                                   its metadata is, or -1

Shards are read in the order of their names, and the arrays of a file one after the other. An
episode ends where the next one of its shard begins; the last one has all steps that remain in
`step_offsets.riegeli`. Positions are numeric record positions: the beginning of the chunk plus the
index in it.
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


def positions(values: Sequence[Any] | np.ndarray) -> Datum:
    """The record of an index file that holds an int64 array."""
    return codec.encode(np.array(values, np.int64)).datum
