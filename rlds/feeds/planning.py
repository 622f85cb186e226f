"""Planning of a shuffle: the one that suits the data, and the cost of its batches."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlds.feeds.order import SegmentShuffle
from rlds.feeds.samples import Samples
from rlds.feeds.storage import row_bytes
from rlds.feeds.table import in_words

__all__ = ["Plan", "explain", "planned_shuffle", "samples_ahead"]

# The samples in the window of segments, if they fit into memory; enough for a good mix.
_WINDOW_SAMPLES = 32_768
# The size of a segment: reading a part of it costs hardly less.
_SEGMENT_BYTES = 256 << 10
# The segments that are needed for a good mix.
_LEAST_SEGMENTS = 64
_LEAST_SEGMENTS_OF_LANE, _MOST_LANES = 4, 64
_ENCODED_SHARE = 0.1
_UNKNOWN_BYTES = 64
# For remote data, the size of a segment, and the bytes that are read ahead.
_REMOTE_SEGMENT_BYTES, _AHEAD_BYTES = 1 << 20, 64 << 20
# The samples read ahead without segments, when hardly any two samples are near each other.
_AHEAD_SAMPLES = 1024
# The size of compressed chunks of logs; consecutive episodes share chunks.
_CHUNK_BYTES = 1 << 20


class Plan(NamedTuple):
    """The shuffle of samples, and the reason for it.

    Attributes:
      shuffle: A `shuffle` of `Feed`, other than "auto" and "segments".
      reason: The reason for this shuffle.
    """

    shuffle: str | SegmentShuffle | None
    reason: str


def planned_shuffle(samples: Samples, requested: str | SegmentShuffle | None) -> Plan:
    """Chooses the shuffle of samples.

    The plan depends on the data alone: training can resume with other ranks or less memory.

    Args:
      samples: The samples.
      requested: The `shuffle` argument of `Feed`.

    Raises:
      ValueError: There is no such shuffle.
    """
    if samples.weights is not None:
        if requested not in ("auto", "global"):
            raise ValueError(
                f"shuffle: got {requested!r}, but weighted samples are drawn at random: "
                "leave it out"
            )
        return Plan("weighted", "the samples have weights")
    if requested in (None, "global") or isinstance(requested, SegmentShuffle):
        return Plan(requested, "you chose it")
    if requested not in ("auto", "segments"):
        suits = ": 'auto' shuffles in the way that suits the data"
        hint = suits if isinstance(requested, bool) else ""
        raise ValueError(
            "shuffle must be 'auto', 'global', 'segments', a SegmentShuffle or None, got "
            f"{requested!r}{hint}"
        )
    storage, slow = samples.table.storage, _slow(samples)
    if requested == "auto" and not slow and not storage.is_remote:
        reason = "single steps are read at no extra cost"
        if (stored := _stored_per_step(samples) * samples.table.num_steps) > _memory() * 0.75:
            reason += (
                f" only from memory, and {stored / 1e9:.1f} GB do not fit into it: "
                "shuffle='segments' reads from the disk in order"
            )
            warnings.warn(reason, stacklevel=4)  # At the call of `Feed`.
        return Plan("global", reason)
    if slow:
        why = storage.why_cached or "the fields are not stored as plain numbers"
        reason = f"whole episodes are read for {in_words(slow)}: {why}"
        return Plan(_whole_episodes(samples), reason)
    reason, segment_bytes, window = "you chose it", _SEGMENT_BYTES, _WINDOW_SAMPLES
    size = max(_stored_per_step(samples), 1)
    if storage.is_remote:
        reason = "the data is in an object store, and parts of it are read ahead"
        window = min(int(_AHEAD_BYTES / size), len(samples))
        segment_bytes = min(_REMOTE_SEGMENT_BYTES, int(window * size / _LEAST_SEGMENTS))
    length = max(int(segment_bytes / size), 16)
    window = max(window // length, 2)
    shuffle = (
        _with_lanes(length, window, 0) if storage.is_remote else SegmentShuffle(length, window)
    )
    return Plan(shuffle, reason)


def samples_ahead(samples: Samples, plan: Plan) -> int:
    """Returns how many samples are read before they are needed."""
    table = samples.table
    if not table.storage.is_remote:
        return 0
    if _slow(samples):  # Episodes read ahead share the cache with the ones in use.
        return min(int(table.cache_bytes / 4 / max(_slow_bytes(samples), 1)), _WINDOW_SAMPLES)
    ahead = int(_AHEAD_BYTES / max(_stored_per_step(samples), 1))
    return ahead if isinstance(plan.shuffle, SegmentShuffle) else min(ahead, _AHEAD_SAMPLES)


def _whole_episodes(samples: Samples) -> SegmentShuffle:
    """Plans segments for data read by whole episodes: none is cut, short ones are joined.

    The segments in the shuffle window take at most half of the cache of episodes.
    """
    bytes_of_step = max(_slow_bytes(samples), 1)
    longest = int(samples.counts().max(initial=1))
    # Small datasets also get many segments, so that each lane has its own.
    few = len(samples) // (_MOST_LANES * _LEAST_SEGMENTS_OF_LANE)
    length = max(longest, min(int(_CHUNK_BYTES / bytes_of_step), few), 1)
    steps = samples.table.cache_bytes / 2 / bytes_of_step
    return _with_lanes(length, max(int(min(_WINDOW_SAMPLES, steps) / length), 1), int(steps))


def _with_lanes(length: int, window: int, steps: int) -> SegmentShuffle:
    """Segments with as many lanes as leave some segments for each to mix, in so many steps."""
    lanes = min(max(window, steps // length) // _LEAST_SEGMENTS_OF_LANE, _MOST_LANES)
    return SegmentShuffle(length, window, 1 << max(lanes.bit_length() - 1, 0))


def _slow(samples: Samples) -> list[str]:
    """The fields that are read by whole episodes."""
    return [path for path in samples.table.fields if not samples.table.storage.is_random(path)]


def _slow_bytes(samples: Samples) -> float:
    """Returns the approximate memory of a step of the slow fields, in bytes."""
    return sum(bytes_in_memory(samples, path) for path in _slow(samples))


def bytes_in_memory(samples: Samples, path: str) -> float:
    """Returns how many bytes a value of a field takes, about: files of images are compressed."""
    field = samples.table.storage.fields[path]
    size = row_bytes(field, _UNKNOWN_BYTES)
    return size * _ENCODED_SHARE if field.encoding else size


def _stored_per_step(samples: Samples) -> float:
    sizes = [samples.table.storage.bytes_of_step(path) for path in samples.table.fields]
    return float(np.nansum(sizes))


def _memory() -> int:
    """Returns the memory of the machine, or of this container, in bytes."""
    if not hasattr(os, "sysconf"):  # On Windows, which does not tell.
        return sys.maxsize
    least = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(limit) as file:
                least = min(least, int(file.read()))
        except (OSError, ValueError):  # There is no such file, or no limit.
            continue
    return least


def explain(parts: Sequence[Samples], plans: Sequence[Plan], batch_size: int) -> str:
    """Explains the cost of a batch, and the ways to reduce it.

    Args:
      parts: The samples of each dataset.
      plans: The shuffle of each.
      batch_size: The number of samples in a batch.
    """
    lines = []
    for part, plan in zip(parts, plans):
        lines += [repr(part), f"shuffle: {_shuffle_in_words(part, plan)}; {plan.reason}"]
        lines += _counts_in_words(part)
        lines += [f"  {line}" for line in _fields_in_words(part, _read_per_used(part, plan))]
        if not _is_kept(part):
            lines.append(
                "cheaper: rlds.feeds.materialise(path, directory) writes a copy whose steps are "
                "read one by one; or leave out fields that you do not need (fields=[...])"
            )
    return "\n".join(lines)


def _shuffle_in_words(samples: Samples, plan: Plan) -> str:
    if not isinstance(plan.shuffle, SegmentShuffle):
        return {"global": "all samples", "weighted": "drawn by weight", None: "none"}[plan.shuffle]
    length, window = plan.shuffle.length, max(plan.shuffle.window, plan.shuffle.lanes)
    if length is None:
        return f"{window} episodes at a time"
    if length * window >= len(samples):
        return "all samples, after reading them all"
    return f"{window} runs of about {length} samples at a time"


def _counts_in_words(samples: Samples) -> list[str]:
    counts = samples.counts()
    empty = int((counts == 0).sum())
    if not empty:
        return []
    return [f"{empty} of {len(counts)} episodes are too short for a sample"]


def _is_kept(samples: Samples) -> bool:
    """True if the fields that are read by whole episodes fit into the cache."""
    return _slow_bytes(samples) * samples.table.num_steps <= samples.table.cache_bytes


def _read_per_used(samples: Samples, plan: Plan) -> float:
    """Returns the steps read per step used, for fields that are read by whole episodes."""
    table = samples.table
    steps = max(table.num_steps, 1)
    if _is_kept(samples) or isinstance(plan.shuffle, SegmentShuffle):
        return max(steps / max(len(samples), 1), 1.0)  # An episode is read for all its samples.
    return steps / max(table.num_episodes, 1)


def _fields_in_words(samples: Samples, factor: float) -> list[str]:
    lines = []
    for path, field in samples.table.fields.items():
        size = f"{bytes_in_memory(samples, path):.0f} bytes a step"
        if field.is_text or None in field.shape:
            size = f"a {field}"
        elif field.encoding:
            size = f"an image file of about {samples.table.storage.bytes_of_step(path):.0f} bytes"
        if not samples.table.storage.is_random(path):
            how = f"read by whole episodes, {factor:.1f} bytes for each byte used"
        elif samples.table.storage.is_image(path):
            how = "decoded one by one, 1 byte for each byte used"
        else:
            how = "copied, 1 byte for each byte used"
        lines.append(f"{path}: {size}, {how}")
    return lines
