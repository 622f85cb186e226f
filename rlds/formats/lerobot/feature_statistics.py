"""Feature statistics of LeRobot datasets (`stats.json`), of episodes and of all episodes.

Numeric features have statistics for each element of the last dimension; further dimensions count as
rows. Images have statistics for each channel, of pixels between 0 and 1, from sampled frames.
Quantiles of numbers are exact; LeRobot computes them from histograms of an episode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlds.formats.lerobot.parquet_rows import as_numpy
from rlds.formats.lerobot.tables import flatten_column, list_type, to_arrow
from rlds.statistics.quantile_sketch import QuantileSketch

__all__ = [
    "KINDS",
    "QUANTILES",
    "FeatureTotals",
    "QuantileSelection",
    "Statistics",
    "column_statistics",
    "column_statistics_like",
    "image_statistics",
    "match_shapes",
    "read_statistics",
    "replace_statistics",
    "sample_frames",
    "statistics_by_column",
]

# The arrays of a feature, by name: min, max, mean, std, count, and the quantiles.
Statistics: TypeAlias = dict[str, np.ndarray]

QUANTILES: Mapping[str, float] = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}

MOMENTS = ("min", "max", "mean", "std", "count")
KINDS = {*MOMENTS, *QUANTILES}
"""The names of the arrays of a feature."""

# The limits of the sampled frames of an episode, and the power of its length in their number.
# Images above a size are downsampled to another size.
_MIN_SAMPLES, _MAX_SAMPLES, _POWER = 100, 10_000, 0.75
_MAX_IMAGE_SIDE, _SAMPLED_SIDE = 300, 150
# Features with more elements get no quantiles of all episodes: an element takes 64 kB or more.
_MAX_QUANTILE_COLUMNS = 4096
# The number of episodes whose moments are merged together, and the limit of bytes of pending rows.
_EPISODES_PER_MERGE, _MAX_PENDING_BYTES = 100, 1 << 20
# The size limit of columns whose statistics are computed together.
_MAX_BATCHED_ELEMENTS = 1 << 14
# Bisection steps in the search for a quantile of images.
_BISECTION_STEPS = 40


def column_statistics(column: np.ndarray) -> Statistics:
    """Returns the statistics of a numeric feature in an episode.

    Args:
      column: The rows, at least one.

    >>> statistics = column_statistics(np.array([[1, 8], [2, 6], [3, 7]]))
    >>> statistics["min"], statistics["mean"], statistics["q50"], statistics["count"]
    (array([1., 6.]), array([2., 7.]), array([2., 7.]), array([3]))
    """
    elements = _elements(column)
    ordered = np.sort(elements, axis=1).T
    with np.errstate(all="ignore"):  # Values may be infinite or NaN.
        moments = {"mean": elements.mean(1), "std": elements.std(1)}
    kinds = {"min": ordered[0], "max": ordered[-1], **moments, "count": np.array([len(column)])}
    if np.isnan(ordered[-1]).any():
        kinds["min"] = np.where(np.isnan(ordered[-1]), np.nan, ordered[0])
    return kinds | {name: ordered[_rank(level, len(ordered))] for name, level in QUANTILES.items()}


def _elements(column: np.ndarray) -> np.ndarray:
    """Returns the values by element of a feature.

    They are contiguous, so that sums do not depend on the other elements.
    """
    rows = column.reshape(-1, column.shape[-1] if column.ndim > 1 else 1)
    return np.ascontiguousarray(rows.T, np.float64)


def statistics_by_column(columns: Mapping[str, np.ndarray]) -> dict[str, Statistics]:
    """Returns the statistics of numeric features in an episode; small features share a pass."""
    small = {name: _elements(c) for name, c in columns.items() if c.size <= _MAX_BATCHED_ELEMENTS}
    features = {name: column_statistics(c) for name, c in columns.items() if name not in small}
    for num_rows in {column.shape[1] for column in small.values()}:
        names = [name for name, column in small.items() if column.shape[1] == num_rows]
        joint = column_statistics(np.concatenate([small[name] for name in names]).T)
        end_columns = np.cumsum([len(small[name]) for name in names]).tolist()
        for name, start, end in zip(names, [0, *end_columns], end_columns):
            features[name] = {kind: values[start:end] for kind, values in joint.items()}
            features[name]["count"] = np.array([len(columns[name])])
    return {name: features[name] for name in columns}


def column_statistics_like(column: np.ndarray, template: Statistics | None) -> Statistics:
    """Returns the statistics of a feature in the shape of another episode, if possible."""
    if template is not None and template["mean"].shape == column.shape[1:]:
        column = column.reshape(len(column), -1)
    return column_statistics(column)


def image_statistics(images: Iterable[np.ndarray], values: np.ndarray | None = None) -> Statistics:
    """Returns the statistics of an image feature in an episode.

    Pixels of uint8 are numbers from 0 to 1; pixels of other dtypes are depths in their unit.

    Args:
      images: The sampled frames, at least one: arrays of height, width and channels.
      values: The lookup table of depths, ascending, if pixels are codes.
    """
    counts, scale, num_images = np.zeros((0, 0), np.int64), 1.0, 0
    samples = map(_downsample, images)
    for image in samples:
        if image.dtype.kind == "f":
            return _of_depths([image, *samples])
        if not num_images:
            scale = 255.0 if image.dtype == np.uint8 else 1.0
            counts = np.zeros((image.shape[-1], np.iinfo(image.dtype).max + 1), np.int64)
        for channel, row in enumerate(counts):
            row += np.bincount(image[..., channel].reshape(-1), minlength=len(row))
        num_images += 1
    codes = np.arange(counts.shape[1])
    values = (codes if values is None else values.take(codes, mode="clip")).astype(np.float64)
    sums = counts.cumsum(axis=1)
    num_pixels = int(sums[0, -1])
    mean = counts @ values / num_pixels
    variance = [row @ (values - center) ** 2 / num_pixels for row, center in zip(counts, mean)]
    ranks = {"min": 0, "max": num_pixels - 1}
    ranks |= {name: _rank(level, num_pixels) for name, level in QUANTILES.items()}
    kinds: dict[str, np.ndarray] = {"mean": mean, "std": np.sqrt(variance)}
    for name, rank in ranks.items():
        kinds[name] = values[[int(np.searchsorted(row, rank, "right")) for row in sums]]
    reshaped = {name: value.reshape(-1, 1, 1) / scale for name, value in kinds.items()}
    return {**reshaped, "count": np.array([num_images])}


def _of_depths(images: Sequence[np.ndarray]) -> Statistics:
    kinds = column_statistics(np.concatenate([i.reshape(-1, i.shape[-1]) for i in images]))
    reshaped = {name: value.reshape(-1, 1, 1) for name, value in kinds.items()}
    return {**reshaped, "count": np.array([len(images)])}


def sample_frames(num_frames: int) -> list[int]:
    """Returns the indices of sampled frames for the statistics of an episode.

    >>> len(sample_frames(50)), len(sample_frames(1000)), sample_frames(150)[:4]
    (50, 177, [0, 2, 3, 5])
    """
    num_sampled = max(min(_MIN_SAMPLES, num_frames), min(int(num_frames**_POWER), _MAX_SAMPLES))
    frames: list[int] = np.round(np.linspace(0, num_frames - 1, num_sampled)).astype(int).tolist()
    return frames


def read_statistics(row: Mapping[str, Any]) -> dict[str, Statistics]:
    """Reads the statistics in a table row of an episode, by feature.

    Args:
      row: The cells of the row, such as `stats/<feature>/<kind>`.
    """
    features: dict[str, Statistics] = {}
    for key, value in row.items():
        name, _, kind = key.removeprefix("stats/").rpartition("/")
        if key.startswith("stats/") and value is not None:
            dtype = np.int64 if kind == "count" else np.float64
            features.setdefault(name, {})[kind] = np.asarray(value, dtype)
    return features


def match_shapes(
    features: Mapping[str, Statistics], template: Mapping[str, Statistics]
) -> dict[str, Statistics]:
    """Converts statistics to the kinds and shapes of another episode."""
    return {
        name: {
            kind: value if kind == "count" else value.reshape(template[name]["mean"].shape)
            for kind, value in values.items()
            if kind in template[name]
        }
        if name in template
        else dict(values)
        for name, values in features.items()
    }


def replace_statistics(table: Any, name: str, old: np.ndarray, new: np.ndarray) -> Any:
    """Replaces the statistics of a renumbered column in a table of episodes.

    Args:
      table: The table, see `read_statistics`, with the lengths of the episodes.
      name: The name of the column, of integers.
      old: The old values in all rows.
      new: The new values.
    """
    lengths = flatten_column(table["length"])
    starts = np.cumsum(lengths) - lengths
    change = new.astype(np.float64) - old
    shift = change[starts]
    is_present, kinds_of_table = _kind_arrays(table, name, (*MOMENTS, *QUANTILES))
    kinds = {
        kind: np.zeros([len(table), 1], values.dtype)
        for kind, values in column_statistics(new[:1]).items()
    }
    is_shifted = np.zeros(len(table), bool)
    if kinds_of_table:
        for kind, values in kinds_of_table.items():
            kinds[kind][is_present] = values
        is_shifted = np.maximum.reduceat(change, starts) == np.minimum.reduceat(change, starts)
        # Sums of halves are exact; all other sums depend on the order.
        is_exact = (shift == 0) | (2 * kinds["mean"][:, 0] % 1 == 0)
        is_shifted &= is_present & is_exact
    for kind in kinds.keys() - {"std", "count"}:
        kinds[kind][is_shifted] += shift[is_shifted, None]
    for episode in np.flatnonzero(~is_shifted).tolist():
        start = starts[episode]
        for kind, value in column_statistics(new[start : start + lengths[episode]]).items():
            kinds[kind][episode] = value
    for kind, values in kinds.items():
        key = f"stats/{name}/{kind}"
        column = to_arrow(values, list_type(values.dtype))
        if key in table.column_names:
            table = table.set_column(table.column_names.index(key), key, column)
        else:
            table = table.append_column(key, column)
    return table


def _feature_names(table: Any) -> list[str]:
    """Returns the features with statistics in a table of episodes."""
    end = f"/{MOMENTS[0]}"
    names = [key.removeprefix("stats/") for key in table.column_names if key.startswith("stats/")]
    return [name.removesuffix(end) for name in names if name.endswith(end)]


def _kind_arrays(
    table: Any, name: str, kinds: Sequence[str]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns a mask of the episodes with all these statistics, and the statistics as arrays."""
    keys = {kind: f"stats/{name}/{kind}" for kind in kinds}
    if not {*keys.values()} <= {*table.column_names}:
        return np.zeros(len(table), bool), {}
    columns = {kind: table[key].combine_chunks() for kind, key in keys.items()}
    is_present = np.logical_and.reduce([as_numpy(values.is_valid()) for values in columns.values()])
    if not is_present.any():
        return is_present, {}
    if not is_present.all():
        columns = {kind: values.filter(is_present) for kind, values in columns.items()}
    shapes = {kind: np.shape(values[0].as_py()) for kind, values in columns.items()}
    return is_present, {k: flatten_column(c).reshape(-1, *shapes[k]) for k, c in columns.items()}


