"""Makes the HDF5 files of D4RL and d4rl-pybullet again, from the datasets that they became.

All arrays equal the original ones in every bit, and so do dtypes, shapes, attributes, and how they
are compressed. The file as a whole may differ in bytes: how HDF5 lays it out depends on who writes
it. Signalling NaNs of float32 come back as quiet ones, as TFDS stores them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow_datasets as tfds

import rlds
from rlds.sources.d4rl.hdf5 import decode_value, make_file
from rlds.sources.d4rl.layout import FIELDS, NEXT_OBSERVATIONS
from rlds.sources.d4rl.pybullet import FIRST_REWARD, LAST_ACTION
from rlds.sources.episode_fields import ORIGIN
from rlds.tfds import load
from rlds_ecosystem import stores

__all__ = ["export_d4rl", "export_d4rl_pybullet", "read_constants"]

# Returns what an episode has for the rows of an array of the file.
_RowsOf: TypeAlias = Callable[[Mapping[str, Any], str, int], np.ndarray]


def export_d4rl(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder, path: str | os.PathLike[str]
) -> None:
    """Makes the file of D4RL again that a dataset was converted from.

    The episodes may be in any order. The file appears under its name when it is complete. What is
    not in memory is kept beside it in the meantime: as much as all arrays have without compression.

    Args:
      dataset: The directory of the dataset, or a builder that reads it.
      path: The file to make, on a local disk.

    Raises:
      FileExistsError: There is a file of this name.
      ValueError: The dataset was not converted by `D4rlSource`, or does not have all episodes.
    """
    _export(dataset, path, "d4rl", _d4rl_rows)


def export_d4rl_pybullet(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder, path: str | os.PathLike[str]
) -> None:
    """Makes the file of d4rl-pybullet again that a dataset was converted from.

    Args:
      dataset: As for `export_d4rl`.
      path: As for `export_d4rl`.

    Raises:
      FileExistsError: There is a file of this name.
      ValueError: The dataset was not converted by `D4rlPybulletSource`, or does not have all
        episodes.
    """
    _export(dataset, path, "d4rl_pybullet", _pybullet_rows)


def read_constants(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder,
) -> dict[str, np.ndarray | bytes]:
    """Returns what the file of a dataset has beside rows, such as the weights of the policy.

    Args:
      dataset: As for `export_d4rl`.

    Returns:
      The values by their paths in the file, such as `metadata/policy/fc0/weight`.

    Raises:
      ValueError: The dataset was converted from something else.
    """
    constants = _description(_builder(dataset))["constants"]
    return {
        name: decode_value(facts) for name, facts in constants.items() if facts["shape"] is not None
    }


def _export(dataset: Any, path: str | os.PathLike[str], kind: str, rows_of: _RowsOf) -> None:
    builder, target = _builder(dataset), stores.as_path(path)
    description = _description(builder, kind)
    if target.exists():
        raise FileExistsError(f"{target} exists and is not overwritten; delete it first.")
    beside = target.parent if stores.is_local(target) else None
    with (
        tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=beside) as directory,
        contextlib.ExitStack() as files,
    ):
        rows = _Rows(Path(directory), description, files)
        for episode in _episodes(builder):
            rows.put(episode, rows_of)
        rows.check_all_there(builder)
        draft = Path(directory) / target.name
        make_file(draft, description, rows.read)
        stores.move_file(draft, target)


class _Rows:
    """The rows of all arrays, which arrive in any order, in a file for each array."""

    def __init__(
        self, directory: Path, description: Mapping[str, Any], files: contextlib.ExitStack
    ) -> None:
        self._is_there = np.zeros(description["rows"], bool)
        self._dtypes = {
            name: np.dtype((facts["dtype"], tuple(facts["shape"][1:])))
            for name, facts in description["arrays"].items()
        }
        self._files = {
            name: files.enter_context((directory / f"{index}.rows").open("w+b"))
            for index, name in enumerate(self._dtypes)
        }

    def put(self, episode: Mapping[str, Any], rows_of: _RowsOf) -> None:
        """Takes the rows of an episode."""
        begin, end = int(episode[ORIGIN]["begin"]), int(episode[ORIGIN]["end"])
        if self._is_there[begin:end].any():
            raise ValueError(f"rows {begin} to {end}: there are several episodes for one of them")
        self._is_there[begin:end] = True
        for name, row in self._dtypes.items():
            content = rows_of(episode, name, end - begin).astype(row.base).tobytes()
            if len(content) != (end - begin) * row.itemsize:
                raise ValueError(
                    f"rows {begin} to {end}: their episode has {len(content)} bytes of {name}, "
                    f"expected {(end - begin) * row.itemsize}"
                )
            self._files[name].seek(begin * row.itemsize)
            self._files[name].write(content)

    def check_all_there(self, builder: tfds.core.DatasetBuilder) -> None:
        """Raises an error if rows are missing."""
        missing = np.flatnonzero(~self._is_there)
        if len(missing):
            raise ValueError(
                f"{builder.data_path}: {len(missing)} of {len(self._is_there)} rows are missing, "
                f"beginning with row {missing[0]}: episodes were left out, or removed"
            )

    def read(self, name: str, begin: int, end: int) -> np.ndarray:
        """Returns rows of an array."""
        row, file = self._dtypes[name], self._files[name]
        file.seek(begin * row.itemsize)
        content = file.read((end - begin) * row.itemsize)
        return np.frombuffer(content, row.base).reshape(end - begin, *row.shape)


def _d4rl_rows(episode: Mapping[str, Any], name: str, num_rows: int) -> np.ndarray:
    steps = episode[rlds.STEPS]
    if name == NEXT_OBSERVATIONS and FIELDS[name] not in steps:  # They are in the next steps.
        return np.asarray(steps[rlds.OBSERVATION][1 : num_rows + 1])
    column = steps
    for part in FIELDS.get(name, name).split("/"):
        column = column[part]
    return np.asarray(column[:num_rows])


def _pybullet_rows(episode: Mapping[str, Any], name: str, num_rows: int) -> np.ndarray:
    steps = episode[rlds.STEPS]
    if name == "actions":
        return np.concatenate([steps[rlds.ACTION][:-1], episode[LAST_ACTION][np.newaxis]])
    if name == "rewards":
        return np.concatenate([episode[FIRST_REWARD][np.newaxis], steps[rlds.REWARD][:-1]])
    return np.asarray(steps[rlds.OBSERVATION if name == "observations" else name])


def _episodes(builder: tfds.core.DatasetBuilder) -> Iterator[Mapping[str, Any]]:
    for split in builder.info.splits:
        if builder.info.splits[split].num_examples:
            yield from load(builder, split).as_numpy_iterator()


def _builder(dataset: Any) -> tfds.core.DatasetBuilder:
    if isinstance(dataset, tfds.core.DatasetBuilder):
        return dataset
    return tfds.builder_from_directory(dataset)


def _description(builder: tfds.core.DatasetBuilder, kind: str | None = None) -> Mapping[str, Any]:
    metadata = builder.info.metadata or {}
    if "hdf5" not in metadata or (kind is not None and kind not in metadata):
        raise ValueError(
            f"{builder.data_path}: its metadata does not say that it was made of a file of "
            f"{kind or 'd4rl or d4rl_pybullet'}; it has {sorted(metadata)}"
        )
    description: Mapping[str, Any] = metadata["hdf5"]
    return description
