"""Statistics of the fields of a dataset: one-pass computation, merging, storage.

`compute_statistics` takes episodes of NumPy columns, without TensorFlow;
`rlds.transformations.compute_statistics` takes a `tf.data` dataset, with the same result.
"""

import copy
import dataclasses
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlds import rlds_types
from rlds.statistics.quantile_sketch import QuantileSketch
from rlds_ecosystem.model.nests import named_leaves

__all__ = [
    "FieldStatistics",
    "FieldType",
    "Statistics",
    "StatisticsPass",
    "are_valid",
    "choose_fields",
    "compute_statistics",
    "warn_of_last_actions",
]

_FUNCTION = "compute_statistics"
_NUM_TRANSITIONS = "num_transitions"
_NUM_TRAJECTORIES = "num_trajectories"
_PLACEHOLDER_FIELDS = (rlds_types.ACTION, rlds_types.REWARD, rlds_types.DISCOUNT)
# The number of steps in a call of NumPy, which amortizes the constant cost of calls.
_BATCH_SIZE = 4096
# The smallest share of episodes with nonzero last actions that causes a warning.
_MIN_WARNING_SHARE = 0.1
# The printed table: its width, the largest number of shown elements, the smallest width of names.
_WIDTH, _MAX_SHOWN_ELEMENTS, _MIN_NAME = 100, 8, 8


@dataclasses.dataclass(frozen=True)
class FieldStatistics:
    """Statistics of each element of a field.

    Attributes:
      count: the number of values, int64. All arrays have the shape of the field.
      mean: the mean, float64. `mean` and all further statistics are NaN without values, or if a
        value was NaN.
      squares: the sum of the squared distances from the mean.
      min: the smallest value.
      max: the largest value.
      mask: True for elements to normalize (see `normalize`).
      quantiles: the requested quantiles, by q.
      quantile_error: the largest abs(q - q'): the value of quantile q is the exact quantile q'.
      ddof: the standard deviation has the divisor count - ddof.
    """

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    min: np.ndarray
    max: np.ndarray
    mask: np.ndarray
    quantiles: Mapping[float, np.ndarray] = dataclasses.field(default_factory=dict)
    quantile_error: float = 0.0
    ddof: int = 0
    # One sketch for all elements; with masks of individual values, one for each element.
    _sketches: tuple[QuantileSketch, ...] = dataclasses.field(default=(), repr=False)

    @property
    def std(self) -> np.ndarray:
        """The standard deviation."""
        divisor = self.count - self.ddof
        return np.where(divisor > 0, np.sqrt(self.squares / np.maximum(divisor, 1)), np.nan)

    def __repr__(self) -> str:
        count = int(np.max(self.count, initial=0))
        return f"FieldStatistics(shape={self.mean.shape}, count={count}, ddof={self.ddof})"

    def __str__(self) -> str:
        return _table({"": self})

    def merge(self, other: "FieldStatistics") -> "FieldStatistics":
        """Returns the statistics of the combined values.

        The result has no quantiles if one of the statistics was read from JSON.

        Raises:
          ValueError: if the shapes, the masks or the divisors differ.
        """
        shape, other_shape = self.mean.shape, other.mean.shape
        if shape != other_shape:
            raise ValueError(
                f"The statistics have fields of the shapes {shape} and {other_shape}, expected one."
            )
        if self.ddof != other.ddof:
            raise ValueError(
                f"The statistics have ddof {self.ddof} and {other.ddof}, expected equal values."
            )
        if not np.array_equal(self.mask, other.mask):
            raise ValueError("The statistics have different normalization masks.")
        if not np.any(self.count):
            return other
        if not np.any(other.count):
            return self
        merged = _merge(self, other)
        if not self._sketches or len(self._sketches) != len(other._sketches):
            return merged
        sketches = copy.deepcopy(self._sketches)
        for sketch, other_sketch in zip(sketches, other._sketches):
            sketch.merge(other_sketch)
        return _with_quantiles(merged, sketches, tuple(self.quantiles))