class FeatureTotals:
    """The statistics of all episodes, by the names of features.

    `QuantileSketch` approximates quantiles of all rows of numbers, and `select` replaces them by
    exact quantiles. Quantiles of images are computed from a mixture of piecewise linear
    distributions between the quantiles of each episode.

    Args:
      initial: The statistics of existing episodes. Without a call of `add_quantiles` for each of
        these episodes, there are no quantiles.
    """

    def __init__(self, initial: Mapping[str, Statistics] | None = None) -> None:
        self._merged = {name: _drop_quantiles(kinds) for name, kinds in (initial or {}).items()}
        self._sketches: dict[str, QuantileSketch] = {}
        self._knots: dict[str, list[np.ndarray]] = {}
        self._counts: dict[str, list[int]] = {}
        self._exact: dict[str, np.ndarray] = {}
        # Pending episodes and rows, as merging several of them at once is faster.
        self._pending: list[Mapping[str, Statistics]] = []
        self._rows: dict[str, list[np.ndarray]] = {}
        self._num_bytes = 0

    def add(self, episode: Mapping[str, Statistics], rows: Mapping[str, np.ndarray]) -> None:
        """Adds an episode.

        Args:
          episode: The statistics of the episode.
          rows: The numeric features of the episode.
        """
        self._pending.append(episode)
        if len(self._pending) == _EPISODES_PER_MERGE:
            self._merge_pending()
        self.add_quantiles(episode, rows)

    def _merge_pending(self) -> None:
        episodes, self._pending = self._pending, []
        for name in dict.fromkeys(name for episode in episodes for name in episode):
            kinds = [episode[name] for episode in episodes if name in episode]
            self._add_moments(
                name, {kind: np.stack([values[kind] for values in kinds]) for kind in MOMENTS}
            )

    def _add_moments(self, name: str, kinds: Statistics) -> None:
        """Adds the moments of a feature in several episodes, along the first axis."""
        if name in self._merged:
            old_kinds = self._merged[name]
            kinds = {kind: np.concatenate([old_kinds[kind][None], v]) for kind, v in kinds.items()}
        self._merged[name] = _merge_moments(kinds)

    def add_table(self, table: Any) -> None:
        """Adds the moments of episodes.

        Args:
          table: Columns of the table of episodes, `stats/<feature>/<kind>`.
        """
        for name in _feature_names(table):
            is_present, moments = _kind_arrays(table, name, MOMENTS)
            offsets = np.append(0, np.cumsum(is_present))
            for start in range(0, len(table), _EPISODES_PER_MERGE):
                span = slice(*offsets[[start, min(start + _EPISODES_PER_MERGE, len(table))]])
                if span.start < span.stop:
                    self._add_moments(name, {kind: v[span] for kind, v in moments.items()})

    def add_table_quantiles(self, table: Any, rows: Mapping[str, np.ndarray]) -> None:
        """Adds the quantile data of several episodes.

        Args:
          table: See `add_table`; with the lengths of the episodes.
          rows: The numeric features in all rows of the episodes, by name.
        """
        lengths = flatten_column(table["length"])
        for name in _feature_names(table):
            is_present, kinds = _kind_arrays(table, name, ("count", "min", *QUANTILES, "max"))
            if not kinds or (size := kinds["min"][0].size) > _MAX_QUANTILE_COLUMNS:
                continue
            counts, *knots = (values.reshape(len(values), -1) for values in kinds.values())
            values = rows.get(name)
            if values is not None and not is_present.all():
                values = values.reshape(lengths.sum(), -1)[np.repeat(is_present, lengths)]
            per_episode = counts.max(axis=1).tolist()
            self._add_quantiles(name, per_episode, size, values, functools.partial(np.stack, knots))
        if self._num_bytes > _MAX_PENDING_BYTES:
            self._add_rows()

    def merge_rows(self, other: FeatureTotals) -> None:
        """Merges the quantile data of another total."""
        other._add_rows()
        for name, sketch in other._sketches.items():
            if name in self._sketches:
                self._sketches[name].merge(sketch)
            else:
                self._sketches[name] = sketch
        for name, counts in other._counts.items():
            self._counts.setdefault(name, []).extend(counts)
        for name, knots in other._knots.items():
            self._knots.setdefault(name, []).extend(knots)

    def add_quantiles(self, episode: Mapping[str, Statistics], rows: Mapping[str, Any]) -> None:
        """Adds the quantile data of an episode; see `add`."""
        for name, kinds in episode.items():
            size, count = kinds["mean"].size, int(kinds["count"].max())
            if QUANTILES.keys() - kinds.keys() or size > _MAX_QUANTILE_COLUMNS:
                continue
            knots = functools.partial(_stack_knots, kinds)
            self._add_quantiles(name, [count], size, rows.get(name), knots)
        if self._num_bytes > _MAX_PENDING_BYTES:
            self._add_rows()

    def _add_quantiles(
        self,
        name: str,
        counts: Sequence[int],
        size: int,
        rows: np.ndarray | None,
        knots: Callable[[], np.ndarray],
    ) -> None:
        """Adds the quantile data of a feature: rows, or the knots of episodes without rows."""
        if rows is None:
            self._knots.setdefault(name, []).append(knots())
        elif rows.size % size:
            return
        else:
            self._rows.setdefault(name, []).append(rows.reshape(-1, size))
            self._num_bytes += rows.nbytes
        self._counts.setdefault(name, []).extend(counts)

    def _add_rows(self) -> None:
        rows, self._rows, self._num_bytes = self._rows, {}, 0
        for name, columns in rows.items():
            sketch = self._sketches.setdefault(name, QuantileSketch(columns[0].shape[1]))
            sketch.add(np.concatenate(columns))

    def selections(self) -> dict[str, QuantileSelection]:
        """Returns the selections of exact quantiles, for features with an error of the sketch."""
        self._add_rows()
        return {name: QuantileSelection(s) for name, s in self._sketches.items() if s.error}

    def select(self, selections: Mapping[str, QuantileSelection]) -> None:
        """Sets the exact quantiles, from the `selections` after all rows were added."""
        self._exact = {name: values.quantiles() for name, values in selections.items()}

    @property
    def features(self) -> dict[str, Statistics]:
        """The statistics; with quantiles, if all episodes have quantile data of a feature."""
        self._merge_pending()
        self._add_rows()
        return {name: {**values, **self._quantiles(name)} for name, values in self._merged.items()}

    def _quantiles(self, name: str) -> Statistics:
        kinds, counts = self._merged[name], self._counts.get(name, [])
        if sum(counts) != kinds["count"].max():
            return {}
        if name in self._knots:
            values: Any = _mixture_quantiles(
                np.concatenate(self._knots[name], axis=1), np.array(counts)
            )
        elif name in self._exact:
            values = self._exact[name]
        else:
            with np.errstate(invalid="ignore"):  # Infinite minus infinite is NaN.
                values = self._sketches[name].quantiles([*QUANTILES.values()])
        return {q: value.reshape(kinds["mean"].shape) for q, value in zip(QUANTILES, values)}


