"""Validation of datasets by the rules of RLDS, with the location of every violation.

It checks `tf.data` datasets, plain Python and NumPy episodes, and the directory of a dataset,
without loading TensorFlow.
"""

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import tfds_files
from rlds import metadata, rlds_types
from rlds.feeds.compat import loader_profiles
from rlds_ecosystem.model.columns import fits
from rlds_ecosystem.model.nests import is_below, named_leaves
from tfds_files.features import leaves_of

__all__ = ["InvalidDatasetError", "Report", "Validator", "Violation", "validate"]

# The number of nested steps to read at once.
_BATCH_SIZE = 1024

# Boolean fields of an episode.
_BOOLEAN_FIELDS = {rlds_types.FINAL_OBSERVATION_KNOWN, metadata.INVALID}

_HINT_FOR_DOUBLES = (
    "if you join datasets, or one with itself, make the identifiers unique: "
    "dataset.map(lambda e: {**e, 'episode_id': 'a/' + e['episode_id']})"
)

# Steps in the order of time, in batches: columns with a leading time axis, by path.
Columns: TypeAlias = dict[str, np.ndarray]


class InvalidDatasetError(ValueError):
    """A dataset breaks the rules of RLDS; `report` has the violations."""

    def __init__(self, report: "Report") -> None:
        super().__init__(str(report))
        self.report = report


