"""Reads the episodes of a split in order, with several processes for many small episodes."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rlds.sources import Episodes, SourceEpisode, SourceError, reading
from rlds.sources.texts import is_instruction
from rlds.sources.view import View
from rlds_ecosystem.files.processes import run_tasks
from rlds_ecosystem.model.nests import named_leaves
from rlds_tools.results import text_of

__all__ = ["declared_length", "indices_at", "indices_of", "instructions_in", "is_whole", "read_all"]

# The minimum number and the maximum size of episodes for several processes: starting a process
# takes seconds, and episodes are copied between processes.
_MIN_EPISODES_FOR_JOBS, _MAX_EPISODE_SIZE = 5_000, 1 << 18
_CHUNK_EPISODES, _CHUNK_BYTES = 128, 32 << 20


def indices_of(episodes: Episodes) -> Iterator[int]:
    """Yields the indices of all episodes, without counting the episodes first."""
    return itertools.takewhile(episodes.has, itertools.count())


def indices_at(episodes: Episodes, stored_indices: Sequence[int]) -> list[int]:
    """Converts stored indices of episodes to indices in `episodes`.

    Raises:
      IndexError: The split lacks an episode.
    """
    if is_whole(episodes):
        indices = {index: index for index in stored_indices if index >= 0 and episodes.has(index)}
    else:
        indices = {episodes.stored_index(index): index for index in range(len(episodes))}
    for index in stored_indices:
        if index not in indices:
            raise IndexError(f"split {episodes.split!r} has no episode {index}")
    return [indices[index] for index in stored_indices]


def instructions_in(episode: SourceEpisode) -> dict[str, list[str]]:
    """Returns the texts of the instruction fields of an episode and its steps, by path."""
    episode_texts = ((path, [value]) for path, value in named_leaves(episode.metadata))
    step_texts = ((path, column) for path, column in named_leaves(episode.steps) if np.ndim(column))
    instructions = {
        path: [text_of(value) for value in values if isinstance(value, str | bytes)]
        for path, values in (*episode_texts, *step_texts)
        if is_instruction(path)
    }
    return {path: texts for path, texts in instructions.items() if texts}


def is_whole(episodes: Episodes) -> bool:
    """Returns True if the episodes are all episodes of a stored split."""
    source = episodes.source
    return episodes.split in episodes.splits and (not isinstance(source, View) or source.has_all)


def declared_length(episodes: Episodes) -> int | None:
    """Returns the number of episodes; None if counting would need reading them."""
    if not is_whole(episodes):
        return len(episodes)
    return reading.count(episodes.source, episodes.split)


def read_all(
    episodes: Episodes, indices: Iterable[int], jobs: int = 1
) -> Iterator[tuple[int, SourceEpisode | SourceError]]:
    """Yields each index with its episode, or with the error of a damaged episode, in order.

    Args:
      episodes: The episodes.
      indices: The indices of the episodes.
      jobs: The maximum number of processes. Processes are started for thousands of episodes if the
        first episode is small.
    """
    remaining_indices = iter(indices)
    for index in itertools.islice(remaining_indices, 1):
        episode = _read(episodes, index)
        yield index, episode
        if jobs > 1 and episodes.has_random_access and _episode_bytes(episode) <= _MAX_EPISODE_SIZE:
            ahead = list(itertools.islice(remaining_indices, _MIN_EPISODES_FOR_JOBS))
            remaining_indices = itertools.chain(ahead, remaining_indices)
            if len(ahead) == _MIN_EPISODES_FOR_JOBS:
                yield from _read_in_processes(episodes, remaining_indices, jobs)
                return
    for index in remaining_indices:
        yield index, _read(episodes, index)


def _read(episodes: Episodes, index: int) -> SourceEpisode | SourceError:
    try:
        return episodes.episode(index)
    except SourceError as error:
        return error


def _episode_bytes(episode: SourceEpisode | SourceError) -> int:
    if isinstance(episode, SourceError):
        return 0
    leaves = itertools.chain(named_leaves(episode.steps), named_leaves(episode.metadata))
    return sum(_num_bytes(value) for _, value in leaves)


def _num_bytes(value: object) -> int:
    if isinstance(value, np.ndarray):
        objects = value.flat if value.dtype == object else ()
        return value.nbytes + sum(map(_num_bytes, objects))
    return len(value) if isinstance(value, bytes | str) else 8


def _read_in_processes(
    episodes: Episodes, indices: Iterator[int], jobs: int
) -> Iterator[tuple[int, SourceEpisode | SourceError]]:
    chunks = iter(lambda: list(itertools.islice(indices, _CHUNK_EPISODES)), [])
    read = functools.partial(_read_chunk, episodes)
    for chunk, (read_episodes, messages) in run_tasks(read, chunks, jobs):
        for message in messages:
            warnings.warn(message, stacklevel=1)
        yield from zip(chunk, read_episodes)
        for index in chunk[len(read_episodes) :]:  # The chunk was too large to send.
            yield index, _read(episodes, index)


def _read_chunk(
    episodes: Episodes, indices: Sequence[int]
) -> tuple[list[SourceEpisode | SourceError], list[Warning | str]]:
    read: list[SourceEpisode | SourceError] = []
    size = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in indices:
            read.append(_read(episodes, index))
            size += _episode_bytes(read[-1])
            if size > _CHUNK_BYTES:
                break
    return read, [warning.message for warning in caught]