class QuantileSelection:
    """The candidates of exact quantiles, with the number of smaller values.

    Args:
      sketch: The approximate quantiles of all values, with their error.
    """

    def __init__(self, sketch: QuantileSketch) -> None:
        self._max_rank = sketch.count - 1
        error, levels = sketch.error + 3 / self._max_rank, np.array([*QUANTILES.values()])
        with np.errstate(invalid="ignore"):  # There is no interpolation between infinite values.
            low = np.stack(sketch.quantiles([*np.clip(levels - error, 0, 1)]))
            self._high = np.stack(sketch.quantiles([*np.clip(levels + error, 0, 1)]))
        self._low = np.where(np.isnan(low), -np.inf, low)
        self._num_less, self._num_equal = np.zeros((2, *self._low.shape), np.int64)
        self._candidates: list[list[list[np.ndarray]]]
        self._candidates = [[[] for _ in values] for values in self._low]

    def add(self, rows: np.ndarray) -> None:
        """Adds the values of rows, flattened."""
        ordered = np.sort(rows.reshape(-1, self._low.shape[1]).astype(np.float64), axis=0)
        for cell in np.ndindex(*self._low.shape):
            column, (low, high) = ordered[:, cell[1]], (self._low[cell], self._high[cell])
            start, middle = np.searchsorted(column, low), np.searchsorted(column, low, "right")
            self._num_less[cell] += start
            self._num_equal[cell] += middle - start
            candidates = column[middle : np.searchsorted(column, high)]
            self._candidates[cell[0]][cell[1]].append(candidates.copy())

    def merge(self, other: QuantileSelection) -> None:
        """Merges a selection of the same sketch."""
        self._num_less += other._num_less
        self._num_equal += other._num_equal
        for ours, theirs in zip(self._candidates, other._candidates):
            for values, other_values in zip(ours, theirs):
                values.extend(other_values)

    def quantiles(self) -> np.ndarray:
        """Returns the quantiles, equal to `np.quantile`: `[quantiles, columns]`."""
        result = np.empty(self._low.shape)
        for cell in np.ndindex(*result.shape):
            level = [*QUANTILES.values()][cell[0]] * self._max_rank
            candidates = np.sort(np.concatenate(self._candidates[cell[0]][cell[1]]))
            rank = int(level) - int(self._num_less[cell])
            assert rank >= 0
            num_equal = int(self._num_equal[cell])
            values = [self._low[cell], *candidates, self._high[cell]]
            positions = [max(position - num_equal + 1, 0) for position in (rank, rank + 1)]
            low, high = (values[min(end, len(values) - 1)] for end in positions)
            with np.errstate(invalid="ignore"):  # Infinite minus infinite is NaN.
                result[cell] = low + (level - int(level)) * (high - low) if low != high else low
        return result