@dataclasses.dataclass(frozen=True)
class Statistics:
    """The statistics of a dataset, by field.

    `statistics["observation/state"]` has the statistics of a field. `a + b` has the statistics of
    the combined data. Statistics are printed as a table.

    Attributes:
      fields: the statistics of each field, by its path.
      num_transitions: the number of actions, without placeholders.
      num_trajectories: the number of episodes.
      num_unmarked_last_actions: the number of episodes without `final_observation_known` whose last
        action or reward was skipped as a placeholder, but is not zero.
    """

    fields: Mapping[str, FieldStatistics]
    num_transitions: int
    num_trajectories: int
    num_unmarked_last_actions: int = 0

    def __getitem__(self, field: str) -> FieldStatistics:
        if field not in self.fields:
            raise KeyError(f"There are no statistics of {field!r}, only of {sorted(self.fields)}.")
        return self.fields[field]

    def __contains__(self, field: object) -> bool:
        return field in self.fields

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __repr__(self) -> str:
        return f"Statistics({self._sizes()}, {list(self.fields)})"

    def __str__(self) -> str:
        return f"{self._sizes()}\n{_table(self.fields)}"

    def rows(self) -> list[list[str]]:
        """Returns the cells of the printed table: the headings, then a row for each element.

        A row for several omitted elements has one cell.
        """
        return _rows_of(self.fields)

    def _sizes(self) -> str:
        return f"{self.num_transitions} transitions, {self.num_trajectories} trajectories"

    def __add__(self, other: "Statistics") -> "Statistics":
        return self.merge(other)

    def merge(self, other: "Statistics") -> "Statistics":
        """Returns the statistics of the combined data.

        Raises:
          ValueError: if the fields differ, or their shapes, masks or ddof.
        """
        if self.fields.keys() != other.fields.keys():
            raise ValueError(
                f"The statistics have the fields {sorted(self.fields)} and "
                f"{sorted(other.fields)}, expected the same."
            )
        fields = {}
        for name, field in self.fields.items():
            try:
                fields[name] = field.merge(other.fields[name])
            except ValueError as error:
                raise ValueError(f"Field {name!r}: {error}") from error
        return Statistics(
            fields,
            self.num_transitions + other.num_transitions,
            self.num_trajectories + other.num_trajectories,
            self.num_unmarked_last_actions + other.num_unmarked_last_actions,
        )

    def to_json(
        self, *, dataset_name: str | None = None, rename: Mapping[str, str] | None = None
    ) -> str:
        """Returns the statistics in the JSON format of Octo and OpenVLA.

        Each field becomes an object with mean, std, min, max, mask, count, and each quantile under
        two names, such as q01 and p01.

        Args:
          dataset_name: the key of the statistics in the JSON, as OpenVLA expects it.
          rename: new names of fields, such as `{"observation/state": "proprio"}`.

        >>> steps = {"action": np.array([1.0, 3.0, 0.0]), "is_last": np.array([False, False, True])}
        >>> text = compute_statistics([{"steps": steps}]).to_json(dataset_name="toy")
        >>> json.loads(text)["toy"]["action"]["mean"]
        2.0
        """
        rename = rename or {}
        content: dict[str, Any] = {
            rename.get(name, name): _to_plain(field) for name, field in self.fields.items()
        }
        if len(content) != len(self.fields):
            raise ValueError(f"to_json: two of the fields {list(self.fields)} have the same name.")
        content[_NUM_TRANSITIONS] = self.num_transitions
        content[_NUM_TRAJECTORIES] = self.num_trajectories
        return json.dumps({dataset_name: content} if dataset_name else content, indent=2)

    @classmethod
    def from_json(cls, text: str, *, dataset_name: str | None = None) -> "Statistics":
        """Reads statistics of `to_json`, Octo or OpenVLA.

        Args:
          text: the content of the file.
          dataset_name: the key of the statistics, if the file has statistics of several datasets.

        Raises:
          ValueError: if the file has no such statistics.
        """
        try:
            content = json.loads(text)
        except ValueError as error:
            raise ValueError(f"from_json: expected JSON, got {text!r:.100}: {error}") from error
        is_by_dataset = isinstance(content, dict) and not any(map(_is_field, content.values()))
        if is_by_dataset and dataset_name is None and len(content) == 1:
            (content,) = content.values()
        elif is_by_dataset:
            if dataset_name not in content:
                raise ValueError(
                    f"from_json: there are statistics of the datasets {sorted(content)}, not of "
                    f"{dataset_name!r}. Pass one of these names as dataset_name."
                )
            content = content[dataset_name]
        if not isinstance(content, dict) or not any(map(_is_field, content.values())):
            raise ValueError("from_json: no field has 'mean' and 'std'.")
        num_transitions = int(content.get(_NUM_TRANSITIONS, 0))
        fields = {
            name: _from_plain(field, num_transitions)
            for name, field in content.items()
            if _is_field(field)
        }
        return cls(fields, num_transitions, int(content.get(_NUM_TRAJECTORIES, 0)))