@dataclasses.dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes:
      what: the actual and the expected content.
      episode: the index of the episode in the dataset, from 0; None if the violation is about the
        storage of all episodes.
      episode_id: the identifier of the episode; None without one.
      step: the index of the step in the episode, from 0; None if no single step is wrong.
      field: the path of the field; None if no single field is wrong.
      hint: a remedy for all violations of this kind; "" for none.
    """

    what: str
    episode: int | None
    episode_id: str | None = None
    step: int | None = None
    field: str | None = None
    hint: str = dataclasses.field(default="", compare=False)

    def __str__(self) -> str:
        location = "dataset" if self.episode is None else f"episode {self.episode}"
        if self.episode_id is not None:
            location += f" ({self.episode_id})"
        if self.step is not None:
            location += f", step {self.step}"
        if self.field is not None:
            location += f", field {self.field!r}"
        return f"{location}: {self.what}"


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a validation.

    Attributes:
      violations: the broken rules, in the order of the dataset.
      num_episodes: the number of read episodes.
      num_steps: the number of read steps.
      is_complete: whether the whole dataset was read; False after too many violations.
    """

    violations: tuple[Violation, ...]
    num_episodes: int
    num_steps: int
    is_complete: bool = True

    @property
    def is_valid(self) -> bool:
        """True if there is no violation."""
        return not self.violations

    def raise_if_invalid(self) -> None:
        """Raises an `InvalidDatasetError` with all violations, if any."""
        if not self.is_valid:
            raise InvalidDatasetError(self)

    def __str__(self) -> str:
        read = f"{_count(self.num_episodes, 'episode')}, {_count(self.num_steps, 'step')}"
        if self.is_valid:
            return f"valid: {read}"
        rules = _count(len(self.violations), "violation")
        end = "" if self.is_complete else "\n  (stopped here: there may be more)"
        lines = "".join(f"\n  {violation}" for violation in self.violations)
        hints = {violation.hint: None for violation in self.violations if violation.hint}
        advice = "".join(f"\nhint: {hint}" for hint in hints)
        return f"invalid: {rules} in {read}{lines}{end}{advice}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def validate(
    episodes: Any,
    *,
    max_violations: int = 100,
    finite_fields: Iterable[str] = (),
    profile: str | None = None,
    features: Any = None,
) -> Report:
    """Checks all steps of a dataset of episodes, in one pass.

    The rules:

    * An episode is a dict with `steps`; it has at least one step.
    * `is_first` is true only on the first step, `is_last` only on the last step, and the optional
      `is_terminal` at most on the last step. The flags are boolean.
    * All steps of the dataset have the same fields, of the same dtypes and shapes. Dimensions that
      a `tf.data` dataset declares as unknown may vary.
    * All episodes have the same metadata. The optional `episode_id` is unique, and
      `final_observation_known` and `invalid` are boolean.
    * The valid values of `finite_fields` are neither NaN nor infinite. Action, reward and discount
      are valid in the last step only if `final_observation_known` is False.

    The profile "octo" also checks whether the loaders of dlimp, Octo and OpenVLA can read the
    dataset:

    * The steps have no compressed arrays, no arrays stored as bytes (the default for float64), and
      no float32 images.
    * The action is one vector. The action is finite in all steps, because the statistics of these
      loaders include the last action. The observation is a dict. The step has a text field.
    * A directory is `.../name/version`, and its files have the format `tfrecord`.

    Args:
      episodes: a `tf.data.Dataset` of episodes with steps in either layout, or any iterable of
        episodes in plain Python and NumPy: their steps are a dict of columns, or an iterable of
        steps. Another choice is the directory of a TFDS dataset: all its splits are checked,
        without decoding images.
      max_violations: the number of violations after which the validation stops.
      finite_fields: paths of fields, or of groups of fields, such as "observation/state".
      profile: "octo", to check also that profile.
      features: the storage of the episodes (`builder.info.features`); required for a profile,
        unless `episodes` is a directory.

    Returns:
      The report.

    Raises:
      FileNotFoundError: if there is no dataset in the directory.
      KeyError: if the steps lack a field of `finite_fields`.
      TypeError: if the episodes are not iterable.
      ValueError: if `max_violations` is not positive, there is no such profile, or its features are
        missing.

    >>> steps = {"reward": [0.5, 0.0], "is_first": [True, True], "is_last": [False, True]}
    >>> report = validate([{"steps": steps, "episode_id": "a"}], finite_fields=["reward"])
    >>> print(report)
    invalid: 1 violation in 1 episode, 2 steps
      episode 0 (a), step 1, field 'is_first': True, but this is not the first step
    """
    if max_violations < 1:
        raise ValueError(f"validate: max_violations must be positive, got {max_violations}.")
    validator = Validator(finite_fields, profile)
    dataset_violations: Iterator[Violation] = iter(())
    if isinstance(episodes, str | os.PathLike):
        features = loader_profiles.read_features(episodes)
        folder = tfds_files.open_folder(episodes, decode_images=False)
        validator = Validator(finite_fields, profile, _shapes_of_steps(folder))
        dataset_violations = validator.check_directory(episodes)
        episodes = itertools.chain.from_iterable(folder.values())
    if isinstance(episodes, Mapping) or not isinstance(episodes, Iterable):
        raise TypeError(
            f"validate: expected a dataset or an iterable of episodes, got a "
            f"{type(episodes).__name__}."
        )
    if profile is not None and features is None:
        raise ValueError(
            f"validate: the profile {profile!r} checks the storage of a dataset; pass its "
            "directory instead of the episodes, or features=builder.info.features."
        )
    if _is_tf_dataset(episodes):
        validator.declare(episodes)
    violations: list[Violation] = []
    feature_violations = validator.check_features(features)
    in_episodes = itertools.chain.from_iterable(map(validator.add, episodes))
    for violation in itertools.chain(dataset_violations, feature_violations, in_episodes):
        if len(violations) == max_violations:
            return Report(tuple(violations), validator.num_episodes, validator.num_steps, False)
        violations.append(violation)
    return Report(tuple(violations), validator.num_episodes, validator.num_steps)


class _Finding(NamedTuple):
    """A violation within an episode."""

    what: str
    step: int | None = None
    field: str | None = None
    hint: str = ""


def _shapes_of_steps(folder: tfds_files.DatasetFolder) -> dict[str, tuple[int | None, ...]]:
    """Returns the shapes of the step fields with a variable dimension."""
    leaves = leaves_of(folder.features.get(rlds_types.STEPS, tfds_files.Feature()))
    return {leaf.name: leaf.feature.shape for leaf in leaves if None in leaf.feature.shape}


