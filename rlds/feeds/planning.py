"""Plans of a feed: the choice of the shuffle by the storage of the data, and batch costs."""

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
from rlds.feeds.table import list_names

__all__ = ["Plan", "explain", "planned_shuffle", "samples_ahead"]

# The number of samples in a shuffle window, if they fit into memory.
_WINDOW_SAMPLES = 32_768
# The size of a segment up to which seek time dominates.
_SEGMENT_BYTES = 256 << 10
# The minimum number of segments in a shuffle window.
_MIN_SEGMENTS = 64
_MIN_LANE_SEGMENTS, _MAX_SHUFFLE_LANES = 4, 64
_COMPRESSED_FRACTION = 0.1
_DEFAULT_VALUE_BYTES = 64
# For remote data: the size of a segment, and the bytes to prefetch.
_REMOTE_SEGMENT_BYTES, _PREFETCH_BYTES = 1 << 20, 64 << 20
# The maximum number of samples to prefetch without segments: random samples share no ranges.
_MAX_PREFETCH_SAMPLES = 1024
# The size of compressed chunks of logs; consecutive episodes share chunks.
_CHUNK_BYTES = 1 << 20


class Plan(NamedTuple):
    """The shuffle of samples, and the reason for it.

    Attributes:
      shuffle: A `shuffle` of `Feed`, other than "auto" and "segments".
      reason: The reason for the choice, as text.
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
                "omit the argument"
            )
        return Plan("weighted", "the samples have weights")
    if requested in (None, "global") or isinstance(requested, SegmentShuffle):
        return Plan(requested, "you chose it")
    if requested not in ("auto", "segments"):
        suggestion = ": 'auto' shuffles in the way that suits the data"
        hint = suggestion if isinstance(requested, bool) else ""
        raise ValueError(
            "shuffle must be 'auto', 'global', 'segments', a SegmentShuffle or None, got "
            f"{requested!r}{hint}"
        )
    storage, episodic = samples.table.storage, _list_episodic(samples)
    if requested == "auto" and not episodic and not storage.is_remote:
        reason = "single steps are read at no extra cost"
        if (num_bytes := _step_bytes(samples) * samples.table.num_steps) > _measure_memory() * 0.75:
            reason += (
                f" only from memory, and {num_bytes / 1e9:.1f} GB do not fit into it: "
                "shuffle='segments' reads from the disk in order"
            )
            warnings.warn(reason, stacklevel=4)  # The warning shows the call of `Feed`.
        return Plan("global", reason)
    if episodic:
        why = storage.why_cached or "the fields are not stored as plain numbers"
        reason = f"whole episodes are read for {list_names(episodic)}: {why}"
        return Plan(_reads_whole_episodes(samples), reason)
    reason, segment_bytes, window = "you chose it", _SEGMENT_BYTES, _WINDOW_SAMPLES
    size = max(_step_bytes(samples), 1)
    if storage.is_remote:
        reason = "the data is in an object store, and segments of it are read ahead"
        window = min(int(_PREFETCH_BYTES / size), len(samples))
        segment_bytes = min(_REMOTE_SEGMENT_BYTES, int(window * size / _MIN_SEGMENTS))
    length = max(int(segment_bytes / size), 16)
    window = max(window // length, 2)
    if storage.is_remote:
        return Plan(_interleave(length, window, 0), reason)
    return Plan(SegmentShuffle(length, window), reason)


def samples_ahead(samples: Samples, plan: Plan) -> int:
    """Returns the number of samples to prefetch; 0 for local data."""
    table = samples.table
    if not table.storage.is_remote:
        return 0
    if _list_episodic(samples):  # Prefetched episodes share the cache with the episodes in use.
        return min(int(table.cache_bytes / 4 / max(_episodic_bytes(samples), 1)), _WINDOW_SAMPLES)
    ahead = int(_PREFETCH_BYTES / max(_step_bytes(samples), 1))
    return ahead if isinstance(plan.shuffle, SegmentShuffle) else min(ahead, _MAX_PREFETCH_SAMPLES)


def _reads_whole_episodes(samples: Samples) -> SegmentShuffle:
    """Plans segments of whole episodes; a segment may have several short episodes.

    The segments in the shuffle window take at most half of the cache of episodes.
    """
    bytes_of_step = max(_episodic_bytes(samples), 1)
    longest = int(samples.counts().max(initial=1))
    # Short segments in small datasets give each lane several segments.
    max_length = len(samples) // (_MAX_SHUFFLE_LANES * _MIN_LANE_SEGMENTS)
    length = max(longest, min(int(_CHUNK_BYTES / bytes_of_step), max_length), 1)
    steps = samples.table.cache_bytes / 2 / bytes_of_step
    return _interleave(length, max(int(min(_WINDOW_SAMPLES, steps) / length), 1), int(steps))


def _interleave(length: int, window: int, steps: int) -> SegmentShuffle:
    """Returns a shuffle with the maximum number of lanes, given enough segments per lane."""
    lanes = min(max(window, steps // length) // _MIN_LANE_SEGMENTS, _MAX_SHUFFLE_LANES)
    return SegmentShuffle(length, window, 1 << max(lanes.bit_length() - 1, 0))


def _list_episodic(samples: Samples) -> list[str]:
    """Returns the fields that are read by whole episodes."""
    return [path for path in samples.table.fields if not samples.table.storage.is_random(path)]


def _episodic_bytes(samples: Samples) -> float:
    """Returns the approximate memory of a step of the fields read by whole episodes, in bytes."""
    return sum(bytes_in_memory(samples, path) for path in _list_episodic(samples))


def bytes_in_memory(samples: Samples, path: str) -> float:
    """Returns the approximate bytes of a value of a field; image files are compressed."""
    field = samples.table.storage.fields[path]
    size = row_bytes(field, _DEFAULT_VALUE_BYTES)
    return size * _COMPRESSED_FRACTION if field.encoding else size


def _step_bytes(samples: Samples) -> float:
    sizes = [samples.table.storage.bytes_of_step(path) for path in samples.table.fields]
    return float(np.nansum(sizes))


def _measure_memory() -> int:
    """Returns the memory of the machine, or of this container, in bytes."""
    if not hasattr(os, "sysconf"):  # Windows lacks `sysconf`.
        return sys.maxsize
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(limit) as file:
                memory = min(memory, int(file.read()))
        except (OSError, ValueError):  # The file is missing, or there is no limit.
            continue
    return memory


def explain(datasets: Sequence[Samples], plans: Sequence[Plan], batch_size: int) -> str:
    """Explains the cost of a batch, and the ways to reduce it.

    Args:
      datasets: The samples of each dataset.
      plans: The plan of each dataset.
      batch_size: The number of samples in a batch.
    """
    lines = []
    for samples, plan in zip(datasets, plans):
        lines += [repr(samples), f"shuffle: {_shuffle_text(samples, plan)}; {plan.reason}"]
        lines += _count_lines(samples)
        amplification = _read_amplification(samples, plan)
        lines += [f"  {line}" for line in _describe_fields(samples, amplification)]
        if not _fits_cache(samples):
            lines.append(
                "cheaper: rlds.feeds.materialise(path, directory) writes a copy whose steps are "
                "read one by one; or omit fields that you do not need (fields=[...])"
            )
    return "\n".join(lines)


def _shuffle_text(samples: Samples, plan: Plan) -> str:
    if not isinstance(plan.shuffle, SegmentShuffle):
        return {"global": "all samples", "weighted": "drawn by weight", None: "none"}[plan.shuffle]
    length, window = plan.shuffle.length, max(plan.shuffle.window, plan.shuffle.lanes)
    if length is None:
        return f"{window} episodes at a time"
    if length * window >= len(samples):
        return "all samples, after reading them all"
    return f"{window} runs of about {length} samples at a time"


def _count_lines(samples: Samples) -> list[str]:
    counts = samples.counts()
    empty = int((counts == 0).sum())
    if not empty:
        return []
    return [f"{empty} of {len(counts)} episodes are too short for a sample"]


def _fits_cache(samples: Samples) -> bool:
    """True if the fields that are read by whole episodes fit into the cache."""
    return _episodic_bytes(samples) * samples.table.num_steps <= samples.table.cache_bytes


def _read_amplification(samples: Samples, plan: Plan) -> float:
    """Returns the read amplification of fields read by whole episodes: steps read per step used."""
    table = samples.table
    steps = max(table.num_steps, 1)
    if _fits_cache(samples) or isinstance(plan.shuffle, SegmentShuffle):
        return max(steps / max(len(samples), 1), 1.0)  # An episode is read for all its samples.
    return steps / max(table.num_episodes, 1)


def _describe_fields(samples: Samples, factor: float) -> list[str]:
    lines = []
    for path, field in samples.table.fields.items():
        size = f"{bytes_in_memory(samples, path):.0f} bytes a step"
        if field.is_text or None in field.shape:
            size = f"a {field}"
        elif field.encoding:
            size = f"an image file of about {samples.table.storage.bytes_of_step(path):.0f} bytes"
        if not samples.table.storage.is_random(path):
            access = f"read by whole episodes, {factor:.1f} bytes for each byte used"
        elif samples.table.storage.is_image(path):
            access = "decoded one by one, 1 byte for each byte used"
        else:
            access = "copied, 1 byte for each byte used"
        lines.append(f"{path}: {size}, {access}")
    return lines