def compute_statistics(
    episodes: Iterable[Mapping[str, Any]],
    fields: Sequence[str] | None = None,
    *,
    quantiles: Sequence[float] = (0.01, 0.99),
    ddof: int = 0,
    masks: Mapping[str, Any] | None = None,
    include_last_action: bool | None = None,
    finite_only: bool = False,
) -> Statistics:
    """Computes the statistics of fields in one pass over episodes, in constant memory.

    All statistics except the quantiles are float64. Quantiles are exact up to 8191 values; of n
    values the quantile q is the exact quantile q' with
    abs(q - q') < log2(n / 8192) / 16384 + 0.0002.

    Args:
      episodes: episodes whose steps are columns, which may be nested: arrays with a leading time
        axis. The steps need `is_last`.
      fields: names of fields ("action", "observation/state") or of groups of fields. Action, reward
        and discount of the last step count only if `final_observation_known` of the episode is
        False; else they are placeholders. If None: observation, action and reward without texts
        and images.
      quantiles: the quantiles to compute, as numbers from 0 to 1.
      ddof: the divisor of the variance is n - ddof.
      masks: masks of the elements to normalize, by field; all by default.
      include_last_action: see `rlds.transformations.compute_statistics`.
      finite_only: whether NaN and infinite values are left out, also of `FieldStatistics.count`.

    Returns:
      The statistics. Without `finite_only`, the statistics of an element with a NaN are NaN, and a
      `RuntimeWarning` reports it.

    Raises:
      KeyError: if a field is missing.
      TypeError: if a field is not numeric, or an episode has no columns.
      ValueError: if a quantile or a mask is invalid, there are no episodes, or the shape of a field
        differs between episodes.

    >>> steps = {"action": np.array([1.0, 3.0, 0.0]), "is_last": np.array([False, False, True])}
    >>> statistics = compute_statistics([{"steps": steps}], ["action"], quantiles=[0.25])
    >>> action = statistics["action"]
    >>> float(action.mean), float(action.std), float(action.max), float(action.quantiles[0.25])
    (2.0, 1.0, 3.0, 1.5)
    >>> statistics.num_transitions, statistics.num_trajectories
    (2, 1)
    """
    statistics_pass: StatisticsPass | None = None
    pending: list[_Batch] = []
    num_pending = 0
    for index, episode in enumerate(episodes):
        columns = _columns_of(episode, index)
        if statistics_pass is None:
            types = {name: FieldType.from_column(column) for name, column in columns.items()}
            shapes = {name: columns[name].shape[1:] for name in choose_fields(fields, types)}
            statistics_pass = StatisticsPass(shapes, quantiles=quantiles, ddof=ddof, masks=masks)
        pending.append(_batch_of(episode, columns, shapes, index, bool(include_last_action)))
        num_pending += len(pending[-1].is_last)
        if num_pending >= _BATCH_SIZE:
            statistics_pass.add(*_join(pending, finite_only))
            pending, num_pending = [], 0
    if statistics_pass is None:
        raise ValueError(f"{_FUNCTION}: there are no episodes.")
    if pending:
        statistics_pass.add(*_join(pending, finite_only))
    statistics = statistics_pass.result()
    if include_last_action is None:
        warn_of_last_actions(statistics)
    return statistics


