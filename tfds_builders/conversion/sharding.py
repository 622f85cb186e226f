"""From staged examples to the files of a dataset: in the order, number and names of TFDS."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import tensorflow as tf
import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.hashing import Hasher
from tensorflow_datasets.core.utils import shard_utils

from rlds.sources.source import SourceError
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.errors import StorageError, storage_errors
from tfds_builders.conversion.staging import StagedExample, StagedPart, read_part

__all__ = ["ShardPlan", "plan_shards", "write_shard"]


# How many bytes of examples are read at once, to be put in order.
_MAX_WINDOW = 1 << 25

# An example with the index of its part.
_Placed: TypeAlias = tuple[int, StagedExample]


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """Which examples go to which file of a split; the same in every process that plans it.

    Attributes:
      examples: All examples with the index of their part, in the order of the dataset.
      parts: The parts that they are staged in.
      boundaries: For each shard, the index of the example after its last one.
      num_bytes: The size of all examples.
    """

    examples: Sequence[_Placed]
    parts: Sequence[StagedPart]
    boundaries: Sequence[int]
    num_bytes: int

    @property
    def num_shards(self) -> int:
        """How many files there are."""
        return len(self.boundaries)

    @property
    def shard_lengths(self) -> list[int]:
        """How many examples each file has."""
        return [end - begin for begin, end in zip((0, *self.boundaries), self.boundaries)]

    def shard(self, index: int) -> Sequence[_Placed]:
        """Returns the examples of a file."""
        begin = self.boundaries[index - 1] if index else 0
        return self.examples[begin : self.boundaries[index]]


def plan_shards(
    directory: epath.Path,
    split: str,
    num_parts: int,
    *,
    shuffle: bool,
    shard_config: shard_utils.ShardConfig,
) -> ShardPlan:
    """Returns which examples go where.

    Args:
      directory: The staging directory, in which all parts are complete.
      split: The split.
      num_parts: How many parts it has.
      shuffle: Whether to order examples by the hash of their keys, as TFDS does; otherwise they
        stay in the order of the source.
      shard_config: The number of shards, or their size.

    Raises:
      SourceError: There is no episode, or two have the same key.
      ValueError: There are fewer episodes than shards asked for, or none are.
    """
    parts = [read_part(directory, split, index) for index in range(num_parts)]
    examples = [(index, example) for index, part in enumerate(parts) for example in part.examples]
    if not examples:
        num_left_out = sum(len(part.left_out) for part in parts)
        raise no_episodes(split, num_left_out)
    _check_unique(examples, split)
    if shuffle:
        hasher = Hasher(split)
        examples.sort(key=lambda item: hasher.hash_key(item[1].key))
    num_bytes = sum(example.size for _, example in examples)
    num_shards = shard_config.get_number_shards(num_bytes, len(examples))
    if not 0 < num_shards <= len(examples):
        raise ValueError(
            f"num_shards: got {num_shards}, expected 1 to {len(examples)}, the number of episodes "
            f"of the split {split!r}"
        )
    boundaries = shard_utils.get_shard_boundaries(len(examples), num_shards)
    return ShardPlan(examples, parts, boundaries, num_bytes)


def no_episodes(split: str, num_left_out: int = 0) -> SourceError:
    """Returns the error for a split without episodes, which TFDS cannot store."""
    why = f" ({num_left_out} were skipped)" if num_left_out else ""
    return SourceError(f"no episodes to convert{why}", file=f"split {split!r}")


def write_shard(
    plan: ShardPlan,
    index: int,
    template: tfds.core.ShardedFileTemplate,
    file_format: tfds.core.FileFormat,
) -> epath.Path:
    """Writes a file of the dataset, unless it exists.

    Args:
      plan: The plan.
      index: The index of the file.
      template: Its name, and the directory to write it to.
      file_format: Its format.

    Returns:
      Its path. Under this name it is complete.

    Raises:
      StorageError: It cannot be written, or an example was damaged since it was staged.
    """
    path = stores.as_path(template.sharded_filepath(shard_index=index, num_shards=plan.num_shards))
    if path.exists():
        return path
    # Another worker may be writing the same file, if this one was thought to be dead.
    place = path.parent if stores.is_local(path) else epath.Path(tempfile.gettempdir())
    draft = place / f"{path.name}.draft-{uuid.uuid4().hex}"
    adapter = tfds.core.file_adapters.ADAPTER_FOR_FORMAT[file_format]
    try:
        with storage_errors(draft):
            try:
                adapter.write_examples(draft, _read(plan, index))
            except StorageError:  # Of what is staged.
                raise
            except (tf.errors.OpError, RuntimeError) as error:  # Of the writers of TFDS.
                raise OSError(str(error)) from error
            stores.move_file(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _read(plan: ShardPlan, index: int) -> Iterator[tuple[str, bytes]]:
    """Yields keys and examples.

    They are in a random order. So a window of them is read part by part, with no more than one file
    open, each from front to end.
    """
    for window in _windows(plan.shard(index)):
        contents: dict[int, bytes] = {}
        places = sorted(
            range(len(window)), key=lambda place: (window[place][0], window[place][1].offset)
        )
        for number, of_part in itertools.groupby(places, key=lambda place: window[place][0]):
            part = plan.parts[number]
            with part.records.open("rb") as file:
                for place in of_part:
                    contents[place] = part.read(window[place][1], file)
        for place, (_, example) in enumerate(window):
            yield example.key, contents.pop(place)


def _windows(examples: Sequence[_Placed]) -> Iterator[Sequence[_Placed]]:
    """Yields consecutive examples that have room in memory; at least one at a time."""
    begin = size = 0
    for end, (_, example) in enumerate(examples):
        if end > begin and size + example.size > _MAX_WINDOW:
            yield examples[begin:end]
            begin, size = end, 0
        size += example.size
    yield examples[begin:]


def _check_unique(examples: Sequence[_Placed], split: str) -> None:
    seen: set[str] = set()
    for part, example in examples:
        if example.key in seen:
            raise SourceError(
                f"another episode has the key {example.key!r}; keys must be unique",
                file=f"split {split!r}, part {part}",
                episode=example.key,
            )
        seen.add(example.key)