def _is_tf_dataset(value: Any) -> bool:
    tf = sys.modules.get("tensorflow")
    return tf is not None and isinstance(value, tf.data.Dataset)


class Validator:
    """Checks episodes one by one, and compares each episode with the earlier ones.

    `validate` checks a complete dataset, and documents the rules.

    Args:
      finite_fields: See `validate`.
      profile: See `validate`; call also `check_features`.
      shapes: The shapes of fields with variable dimensions (None), by path. Other fields must have
        the shape of the first step.

    Attributes:
      num_episodes: The number of checked episodes.
      num_steps: The number of checked steps.

    >>> validator = Validator()
    >>> for violation in validator.add({"steps": {"is_first": [True], "is_last": [False]}}):
    ...     print(violation)
    episode 0, step 0, field 'is_last': False, but this is the last step
    """

    def __init__(
        self,
        finite_fields: Iterable[str] = (),
        profile: str | None = None,
        shapes: Mapping[str, tuple[int | None, ...]] | None = None,
    ) -> None:
        if profile not in (None, *loader_profiles.PROFILES):
            names = list(loader_profiles.PROFILES)
            raise ValueError(f"no profile {profile!r}; expected one of {names}")
        self._profile = profile
        self._shapes = shapes or {}
        self.num_episodes = 0
        self.num_steps = 0
        self._finite_fields = (
            (finite_fields,) if isinstance(finite_fields, str) else tuple(finite_fields)
        )
        self._fields: dict[str, _Field] | None = None
        self._metadata: set[str] | None = None
        self._episode_of_id: dict[str, int] = {}

    def declare(self, episodes: Any) -> None:
        """Takes the types of the fields of steps from a `tf.data` dataset.

        Raises:
          KeyError: The dataset lacks a field of `finite_fields`.
        """
        self._fields = _declared_fields(episodes)
        _check_names(self._finite_fields, self._fields or self._finite_fields)

    def check_features(self, features: Any) -> Iterator[Violation]:
        """Yields violations of the profile in the features of a stored dataset.

        Args:
          features: A `tfds.features.FeaturesDict`, or its JSON as written by TFDS.
        """
        if self._profile is not None:
            yield from _as_violations(loader_profiles.unmet_demands(features))

    def check_directory(self, directory: str | os.PathLike[str]) -> Iterator[Violation]:
        """Yields violations of the profile in the directory of a dataset."""
        if self._profile is not None:
            yield from _as_violations(loader_profiles.check_location(directory))

    def add(self, episode: Any) -> Iterator[Violation]:
        """Yields the violations in a further episode, in order.

        Raises:
          KeyError: The first episode lacks a field of `finite_fields`.
        """
        index = self.num_episodes
        self.num_episodes += 1
        if not isinstance(episode, Mapping) or rlds_types.STEPS not in episode:
            names = sorted(map(str, episode)) if isinstance(episode, Mapping) else type(episode)
            yield Violation(f"no field 'steps', only {names}", index)
            return
        episode_id = episode.get(metadata.EPISODE_ID)
        name = None if episode_id is None else _as_text(episode_id)
        for finding in self._check_episode(index, name, episode):
            yield Violation(finding.what, index, name, finding.step, finding.field, finding.hint)

    def add_all(self, steps: Any, lengths: np.ndarray, fields: Mapping[str, Any]) -> bool:
        """Checks several episodes at once, which is much faster; returns True if all are valid.

        If an episode is invalid, no episode is recorded: call `add` for each to get the violations.

        Args:
          steps: The concatenated columns of the steps of all episodes.
          lengths: The number of steps of each episode, of shape `[num_episodes]`.
          fields: The other fields of the episodes, as columns with a row for each episode.

        Raises:
          KeyError: See `add`.

        >>> validator = Validator()
        >>> steps = {"is_first": np.array([1, 1, 0], bool), "is_last": np.array([1, 0, 1], bool)}
        >>> validator.add_all(steps, np.array([1, 2]), {"episode_id": np.array(["a", "b"], object)})
        True
        """
        lengths = np.asarray(lengths)
        episode_ends, total = np.cumsum(lengths), int(np.sum(lengths))
        columns = {name: _as_array(leaf) for name, leaf in named_leaves(steps)}
        is_final_known = _as_array(fields.get(rlds_types.FINAL_OBSERVATION_KNOWN, np.True_))
        ids = [_as_text(item) for item in fields.get(metadata.EPISODE_ID, ())]
        is_valid = np.ones(total, np.bool_)
        is_right = (
            bool(np.all(lengths > 0))
            and all(column.shape and len(column) == total for column in columns.values())
            and self._metadata in (None, set(fields))
            and all(_are_booleans(fields[name]) for name in _BOOLEAN_FIELDS & set(fields))
            and len(set(ids)) == len(ids)
            and self._episode_of_id.keys().isdisjoint(ids)
            and next(self._check_fields(0, columns), None) is None
            and rlds_types.are_flags_right(columns, episode_ends)
        )
        if is_right:
            is_valid[episode_ends - 1] = ~is_final_known
            is_right = all(np.all(rows) for _, rows in self._finite_rows(columns, is_valid))
        if is_right:
            self._metadata = set(fields)
            self._episode_of_id.update(zip(ids, itertools.count(self.num_episodes)))
            self.num_episodes += len(lengths)
            self.num_steps += total
        return is_right

    def _check_episode(
        self, index: int, name: str | None, episode: Mapping[str, Any]
    ) -> Iterator[_Finding]:
        names = set(episode) - {rlds_types.STEPS}
        self._metadata = names if self._metadata is None else self._metadata
        for field in sorted(self._metadata ^ names):
            problem = "missing" if field in self._metadata else "not in the first episode"
            yield _Finding(problem, field=field)
        if name is not None and self._episode_of_id.setdefault(name, index) != index:
            problem = f"{name!r} is also the identifier of episode {self._episode_of_id[name]}"
            yield _Finding(problem, field=metadata.EPISODE_ID, hint=_HINT_FOR_DOUBLES)
        for field in sorted(names & _BOOLEAN_FIELDS):
            value = _as_array(episode[field])
            if value.dtype != np.bool_ or value.shape:
                actual = _Field.from_column(value[np.newaxis])
                yield _Finding(f"{actual}, expected a boolean", field=field)
        flags = _as_array(episode.get(rlds_types.FINAL_OBSERVATION_KNOWN, True))
        is_final_known = bool(np.all(flags))

        start = 0
        batches = _batches(episode[rlds_types.STEPS])
        batch = next(batches, None)
        while batch is not None:
            next_batch = next(batches, None)
            lengths = {field: len(v) if v.shape else None for field, v in batch.items()}
            length = next((n for n in lengths.values() if n is not None), 0)
            if set(lengths.values()) - {length}:
                yield _Finding(f"the columns differ in length: {lengths}")
                return
            yield from self._check_fields(start, batch)
            yield from _check_flags(start, batch, is_end=next_batch is None)
            num_valid = length - (next_batch is None and is_final_known)
            yield from self._check_finite(start, batch, num_valid)
            start += length
            self.num_steps += length
            batch = next_batch
        if not start:
            yield _Finding("no steps, expected at least one")

    def _check_fields(self, start: int, batch: Columns) -> Iterator[_Finding]:
        """Compares the fields with the fields of the first step of the dataset."""
        if self._fields is None:
            self._fields = {
                name: _Field.from_column(column).with_shape(self._shapes.get(name))
                for name, column in batch.items()
            }
            _check_names(self._finite_fields, self._fields)
        for name in sorted({rlds_types.IS_FIRST, rlds_types.IS_LAST} - batch.keys()):
            yield _Finding("missing, but every step needs it", start, name)
        for name in sorted(self._fields.keys() - batch.keys() - set(rlds_types.STEP_FLAGS[:2])):
            yield _Finding("missing, but the first step of the dataset has it", start, name)
        for name, column in batch.items():
            expected, field = self._fields.get(name), _Field.from_column(column)
            if expected is None:
                problem = "unexpected: the first step of the dataset does not have it"
                yield _Finding(problem, start, name)
            elif not expected.accepts(field):
                yield _Finding(f"{field}, expected {expected}", start, name)

    def _check_finite(self, start: int, batch: Columns, num_valid: int) -> Iterator[_Finding]:
        is_valid = np.arange(len(next(iter(batch.values())))) < num_valid
        for name, rows in self._finite_rows(batch, is_valid):
            for step in np.flatnonzero(~rows):
                values = _as_floats(batch[name][step]).reshape(-1)
                invalid = values[~np.isfinite(values)]
                problem = f"{invalid[0]} in {len(invalid)} of {values.size} elements"
                yield _Finding(problem, int(start + step), name)

    def _finite_rows(
        self, columns: Columns, is_valid: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the fields that must be finite, with masks of finite or placeholder rows."""
        placeholders = {rlds_types.ACTION, rlds_types.REWARD, rlds_types.DISCOUNT}
        fields = self._finite_fields
        if self._profile is not None:  # The loaders of the profile use the last action.
            placeholders.remove(rlds_types.ACTION)
            fields = (*fields, rlds_types.ACTION)
        for name, column in columns.items():
            if not any(is_below(name, field) for field in fields):
                continue
            rows = _are_finite(column)
            if rows is None:
                continue
            yield name, rows | ~is_valid if name.split("/")[0] in placeholders else rows


def _as_violations(demands: Iterable[loader_profiles.Demand]) -> Iterator[Violation]:
    for demand in demands:
        yield Violation(demand.text, None, field=demand.field, hint=demand.hint)


@dataclasses.dataclass(frozen=True)
class _Field:
    """The type of a field; a dimension of None may have any size."""

    dtype: str
    shape: tuple[int | None, ...] | None

    @classmethod
    def from_column(cls, column: np.ndarray) -> "_Field":
        if _is_ragged(column):
            element = cls.from_column(column[0])
            return cls(element.dtype, (None, *(element.shape or ())))
        if column.dtype.kind in "SUO":
            return cls("string", column.shape[1:])
        return cls(column.dtype.name, column.shape[1:])

    def with_shape(self, shape: tuple[int | None, ...] | None) -> "_Field":
        """Returns the type with a declared shape, if it has the same number of dimensions."""
        is_valid = shape is not None and len(shape) == len(self.shape or ())
        return _Field(self.dtype, shape) if is_valid else self

    def accepts(self, other: "_Field") -> bool:
        """True if a column of another type matches this type."""
        if self.dtype != other.dtype or self.shape is None or other.shape is None:
            return self.dtype == other.dtype
        return fits(other.shape, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def _check_names(names: Iterable[str], fields: Iterable[str]) -> None:
    for name in names:
        if not any(is_below(field, name) for field in fields):
            raise KeyError(f"validate: there is no field {name!r}. The fields are {list(fields)}.")


def _declared_fields(episodes: Any) -> dict[str, _Field] | None:
    """Returns the declared types of step fields in a `tf.data.Dataset`; None if not declared."""
    spec = episodes.element_spec
    if not isinstance(spec, Mapping) or rlds_types.STEPS not in spec:
        return None
    spec = spec[rlds_types.STEPS]
    is_nested = hasattr(spec, "element_spec")
    fields = {}
    for name, leaf in named_leaves(spec.element_spec if is_nested else spec):
        shape = getattr(leaf, "shape", None)
        dims = None if shape is None or shape.rank is None else tuple(shape)
        if dims is not None and not is_nested:
            dims = dims[1:]
        fields[name] = _Field(leaf.dtype.name, dims)
    return fields


def _batches(steps: Any) -> Iterator[Columns]:
    """Yields batches of the steps as columns; no batch is empty."""
    if isinstance(steps, Mapping):
        columns = {name: _as_array(leaf) for name, leaf in named_leaves(steps)}
        if any(len(column) if column.shape else True for column in columns.values()):
            yield columns
        return
    if _is_tf_dataset(steps) and _is_static(steps.element_spec):
        for batch in steps.batch(_BATCH_SIZE):
            yield {name: _as_array(leaf) for name, leaf in named_leaves(batch)}
        return
    for step in steps:
        yield {name: _as_array(leaf)[np.newaxis] for name, leaf in named_leaves(step)}


def _is_static(spec: Any) -> bool:
    return all(leaf.shape.is_fully_defined() for _, leaf in named_leaves(spec))


def _as_array(leaf: Any) -> np.ndarray:
    if isinstance(leaf, tfds_files.RaggedColumn):
        rows = np.empty(len(leaf), object)
        for index in range(len(leaf)):
            rows[index] = leaf[index]
        return rows
    return np.asarray(leaf.numpy() if hasattr(leaf, "numpy") else leaf)


def _as_floats(column: np.ndarray) -> np.ndarray:
    # NumPy does not support bfloat16 and similar dtypes.
    return column.astype(np.float32) if column.dtype.kind == "V" else column


def _is_ragged(column: np.ndarray) -> bool:
    """True if the rows of a column are arrays of different lengths."""
    has_objects = column.dtype == object and column.ndim == 1 and len(column) > 0
    return has_objects and isinstance(column[0], np.ndarray)


def _are_finite(column: np.ndarray) -> np.ndarray | None:
    """Returns a mask of the finite rows of a column; None for columns without floats."""
    if _is_ragged(column):
        masks = [_are_finite(row) for row in column]
        return None if masks[0] is None else np.array([np.all(mask) for mask in masks])
    column = _as_floats(column)
    if column.dtype.kind not in "fc":
        return None
    return np.asarray(np.isfinite(column).reshape(len(column), -1).all(axis=1))


def _are_booleans(column: Any) -> bool:
    values = _as_array(column)
    return bool(values.dtype == np.bool_ and values.ndim == 1)


def _as_text(leaf: Any) -> str:
    if isinstance(leaf, str):
        return leaf
    if isinstance(leaf, bytes):
        return leaf.decode("utf-8", "replace")
    value = _as_array(leaf).item() if _as_array(leaf).size == 1 else leaf
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _check_flags(start: int, batch: Columns, is_end: bool) -> Iterator[_Finding]:
    """Checks the flags of a batch of steps; `is_end` is true for the last batch of the episode."""
    flags = {name: batch[name] for name in rlds_types.STEP_FLAGS if name in batch}
    for name, column in flags.items():
        if column.dtype != np.bool_ or column.ndim != 1:
            flag = _Field.from_column(column)
            yield _Finding(f"{flag}, expected a boolean for each step", start, name)
            return
    length = len(next(iter(batch.values())))
    is_first = np.arange(start, start + length) == 0
    is_last = is_end & (np.arange(length) == length - 1)
    rules = ((rlds_types.IS_FIRST, is_first, "first"), (rlds_types.IS_LAST, is_last, "last"))
    for name, expected, position in rules:
        flag = flags.get(name, expected)
        for step in np.flatnonzero(flag != expected):
            is_not = "is" if expected[step] else "is not"
            problem = f"{flag[step]}, but this {is_not} the {position} step"
            yield _Finding(problem, int(start + step), name)
    is_terminal = flags.get(rlds_types.IS_TERMINAL, np.zeros(length, np.bool_))
    for step in np.flatnonzero(is_terminal & ~is_last):
        problem = "True, but steps follow this one"
        yield _Finding(problem, int(start + step), rlds_types.IS_TERMINAL)
