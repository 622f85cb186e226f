"""The policies in files of D4RL, which recorded them.

Many files of v1 and v2 have their policy in the group `metadata/policy`, by the names that Deep-OPE
has too. Where `infos/action_log_probs` is recorded, it is the logarithm of the density of the
squashed action, which was clamped to ±0.999999 before. Files of random actions have the logarithm
of the uniform density there, and those of replay buffers that of many policies, none of which is in
the file.

In the files of the experts of Adroit, the head of the deviations was written as a copy of that of
the means; `infos/action_log_std` has the true ones.
"""

from __future__ import annotations

import os
from typing import Any

from rlds.formats.tfds.source import FolderSource
from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.hdf5_values import decode_value
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.sources.source import require_files
from rlds_ecosystem.files.stores import as_path

__all__ = ["read_d4rl_policy"]

# The key of the constants of an HDF5 file in the metadata of a converted dataset.
METADATA_KEY = "hdf5"
_METADATA, _POLICY = "metadata", "policy"
_GROUP = f"{_METADATA}/{_POLICY}"
_NONE = "the file has no policy; only D4RL files recorded by one policy have it, from v1 on"


def read_d4rl_policy(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the weights of the policy that recorded a file.

    Args:
      path: The file, or the folder of a dataset that was converted from it.

    Returns:
      An argument of `rlds.evaluation.mlp_policy`: arrays by name, and two texts.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: There is no policy in it, or it is damaged.
    """
    if as_path(path).is_dir():
        return _of_dataset(path)
    (file_path,) = require_files(path)
    hdf5 = Hdf5File(file_path)
    arrays = {}
    with hdf5.read() as file:
        group = file
        for name in (_METADATA, _POLICY):
            if not hdf5.has(group, name):
                raise hdf5.error(_NONE, _GROUP)
            group = hdf5.member(group, name, _GROUP)
        for name, item in hdf5.items(group):
            if is_array(item):
                if item.shape is None:
                    raise hdf5.error("the array has no values", f"{_GROUP}/{name}")
                arrays[name] = item[()]
    return arrays


def _of_dataset(path: str | os.PathLike[str]) -> dict[str, Any]:
    where = os.fspath(path)
    with source_errors(where):
        constants = FolderSource(path).about.metadata.get(METADATA_KEY, {}).get("constants", {})
        arrays = {
            name.removeprefix(f"{_GROUP}/"): decode_value(facts)
            for name, facts in constants.items()
            if name.startswith(f"{_GROUP}/")
        }
    if not arrays:
        raise SourceError(_NONE, file=where, field=_GROUP)
    return arrays