def _stack_knots(kinds: Statistics) -> np.ndarray:
    """Returns the knots of the piecewise linear distribution of an episode: min, quantiles, max."""
    return np.stack([kinds[kind].reshape(1, -1) for kind in ("min", *QUANTILES, "max")])


def _mixture_quantiles(knots: np.ndarray, weights: np.ndarray) -> list[np.ndarray]:
    """Returns the quantiles of a mixture of piecewise linear distributions.

    Args:
      knots: The minima, quantiles and maxima, `[7, distributions, columns]`.
      weights: The weight of each distribution.
    """
    widths, masses = np.diff(knots, axis=0), np.diff([0, *QUANTILES.values(), 1])
    weights = weights / weights.sum()
    quantiles = []
    for level in QUANTILES.values():
        low, high = knots[0].min(0), knots[-1].max(0)
        for _ in range(_BISECTION_STEPS):
            middle = (low + high) / 2
            with np.errstate(all="ignore"):
                ratios = np.where(widths > 0, (middle - knots[:-1]) / widths, middle >= knots[:-1])
            is_less = weights @ np.tensordot(masses, ratios.clip(0, 1), 1) < level
            low, high = np.where(is_less, middle, low), np.where(is_less, high, middle)
        quantiles.append(high)
    return quantiles


