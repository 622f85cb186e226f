"""Reader of the policies in D4RL files, which recorded the data.

Many files of v1 and v2 have their policy in the group `metadata/policy`, with the array names of
Deep-OPE. `infos/action_log_probs`, if recorded, is the log-density of the squashed action, clamped
to ±0.999999. In files of random actions, it is the uniform log-density; in replay buffers, the
log-density of many policies, which are not in the file.

In files of Adroit experts, the output layer of standard deviations is a copy of the output layer of
means; `infos/action_log_std` has the true values.
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
_METADATA_GROUP, _POLICY_GROUP = "metadata", "policy"
_POLICY_PATH = f"{_METADATA_GROUP}/{_POLICY_GROUP}"
_NO_POLICY = "the file has no policy; only D4RL files recorded by one policy have it, from v1 on"


def read_d4rl_policy(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the weights of the policy that recorded a D4RL file.

    Args:
      path: The file, or the folder of a dataset converted from it.

    Returns:
      An argument of `rlds.evaluation.mlp_policy`: arrays by name, and two texts.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file has no policy, or is damaged.
    """
    if as_path(path).is_dir():
        return _read_converted(path)
    (file_path,) = require_files(path)
    hdf5 = Hdf5File(file_path)
    arrays = {}
    with hdf5.read() as file:
        group = file
        for name in (_METADATA_GROUP, _POLICY_GROUP):
            if not hdf5.has(group, name):
                raise hdf5.error(_NO_POLICY, _POLICY_PATH)
            group = hdf5.member(group, name, _POLICY_PATH)
        for name, item in hdf5.items(group):
            if is_array(item):
                if item.shape is None:
                    raise hdf5.error("the array has no values", f"{_POLICY_PATH}/{name}")
                arrays[name] = item[()]
    return arrays


def _read_converted(path: str | os.PathLike[str]) -> dict[str, Any]:
    folder = os.fspath(path)
    with source_errors(folder):
        metadata = FolderSource(path).source_info.metadata.get(METADATA_KEY, {})
        arrays = {
            name.removeprefix(f"{_POLICY_PATH}/"): decode_value(value)
            for name, value in metadata.get("constants", {}).items()
            if name.startswith(f"{_POLICY_PATH}/")
        }
    if not arrays:
        raise SourceError(_NO_POLICY, file=folder, field=_POLICY_PATH)
    return arrays