class FieldType(NamedTuple):
    """The type of a field, which determines if it has statistics.

    Attributes:
      is_numeric: whether the field holds real numbers or booleans.
      is_image: whether the field holds images, which have statistics only if requested.
      description: a description for messages.
    """

    is_numeric: bool
    is_image: bool
    description: str

    @classmethod
    def from_column(cls, column: np.ndarray) -> "FieldType":
        """Returns the type of a column of steps."""
        shape = column.shape[1:]
        is_image = column.dtype == np.uint8 and len(shape) >= 3
        return cls(column.dtype.kind not in "OSUcMm", is_image, f"{column.dtype} of shape {shape}")


def choose_fields(fields: Sequence[str] | None, types: Mapping[str, FieldType]) -> list[str]:
    """Returns the paths of the fields with statistics.

    Args:
      fields: see `compute_statistics`.
      types: the types of fields, by their paths.

    Raises:
      KeyError: if a field is missing.
      TypeError: if a field is not numeric.
    """
    if fields is None:
        defaults = (rlds_types.OBSERVATION, rlds_types.ACTION, rlds_types.REWARD)
        all_paths = [
            path
            for path, kind in types.items()
            if path.split("/")[0] in defaults and kind.is_numeric and not kind.is_image
        ]
        if not all_paths:
            raise KeyError(f"{_FUNCTION}: none of {defaults} in {sorted(types)} has numbers.")
        return all_paths
    all_paths = []
    for name in [fields] if isinstance(fields, str) else fields:
        paths = [path for path in types if f"{path}/".startswith(f"{name}/")]
        if not paths:
            raise KeyError(f"{_FUNCTION}: there is no field {name!r}. The fields are {[*types]}.")
        all_paths += paths
    for path in all_paths:
        if not types[path].is_numeric:
            type_name = types[path].description
            raise TypeError(f"{_FUNCTION}: field {path!r} must be numeric, got {type_name}.")
    return list(dict.fromkeys(all_paths))


def are_valid(fields: Iterable[str], is_last: Any) -> dict[str, Any]:
    """Returns masks of the valid values of fields that hold placeholders in the last step.

    Args:
      fields: the paths of fields; the result has only fields with placeholders.
      is_last: a mask of the last steps, an array or a tensor.
    """
    return {name: ~is_last for name in fields if name.split("/")[0] in _PLACEHOLDER_FIELDS}