def _drop_quantiles(kinds: Statistics) -> Statistics:
    return {kind: value for kind, value in kinds.items() if kind not in QUANTILES}


def _merge_moments(kinds: Statistics) -> Statistics:
    """Combines the moments of several distributions along the first axis."""
    if len(kinds["count"]) == 1:
        return {kind: value[0] for kind, value in kinds.items()}
    minima, maxima, means, stds, counts = (
        np.ascontiguousarray(np.moveaxis(kinds[kind], 0, -1)) for kind in MOMENTS
    )
    count = counts.sum(-1)
    levels = counts / count[..., None]
    with np.errstate(invalid="ignore"):  # Infinite minus infinite is NaN.
        mean = (means * levels).sum(-1)
        variance = ((stds**2 + (means - mean[..., None]) ** 2) * levels).sum(-1)
        return {
            "min": minima.min(-1),
            "max": maxima.max(-1),
            "mean": mean,
            "std": np.sqrt(variance),
            "count": count,
        }


def _rank(level: float, count: int) -> int:
    """Returns the position of a quantile among the ordered values."""
    return max(0, int(np.ceil(level * count)) - 1)


def _downsample(image: np.ndarray) -> np.ndarray:
    """Downsamples a large image by dropping rows and columns."""
    height, width = image.shape[:2]
    if max(height, width) < _MAX_IMAGE_SIDE:
        return image
    step = int((width if width > height else height) / _SAMPLED_SIDE)
    return image[::step, ::step]
