"""The statistics of features, as LeRobot has them: of each episode, and of all.

Numbers have them along the last dimension; the others count as rows. Images have them for each
channel, of pixels between 0 and 1, and not of all frames. The quantiles of an episode are exact,
where LeRobot takes them from histograms; so are those of all episodes, of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlds.statistics.quantile_sketch import QuantileSketch

__all__ = [
    "QUANTILES",
    "Statistics",
    "Total",
    "of_column",
    "of_column_like",
    "of_images",
    "sampled_frames",
    "shaped_like",
    "statistics_in",
]

# The arrays of a feature, by name: min, max, mean, std, count, and the quantiles.
Statistics: TypeAlias = dict[str, np.ndarray]
# The statistics of an episode, and its rows, by the names of features.
_Episode: TypeAlias = tuple[Mapping[str, Statistics], Mapping[str, np.ndarray]]

QUANTILES: Mapping[str, float] = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}

# How many frames of an episode are looked at, and how large images are looked at.
_MIN_FRAMES, _MAX_FRAMES, _POWER = 100, 10_000, 0.75
_LARGE, _SMALL = 300, 150
# Of more columns no quantiles of all episodes are computed: each takes 64 kB and more.
_MOST_QUANTILES = 4096
# How many episodes, and bytes of their rows, are added together.
_EPISODES_AT_ONCE, _BYTES_AT_ONCE = 100, 1 << 20
# How many values stand for a frame of which only the quantiles of its episode are known.
_POINTS = 10


def of_column(column: np.ndarray) -> Statistics:
    """Returns the statistics of a feature of numbers in an episode.

    Args:
      column: The rows, at least one.

    >>> found = of_column(np.array([[1, 8], [2, 6], [3, 7]]))
    >>> found["min"], found["mean"], found["q50"], found["count"]
    (array([1., 6.]), array([2., 7.]), array([2., 7.]), array([3]))
    """
    rows = column.reshape(-1, column.shape[-1] if column.ndim > 1 else 1).astype(np.float64)
    ordered = np.sort(rows, axis=0)
    with np.errstate(all="ignore"):  # There may be infinite numbers, and NaN.
        found = {"min": ordered[0], "max": ordered[-1], "mean": rows.mean(0), "std": rows.std(0)}
    found["count"] = np.array([len(column)])
    if np.isnan(ordered[-1]).any():
        found["min"] = np.where(np.isnan(ordered[-1]), np.nan, ordered[0])
    return found | {name: ordered[_rank(share, len(rows))] for name, share in QUANTILES.items()}


def of_column_like(column: np.ndarray, like: Statistics | None) -> Statistics:
    """Returns those of a feature in the shape that they have in other episodes, if it has one."""
    if like is not None and like["mean"].shape == column.shape[1:]:
        column = column.reshape(len(column), -1)
    return of_column(column)


def of_images(images: Iterable[np.ndarray], values: np.ndarray | None = None) -> Statistics:
    """Returns the statistics of a feature of images in an episode.

    Pixels of uint8 count as numbers from 0 to 1. Others are depths, in their unit.

    Args:
      images: The sampled frames, at least one: arrays of height, width and channels.
      values: The depth of each code that a pixel may be, ascending, if pixels are codes.
    """
    counts, scale, num_images = np.zeros((0, 0), np.int64), 1.0, 0
    shrunk = map(_shrunk, images)
    for image in shrunk:
        if image.dtype.kind == "f":
            return _of_depths([image, *shrunk])
        if not num_images:
            scale = 255.0 if image.dtype == np.uint8 else 1.0
            counts = np.zeros((image.shape[-1], np.iinfo(image.dtype).max + 1), np.int64)
        for channel, row in enumerate(counts):
            row += np.bincount(image[..., channel].reshape(-1), minlength=len(row))
        num_images += 1
    codes = np.arange(counts.shape[1])
    values = (codes if values is None else values.take(codes, mode="clip")).astype(np.float64)
    sums = counts.cumsum(axis=1)
    number = int(sums[0, -1])
    mean = counts @ values / number
    variance = [row @ (values - center) ** 2 / number for row, center in zip(counts, mean)]
    ranks = {"min": 0, "max": number - 1}
    ranks |= {name: _rank(share, number) for name, share in QUANTILES.items()}
    found: dict[str, np.ndarray] = {"mean": mean, "std": np.sqrt(variance)}
    for name, rank in ranks.items():
        found[name] = values[[int(np.searchsorted(row, rank, "right")) for row in sums]]
    shaped = {name: value.reshape(-1, 1, 1) / scale for name, value in found.items()}
    return {**shaped, "count": np.array([num_images])}


def _of_depths(images: Sequence[np.ndarray]) -> Statistics:
    found = of_column(np.concatenate([image.reshape(-1, image.shape[-1]) for image in images]))
    shaped = {name: value.reshape(-1, 1, 1) for name, value in found.items()}
    return {**shaped, "count": np.array([len(images)])}


def sampled_frames(num_frames: int) -> list[int]:
    """Returns the frames of an episode that its statistics are of.

    >>> len(sampled_frames(50)), len(sampled_frames(1000)), sampled_frames(150)[:4]
    (50, 177, [0, 2, 3, 5])
    """
    number = max(min(_MIN_FRAMES, num_frames), min(int(num_frames**_POWER), _MAX_FRAMES))
    frames: list[int] = np.round(np.linspace(0, num_frames - 1, number)).astype(int).tolist()
    return frames


def statistics_in(row: Mapping[str, Any]) -> dict[str, Statistics]:
    """Returns those that a table says an episode has, by feature.

    Args:
      row: All that the table says of it: `stats/<feature>/<kind>`.
    """
    found: dict[str, Statistics] = {}
    for key, value in row.items():
        name, _, kind = key.removeprefix("stats/").rpartition("/")
        if key.startswith("stats/") and value is not None:
            dtype = np.int64 if kind == "count" else np.float64
            found.setdefault(name, {})[kind] = np.asarray(value, dtype)
    return found


def shaped_like(
    found: Mapping[str, Statistics], like: Mapping[str, Statistics]
) -> dict[str, Statistics]:
    """Returns statistics of the kinds and the shapes that those of other episodes have."""
    return {
        name: {
            kind: value if kind == "count" else value.reshape(like[name]["mean"].shape)
            for kind, value in of.items()
            if kind in like[name]
        }
        if name in like
        else dict(of)
        for name, of in found.items()
    }


class Total:
    """The statistics of all episodes, by the names of features.

    The quantiles of numbers are those of all rows, see `QuantileSketch`. Those of images are of
    distributions that go straight from quantile to quantile of each episode.

    Args:
      before: Those of episodes that are there already. Each needs `add_quantiles`, too, or there
        are no quantiles.
    """

    def __init__(self, before: Mapping[str, Statistics] | None = None) -> None:
        self._merged = {name: _moments(found) for name, found in (before or {}).items()}
        self._sketches: dict[str, QuantileSketch] = {}
        self._counts: dict[str, int] = {}
        # Episodes that are added together, which takes less time, and the size of their rows.
        self._waiting: list[_Episode] = []
        self._num_bytes = 0

    def add(self, episode: Mapping[str, Statistics], rows: Mapping[str, np.ndarray]) -> None:
        """Adds an episode.

        Args:
          episode: Its statistics.
          rows: Its features of numbers.
        """
        self._waiting.append((episode, rows))
        self._num_bytes += sum(column.nbytes for column in rows.values())
        if len(self._waiting) == _EPISODES_AT_ONCE or self._num_bytes > _BYTES_AT_ONCE:
            self._add_waiting()

    def _add_waiting(self) -> None:
        episodes, self._waiting, self._num_bytes = self._waiting, [], 0
        for name in dict.fromkeys(name for episode, _ in episodes for name in episode):
            found = [self._merged[name]] if name in self._merged else []
            found += [episode[name] for episode, _ in episodes if name in episode]
            self._merged[name] = _merged(found)
        self.add_quantiles(episodes)

    def add_quantiles(self, episodes: Iterable[_Episode]) -> None:
        """Adds what only quantiles need.

        Args:
          episodes: The arguments of `add` for each episode.
        """
        values: dict[str, list[np.ndarray]] = {}
        for episode, rows in episodes:
            for name, found in episode.items():
                size, count = found["mean"].size, int(found["count"].max())
                if QUANTILES.keys() - found.keys() or size > _MOST_QUANTILES:
                    continue
                column = rows[name] if name in rows else _spread(found, _POINTS * count)
                if column.size % size == 0:
                    values.setdefault(name, []).append(column.reshape(-1, size))
                    self._counts[name] = self._counts.get(name, 0) + count
        for name, columns in values.items():
            sketch = self._sketches.setdefault(name, QuantileSketch(columns[0].shape[1]))
            sketch.add(np.concatenate(columns))

    @property
    def features(self) -> dict[str, Statistics]:
        """The statistics, with the quantiles of features of which all episodes have some."""
        self._add_waiting()
        return {name: {**found, **self._quantiles(name)} for name, found in self._merged.items()}

    def _quantiles(self, name: str) -> Statistics:
        merged = self._merged[name]
        if self._counts.get(name) != merged["count"].max():
            return {}
        with np.errstate(invalid="ignore"):  # Of infinite values.
            found = self._sketches[name].quantiles([*QUANTILES.values()])
        return {q: value.reshape(merged["mean"].shape) for q, value in zip(QUANTILES, found)}


def _moments(found: Statistics) -> Statistics:
    return {kind: value for kind, value in found.items() if kind not in QUANTILES}


def _spread(found: Statistics, number: int) -> np.ndarray:
    """Returns values of a distribution of which the quantiles are known."""
    known = np.stack([found[kind].reshape(-1) for kind in ("min", *QUANTILES, "max")], axis=1)
    shares = (np.arange(number) + 0.5) / number
    return np.stack([np.interp(shares, [0, *QUANTILES.values(), 1], row) for row in known], axis=1)


def _merged(found: Sequence[Statistics]) -> Statistics:
    if len(found) == 1:
        return _moments(found[0])
    kinds = ("min", "max", "mean", "std", "count")
    least, most, means, stds, counts = (np.stack([of[k] for of in found], -1) for k in kinds)
    number = counts.sum(-1)
    shares = counts / number[..., None]
    with np.errstate(invalid="ignore"):  # Of infinite values.
        mean = (means * shares).sum(-1)
        variance = ((stds**2 + (means - mean[..., None]) ** 2) * shares).sum(-1)
        return {
            "min": least.min(-1),
            "max": most.max(-1),
            "mean": mean,
            "std": np.sqrt(variance),
            "count": number,
        }


def _rank(share: float, number: int) -> int:
    """Which of the ordered values is a quantile."""
    return max(0, int(np.ceil(share * number)) - 1)


def _shrunk(image: np.ndarray) -> np.ndarray:
    """Large images, with some of their rows and columns."""
    height, width = image.shape[:2]
    if max(height, width) < _LARGE:
        return image
    step = int((width if width > height else height) / _SMALL)
    return image[::step, ::step]