class StatisticsPass:
    """Computes the statistics of batches of steps.

    Args:
      shapes: the shapes of the fields, by their paths.
      quantiles: see `compute_statistics`.
      ddof: see `compute_statistics`.
      masks: see `compute_statistics`.

    Raises:
      ValueError: if a quantile or a mask is invalid.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        quantiles: Sequence[float],
        ddof: int,
        masks: Mapping[str, Any] | None,
    ) -> None:
        for q in quantiles:
            if not 0.0 <= q <= 1.0:
                raise ValueError(f"{_FUNCTION}: quantiles must be between 0 and 1, got {q}.")
        if ddof < 0:
            raise ValueError(f"{_FUNCTION}: ddof must not be negative, got {ddof}.")
        unknown = sorted((masks or {}).keys() - shapes.keys())
        if unknown:
            raise ValueError(
                f"{_FUNCTION}: there are masks for {unknown}, but the fields are {sorted(shapes)}."
            )
        self._quantiles = quantiles
        self._total = {
            name: _create_empty(shape, _mask_of(name, shape, masks or {}), ddof)
            for name, shape in shapes.items()
        }
        self._sketches: dict[str, tuple[QuantileSketch, ...]] = {}
        self._num_transitions = self._num_trajectories = self._num_unmarked = 0

    def add(
        self,
        data: Mapping[str, np.ndarray],
        valid: Mapping[str, np.ndarray],
        is_last: np.ndarray,
        is_unmarked: np.ndarray,
        num_episodes: int,
    ) -> None:
        """Adds a batch of steps.

        Args:
          data: the values of each field, [steps, ...].
          valid: masks of the valid steps or values, by field; without a mask, all are valid.
          is_last: a mask of the steps with a placeholder as action.
          is_unmarked: a mask of the placeholders in episodes without `final_observation_known`.
          num_episodes: the number of episodes that begin in the batch.
        """
        self._num_transitions += int(np.count_nonzero(~is_last))
        self._num_trajectories += num_episodes
        self._num_unmarked += _count_real(data, is_unmarked)
        for name, total in self._total.items():
            columns, mask = _columns(data[name], valid.get(name))
            self._total[name] = _merge(total, _describe(total, columns, mask))
            if self._quantiles:
                self._sketches[name] = _add_values(self._sketches.get(name), columns, mask)

    def result(self) -> Statistics:
        """Returns the statistics of all batches; warns of values that are not finite."""
        total = self._total
        if self._quantiles:
            total = {
                name: _with_quantiles(field, self._sketches.get(name, ()), self._quantiles)
                for name, field in total.items()
            }
        _warn_of_undefined(total)
        fields = {name: _nan_where_mean_is(field) for name, field in total.items()}
        return Statistics(fields, self._num_transitions, self._num_trajectories, self._num_unmarked)


class _Batch(NamedTuple):
    """A batch of steps: the arguments of `StatisticsPass.add`."""

    data: Mapping[str, np.ndarray]
    valid: Mapping[str, np.ndarray]
    is_last: np.ndarray
    is_unmarked: np.ndarray
    num_episodes: int


def _columns_of(episode: Any, index: int) -> dict[str, np.ndarray]:
    """Returns the columns of an episode, by path."""
    steps = episode.get(rlds_types.STEPS) if isinstance(episode, Mapping) else None
    if not isinstance(steps, Mapping):
        type_name = f"a {type(episode if steps is None else steps).__name__}"
        raise TypeError(
            f"{_FUNCTION}: episode {index} must be a dict whose 'steps' are a dict of columns, got "
            f"{type_name}. For a tf.data.Dataset, call rlds.transformations.compute_statistics."
        )
    columns = {name: np.asarray(leaf) for name, leaf in named_leaves(steps)}
    if rlds_types.IS_LAST not in columns:
        raise KeyError(
            f"{_FUNCTION}: the steps of episode {index} have no field {rlds_types.IS_LAST!r}, only "
            f"{sorted(columns)}; without it placeholders look like real values."
        )
    return columns


def _batch_of(
    episode: Mapping[str, Any],
    columns: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    index: int,
    include_last_action: bool,
) -> _Batch:
    is_last = columns[rlds_types.IS_LAST].astype(np.bool_)
    is_marked = rlds_types.FINAL_OBSERVATION_KNOWN in episode
    if include_last_action or not np.all(episode.get(rlds_types.FINAL_OBSERVATION_KNOWN, True)):
        is_last = np.zeros_like(is_last)
    data = {}
    for name, shape in shapes.items():
        expected = (len(is_last), *shape)
        actual_shape = columns[name].shape if name in columns else None
        if actual_shape != expected:
            raise ValueError(
                f"{_FUNCTION}: field {name!r} of episode {index} has the shape {actual_shape}, "
                f"expected {expected}."
            )
        data[name] = columns[name]
    return _Batch(data, are_valid(data, is_last), is_last, is_last & (not is_marked), 1)


def _join(batches: Sequence[_Batch], finite_only: bool) -> _Batch:
    def concatenate(items: Sequence[Any]) -> Any:
        if isinstance(items[0], np.ndarray):
            return np.concatenate(items)
        return {name: np.concatenate([item[name] for item in items]) for name in items[0]}

    *columns, counts = zip(*batches)
    data, valid, is_last, is_unmarked = map(concatenate, columns)
    batch = _Batch(data, valid, is_last, is_unmarked, sum(counts))
    return batch._replace(valid=_select_finite(batch)) if finite_only else batch


def _select_finite(batch: _Batch) -> dict[str, np.ndarray]:
    """Returns masks of the valid finite values."""
    valid = dict(batch.valid)
    for name, values in batch.data.items():
        finite = np.isfinite(values)
        if not finite.all():
            steps = valid.get(name, np.True_)
            valid[name] = finite & steps.reshape(-1, *[1] * (finite.ndim - 1))
    return valid


def warn_of_last_actions(statistics: Statistics, stacklevel: int = 2) -> None:
    """Warns if actions that were left out as placeholders do not look like placeholders."""
    count, total = statistics.num_unmarked_last_actions, statistics.num_trajectories
    if count and count >= _MIN_WARNING_SHARE * total:
        warnings.warn(
            f"{_FUNCTION}: in {count} of {total} episodes the last action or reward is not zero. "
            "It does not count: if the last step is the final observation, its action is a "
            "placeholder. If the values are real, pass include_last_action=True, which counts the "
            "last step of all episodes as Octo and OpenVLA do, or store "
            f"{rlds_types.FINAL_OBSERVATION_KNOWN}=False with the episodes. If they are "
            "placeholders, pass include_last_action=False.",
            stacklevel=stacklevel + 1,
        )


def _count_real(data: Mapping[str, np.ndarray], is_placeholder: np.ndarray) -> int:
    """Returns the number of marked steps with an action or a reward that is not zero."""
    rows = np.flatnonzero(is_placeholder)
    is_real = np.zeros(len(rows), np.bool_)
    for name, column in data.items():
        if name.split("/")[0] in (rlds_types.ACTION, rlds_types.REWARD):
            is_nonzero = np.abs(column[rows].astype(np.float64)) > 0  # NaN counts as zero.
            is_real |= is_nonzero.any(axis=tuple(range(1, is_nonzero.ndim)))
    return int(np.count_nonzero(is_real))


def _mask_of(name: str, shape: tuple[int, ...], masks: Mapping[str, Any]) -> np.ndarray:
    mask = np.asarray(masks.get(name, True), np.bool_)
    try:
        return np.broadcast_to(mask, shape).copy()
    except ValueError as error:
        raise ValueError(
            f"{_FUNCTION}: field {name!r} has shape {shape}, its mask has {mask.shape}."
        ) from error


def _create_empty(shape: tuple[int, ...], mask: np.ndarray, ddof: int) -> FieldStatistics:
    """Returns the statistics of no values."""
    nan = np.full(shape, np.nan)
    count = np.zeros(shape, np.int64)
    return FieldStatistics(count, nan, np.zeros(shape), nan, nan, mask, ddof=ddof)


def _columns(data: np.ndarray, valid: np.ndarray | None) -> tuple[np.ndarray, Any]:
    """Returns the values of each element of a field, and a mask of the valid values.

    NumPy is several times faster for rows of many values than for columns of few values.

    Args:
      data: the values of a batch, [steps, ...].
      valid: a mask of the valid steps or values; None if all are valid.

    Returns:
      The values of the valid steps, [elements, steps], float32 or float64; and a mask of the valid
      values, or True if all are valid.
    """
    rows = data.reshape(len(data), -1)
    mask: Any = True
    if valid is not None and valid.ndim == 1:
        rows = rows if valid.all() else rows[valid]
    elif valid is not None:
        values = valid.reshape(len(data), *[1] * (data.ndim - valid.ndim), *valid.shape[1:])
        mask = np.broadcast_to(values, data.shape).reshape(rows.shape).T
    dtype = rows.dtype if rows.dtype in (np.float32, np.float64) else np.float64
    return rows.T.astype(dtype, order="C"), mask


def _describe(template: FieldStatistics, columns: np.ndarray, mask: Any) -> FieldStatistics:
    """Returns the statistics of columns of values, without their quantiles.

    NumPy takes a quarter of the time of TensorFlow.
    """
    count = np.broadcast_to(mask, columns.shape).sum(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = np.sum(columns, axis=1, dtype=np.float64, where=mask)
        mean /= np.where(count > 0, count, np.nan)
        distances = columns - mean[:, np.newaxis]
        squares = np.sum(np.square(distances, out=distances), axis=1, where=mask)
    low = np.min(columns, axis=1, initial=np.inf, where=mask)
    high = np.max(columns, axis=1, initial=-np.inf, where=mask)

    shape = template.mean.shape
    return dataclasses.replace(
        template,
        count=count.reshape(shape),
        mean=mean.reshape(shape),
        squares=squares.reshape(shape),
        min=np.where(count > 0, low, np.nan).reshape(shape),
        max=np.where(count > 0, high, np.nan).reshape(shape),
    )


def _merge(first: FieldStatistics, second: FieldStatistics) -> FieldStatistics:
    """Returns the merged statistics of a field, without quantiles."""
    count = first.count + second.count
    weight = second.count / np.maximum(count, 1)
    delta = np.where((first.count > 0) & (second.count > 0), second.mean - first.mean, 0.0)
    mean = np.where(first.count > 0, first.mean, second.mean) + delta * weight
    return dataclasses.replace(
        first,
        count=count,
        mean=mean,
        squares=first.squares + second.squares + np.square(delta) * first.count * weight,
        min=np.fmin(first.min, second.min),
        max=np.fmax(first.max, second.max),
        quantiles={},
        quantile_error=0.0,
        _sketches=(),
    )


def _nan_where_mean_is(field: FieldStatistics) -> FieldStatistics:
    is_nan = np.isnan(field.mean)
    return dataclasses.replace(
        field, min=np.where(is_nan, np.nan, field.min), max=np.where(is_nan, np.nan, field.max)
    )


def _add_values(
    sketches: tuple[QuantileSketch, ...] | None, columns: np.ndarray, mask: Any
) -> tuple[QuantileSketch, ...]:
    if mask is True:
        sketches = sketches or (QuantileSketch(len(columns), columns.dtype),)
        sketches[0].add(columns.T)
        return sketches
    sketches = sketches or tuple(QuantileSketch(1, columns.dtype) for _ in columns)
    for sketch, column, valid in zip(sketches, columns, mask):
        sketch.add(column[valid, np.newaxis])
    return sketches


def _with_quantiles(
    field: FieldStatistics, sketches: tuple[QuantileSketch, ...], quantiles: Sequence[float]
) -> FieldStatistics:
    is_defined = (field.count > 0) & ~np.isnan(field.mean)

    # A field without values has no sketches.
    defaults = [np.full(field.mean.size, np.nan) for _ in quantiles]
    by_sketch = [sketch.quantiles(quantiles) for sketch in sketches] or [defaults]
    values = {
        q: np.where(is_defined, np.concatenate(arrays).reshape(field.mean.shape), np.nan)
        for q, *arrays in zip(quantiles, *by_sketch)
    }

    return dataclasses.replace(
        field,
        quantiles=values,
        quantile_error=max((sketch.error for sketch in sketches), default=0.0),
        _sketches=sketches,
    )


def _warn_of_undefined(fields: Mapping[str, FieldStatistics]) -> None:
    reasons = []
    for name, field in fields.items():
        for problem, mask in (
            ("no valid values", field.count == 0),
            ("NaN or infinite values", (field.count > 0) & ~np.isfinite(field.mean)),
        ):
            if np.any(mask):
                reasons.append(f"{name}: {problem} in {np.sum(mask)} of its {mask.size} elements")
    if reasons:
        warnings.warn(
            f"{_FUNCTION}: some results are NaN or infinite. {'; '.join(reasons)}.",
            RuntimeWarning,
            stacklevel=4,
        )


def _format_percent(q: float) -> str:
    return f"{100 * q:g}".zfill(2)


def _to_plain(field: FieldStatistics) -> dict[str, Any]:
    """Returns the statistics of a field in the types of JSON."""
    plain = {name: getattr(field, name).tolist() for name in ("mean", "std", "min", "max")}
    for q, values in field.quantiles.items():
        plain[f"q{_format_percent(q)}"] = plain[f"p{_format_percent(q)}"] = values.tolist()
    return {
        **plain,
        "mask": field.mask.tolist(),
        "count": field.count.tolist(),
        "ddof": field.ddof,
        "quantile_error": field.quantile_error,
    }


def _is_field(plain: Any) -> bool:
    return isinstance(plain, dict) and {"mean", "std"} <= plain.keys()


def _from_plain(plain: Mapping[str, Any], num_transitions: int) -> FieldStatistics:
    def array(key: str, default: Any = np.nan) -> np.ndarray:
        return np.broadcast_to(np.asarray(plain.get(key, default), np.float64), mean.shape)

    mean = np.asarray(plain["mean"], np.float64)
    ddof = int(plain.get("ddof", 0))
    # If the count is missing, the smallest count with a standard deviation is assumed.
    count = array("count", num_transitions or ddof + 1).astype(np.int64)
    quantiles = {
        float(f"{float(key[1:]) / 100:.12g}"): array(key)
        for key, values in plain.items()
        if key[0] in "pq" and key[1:].replace(".", "", 1).isdecimal() and values is not None
    }
    return FieldStatistics(
        count=count,
        mean=mean,
        squares=np.square(array("std")) * np.maximum(count - ddof, 0),
        min=array("min"),
        max=array("max"),
        mask=array("mask", True).astype(np.bool_),
        quantiles=quantiles,
        quantile_error=float(plain.get("quantile_error", 0.0)),
        ddof=ddof,
    )


def _table(fields: Mapping[str, FieldStatistics]) -> str:
    """Returns the statistics as aligned text, at most 100 characters wide; see `_rows_of`."""
    rows = _rows_of(fields)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    widths[0] = min(widths[0], max(_MIN_NAME, _WIDTH - sum(width + 2 for width in widths[1:])))
    return "\n".join("  ".join(_pad(row, widths)).rstrip() for row in rows)


def _rows_of(fields: Mapping[str, FieldStatistics]) -> list[list[str]]:
    """Returns the cells of the table, the headings first.

    Large fields have rows for their first and last elements only. Only the smallest and the largest
    quantile are shown.
    """
    quantiles = sorted({q for field in fields.values() for q in field.quantiles})
    shown = [q for q in quantiles if q in (quantiles[0], quantiles[-1])]
    rows = [["", "count", "mean", "std", "min", *(f"q{100 * q:g}" for q in shown), "max"]]
    for name, field in fields.items():
        rows.extend(_list_rows(name, field, shown))
    return rows


def _list_rows(name: str, field: FieldStatistics, quantiles: list[float]) -> Iterator[list[str]]:
    missing = np.full(field.mean.shape, np.nan)
    columns = [field.mean, field.std, field.min]
    columns += [field.quantiles.get(q, missing) for q in quantiles]
    columns += [field.max]
    indices = list(np.ndindex(field.mean.shape))
    if not indices:
        yield [f"{name}: no elements"]
    num_left_out = max(0, len(indices) - _MAX_SHOWN_ELEMENTS)
    last_shown = indices[_MAX_SHOWN_ELEMENTS - 1 + num_left_out :]
    for index in [*indices[: _MAX_SHOWN_ELEMENTS - 1], *last_shown]:
        if num_left_out and index == indices[-1]:
            yield [f"{name}: {num_left_out} more"]
        element = f"{name}[{', '.join(map(str, index))}]" if index else name
        cells = (f"{column[index] + 0.0:.4g}" for column in columns)
        yield [element, str(field.count[index]), *cells]


def _pad(row: list[str], widths: list[int]) -> Iterator[str]:
    name, *cells = row
    if len(name) > widths[0]:  # The end of a path is more specific than its beginning.
        name = "…" + name[len(name) - widths[0] + 1 :]
    yield name.ljust(widths[0])
    yield from (cell.rjust(width) for cell, width in zip(cells, widths[1:]))
