"""Evaluation sets: recorded episodes as flat arrays, for off-policy evaluation."""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

import rlds
import rlds.feeds
from rlds.evaluation.estimates import EndCounts
from rlds.feeds.roles import as_vector
from rlds.feeds.samples import FilteredSamples, NormalizedSamples
from rlds.feeds.table import Table
from rlds.sources.episodes import Episodes
from rlds_ecosystem.model.columns import concat_ranges
from rlds_ecosystem.model.nests import is_below, leaves_at, lookup, map_named_leaves, nest

__all__ = ["EvaluationSet", "check_episode_weights", "check_gamma", "check_horizon", "collect"]

# The number of steps in a batch of a tf.data.Dataset.
_STEPS_PER_BATCH = 1024
# The fields that mark the begin and the end of an episode.
_BOUNDARY_FIELDS = (rlds.IS_FIRST, rlds.IS_LAST, rlds.IS_TERMINAL, rlds.DISCOUNT)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class EvaluationSet:
    """Episodes for off-policy evaluation: flat arrays, one episode after the other.

    An episode has T transitions: all its steps, except for the step of a known final observation
    (its action, reward and discount are placeholders). There are M transitions and N episodes.

    Attributes:
      num_transitions: T of each episode, int64, shape `[N]`.
      is_terminal: A mask of the episodes that ended in a terminal state, bool, shape `[N]`. All
        other episodes were truncated.
      final_observation_known: A mask of the episodes with an observation after the last transition,
        bool, shape `[N]`.
      observations: An array, or dicts of arrays: T + 1 rows of an episode with a final observation,
        T without one.
      actions: An array, or dicts of arrays, `[M, ...]`.
      rewards: float64, shape `[M]`.
      log_probs: The log-probabilities of the actions under the recording policy, float64, shape
        `[M]`; None if they were not recorded.
      discounts: The recorded discounts, float64, shape `[M]`; None if they are not used.

    Raises:
      ValueError: The arrays do not match, or have invalid values; the message has the
        location.

    >>> data = EvaluationSet(
    ...     num_transitions=[2, 1],
    ...     is_terminal=[True, False],
    ...     final_observation_known=[True, False],
    ...     observations=np.array([0, 1, 2, 0]),
    ...     actions=np.array([1, 0, 1]),
    ...     rewards=[0.0, 1.0, 0.5],
    ... )
    >>> data
    EvaluationSet(2 episodes, 3 transitions: 1 terminal, 1 truncated, 1 final observation unknown)
    >>> data.initial_observations
    array([0, 0])
    """

    num_transitions: np.ndarray
    is_terminal: np.ndarray
    final_observation_known: np.ndarray
    observations: Any
    actions: Any
    rewards: np.ndarray
    log_probs: np.ndarray | None = None
    discounts: np.ndarray | None = None

    def __post_init__(self) -> None:
        self._convert("num_transitions", np.int64)
        for name in ("is_terminal", "final_observation_known"):
            self._convert(name, np.bool_)
        for name in ("rewards", "log_probs", "discounts"):
            if getattr(self, name) is not None:
                self._convert(name, np.float64)
        self._check_lengths()
        self._check_values()

    def _convert(self, name: str, dtype: type) -> None:
        object.__setattr__(self, name, np.asarray(getattr(self, name), dtype))

    def _check_lengths(self) -> None:
        num_episodes = self.num_episodes
        if not num_episodes:
            raise ValueError("there are no episodes")
        if self.num_transitions.ndim != 1 or (self.num_transitions < 0).any():
            raise ValueError(f"num_transitions must be counts, got {self.num_transitions}")
        rows = int(self.splits[-1])
        steps = rows + int(self.final_observation_known.sum())
        expected = dict.fromkeys(("is_terminal", "final_observation_known"), num_episodes)
        expected |= {"rewards": rows, "observations": steps, "actions": rows}
        expected |= {name: rows for name in ("log_probs", "discounts") if _has(self, name)}
        for name, length in expected.items():
            for path, leaf in leaves_at({name: getattr(self, name)}, None):
                if len(leaf) != length:
                    raise ValueError(f"{path} must have {length} rows, got {len(leaf)}")
        for name in ("rewards", "log_probs", "discounts"):
            if _has(self, name) and getattr(self, name).ndim != 1:
                raise ValueError(f"{name} must be numbers, got shape {getattr(self, name).shape}")

    def _check_values(self) -> None:
        self._check(np.isfinite(self.rewards), "reward", self.rewards)
        if self.discounts is not None:
            is_valid = (self.discounts >= 0) & (self.discounts <= 1)
            self._check(is_valid, "discount", self.discounts, "must be between 0 and 1")
        if self.log_probs is not None:
            rule = "must be a finite logarithm of a probability (or of a density)"
            self._check(np.isfinite(self.log_probs), "log_probs", self.log_probs, rule)

    def _check(
        self, is_valid: np.ndarray, field: str, values: np.ndarray, rule: str = "must be finite"
    ) -> None:
        if not is_valid.all():
            index = int(np.argmin(is_valid))
            raise ValueError(f"{self.locate(index)}, field {field!r} {rule}, got {values[index]}")

    def __repr__(self) -> str:
        terminal, unknown = int(self.is_terminal.sum()), int((~self.final_observation_known).sum())
        ends = f"{terminal} terminal, {self.num_episodes - terminal} truncated"
        ends += f", {unknown} final observation{'s' * (unknown != 1)} unknown" if unknown else ""
        size = f"{self.num_episodes} episodes, {len(self.rewards)} transitions"
        return f"EvaluationSet({size}: {ends})"

    @property
    def num_episodes(self) -> int:
        """N, the number of episodes."""
        return len(self.num_transitions)

    @functools.cached_property
    def splits(self) -> np.ndarray:
        """The offset of the first transition of each episode, and of the end, `[N + 1]`."""
        return np.concatenate([[0], np.cumsum(self.num_transitions)])

    @functools.cached_property
    def episodes(self) -> np.ndarray:
        """The episode of each transition, `[M]`."""
        return np.repeat(np.arange(self.num_episodes), self.num_transitions)

    @functools.cached_property
    def times(self) -> np.ndarray:
        """The position of each transition in its episode, from 0 on, `[M]`."""
        return concat_ranges(self.num_transitions)

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """The row of the first observation of each transition in `observations`, `[M]`.

        The next row has the next observation, if there is one.
        """
        return np.arange(len(self.rewards)) + self._num_earlier_final[self.episodes]

    @functools.cached_property
    def is_last(self) -> np.ndarray:
        """A mask of the last transitions of episodes, `[M]`."""
        return self.times + 1 == self.num_transitions[self.episodes]

    @functools.cached_property
    def next_is_terminal(self) -> np.ndarray:
        """A mask of the transitions to a terminal state, whose value is 0, `[M]`."""
        return self.is_last & self.is_terminal[self.episodes]

    @functools.cached_property
    def next_is_known(self) -> np.ndarray:
        """A mask of the transitions with a next observation, `[M]`."""
        return ~self.is_last | self.final_observation_known[self.episodes]

    @functools.cached_property
    def _num_earlier_final(self) -> np.ndarray:
        """The number of final observations of all earlier episodes, `[N]`."""
        return np.cumsum(self.final_observation_known) - self.final_observation_known

    @property
    def first_rows(self) -> np.ndarray:
        """The row of the first observation of each episode in `observations`, `[N]`.

        Raises:
          ValueError: An episode has no observation.
        """
        empty = np.flatnonzero((self.num_transitions == 0) & ~self.final_observation_known)
        if len(empty):
            raise ValueError(f"episode {empty[0]} has neither a transition nor an observation")
        return self._first_rows

    @property
    def _first_rows(self) -> np.ndarray:
        return self.splits[:-1] + self._num_earlier_final

    @property
    def initial_observations(self) -> Any:
        """The first observation of each episode, `[N, ...]`."""
        return self.observations_at(self.first_rows)

    def observations_at(self, rows: Any) -> Any:
        """Returns rows of the observations."""
        return _map(lambda column: column[rows], self.observations)

    def actions_at(self, transitions: Any) -> Any:
        """Returns the actions of some transitions."""
        return _map(lambda column: column[transitions], self.actions)

    def step_discounts(self, gamma: float) -> np.ndarray:
        """Returns the discount of the value after each transition: gamma times the stored one.

        A recorded discount of 0 at a truncated end is ignored, as further steps have a value.
        """
        check_gamma(gamma)
        factors = np.full(len(self.rewards), float(gamma))
        if self.discounts is None:
            return factors
        is_cut = self.is_last & ~self.next_is_terminal & (self.discounts == 0)
        return factors * np.where(is_cut, 1.0, self.discounts)

    def has_successor(self, time_limit: int | None = None) -> np.ndarray:
        """Returns a mask of the transitions to a recorded observation or a terminal state, `[M]`.

        Args:
          time_limit: The steps after which the environment truncates episodes, if any: step
            `time_limit - 1` of episodes without a final observation then has no successor, even if
            this step is terminal.

        Raises:
          ValueError: An episode without a final observation is longer than the limit.
        """
        has_successor: np.ndarray = self.next_is_known | self.next_is_terminal
        if time_limit is None:
            return has_successor
        is_unknown = ~self.final_observation_known
        too_long = np.flatnonzero(is_unknown & (self.num_transitions > time_limit))
        if len(too_long):
            length = self.num_transitions[too_long[0]]
            raise ValueError(
                f"episode {too_long[0]} has {length} transitions: more than the time_limit of "
                f"{time_limit}"
            )
        has_successor &= ~(is_unknown[self.episodes] & (self.times == time_limit - 1))
        return has_successor

    def count_ends(
        self, episodes: np.ndarray | slice | None = None, *, censored: int = 0, left_out: int = 0
    ) -> EndCounts:
        """Returns the counts of episodes by their ends."""
        episodes = slice(None) if episodes is None else episodes
        is_terminal = self.is_terminal[episodes]
        is_final_known = self.final_observation_known[episodes]
        return EndCounts(
            terminal=int(is_terminal.sum()),
            truncated=int((~is_terminal & is_final_known).sum()),
            unknown=int((~is_terminal & ~is_final_known).sum()),
            censored=censored,
            left_out=left_out,
        )

    def locate(self, transition: int) -> str:
        """Returns the episode and the step of a transition, for messages."""
        return f"episode {self.episodes[transition]}, step {self.times[transition]}"

    def select(self, episodes: Any) -> EvaluationSet:
        """Returns the set of selected episodes.

        Args:
          episodes: Indices, a mask or a slice.
        """
        indices = np.arange(self.num_episodes)[episodes]
        lengths = self.num_transitions[indices]
        is_final_known = self.final_observation_known[indices]
        transitions = _expand_ranges(self.splits[:-1][indices], lengths)
        return dataclasses.replace(
            self,
            num_transitions=lengths,
            is_terminal=self.is_terminal[indices],
            final_observation_known=is_final_known,
            observations=self.observations_at(
                _expand_ranges(self._first_rows[indices], lengths + is_final_known)
            ),
            actions=self.actions_at(transitions),
            rewards=self.rewards[transitions],
            log_probs=None if self.log_probs is None else self.log_probs[transitions],
            discounts=None if self.discounts is None else self.discounts[transitions],
        )


def check_horizon(horizon: int | None) -> int | None:
    """Returns the horizon, None for all steps; raises a ValueError below 1."""
    if horizon is not None and (horizon := operator.index(horizon)) < 1:
        raise ValueError(f"horizon must be positive, or None, got {horizon}")
    return horizon


def check_gamma(gamma: float) -> None:
    """Raises a ValueError if gamma is not a valid discount."""
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must be between 0 and 1, got {gamma}")


def check_episode_weights(weights: Any, num_episodes: int) -> np.ndarray:
    """Returns the checked weights of episodes, float64, `[N]`.

    Raises:
      ValueError: The weights have a wrong shape, or invalid values.
    """
    array = np.asarray(weights, np.float64)
    if array.shape != (num_episodes,):
        raise ValueError(f"episode_weights must have shape ({num_episodes},), got {array.shape}")
    invalid = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(invalid):
        rule = "must be finite numbers that are not negative"
        raise ValueError(
            f"episode_weights {rule}, got {array[invalid[0]]} for episode {invalid[0]}"
        )
    if not array.any():
        raise ValueError("episode_weights are all 0")
    return array


def _map(function: Callable[[np.ndarray], np.ndarray], nested: Any) -> Any:
    return map_named_leaves(lambda _, leaf: function(leaf), nested)


def _has(data: EvaluationSet, name: str) -> bool:
    return getattr(data, name) is not None


def _expand_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the concatenated ranges of some starts and lengths."""
    return concat_ranges(lengths) + np.repeat(starts, lengths)


def collect(
    data: Any,
    split: str | None = None,
    *,
    observation: str | Sequence[str] = rlds.OBSERVATION,
    action: str | Sequence[str] = rlds.ACTION,
    reward: str = rlds.REWARD,
    log_prob: str | None = None,
    log_prob_in_next_step: bool = False,
    stored_discounts: bool = False,
    **options: Any,
) -> EvaluationSet:
    """Reads an evaluation set from all episodes of a dataset.

    Args:
      data: An argument of `rlds.feeds.open` (a dataset, a log, raw data in any format), a table,
        samples or a feed of it, or episodes: dicts whose `steps` are columns, or an iterable of
        steps. Episodes may come from a `tf.data.Dataset` in either layout.
      split: The split, if there are several.
      observation: The field of the observation, or a nest of fields, without its images. Several
        fields are joined to one vector. Name an image to include it.
      action: The field of the action, with the same options.
      reward: The field of the reward.
      log_prob: The field with the log-probabilities of the recorded actions.
      log_prob_in_next_step: True if the log-probability of an action is in the next step, for
        example by a `step_fn` of EnvLogger, which runs after the action.
      stored_discounts: True to use the recorded discounts in addition to gamma. A discount of 0
        does not make an end terminal; `is_terminal` does.
      **options: Options of `rlds.feeds.open`.

    Raises:
      KeyError: A field is missing; the message lists the existing ones.
      SourceError: The data is damaged; the message has the location.
      ValueError: There are no episodes; an episode has no start, or ends in the middle; a value is
        NaN. The message has the location.

    >>> steps = {
    ...     "observation": np.array([0.1, 0.2, 0.3]), "action": np.array([1, 0, 0]),
    ...     "reward": np.array([0.0, 1.0, 0.0]), "is_first": np.array([True, False, False]),
    ...     "is_last": np.array([False, False, True]), "is_terminal": np.array([False] * 3),
    ... }
    >>> collect([{"steps": steps}])
    EvaluationSet(1 episodes, 2 transitions: 0 terminal, 1 truncated)
    """
    if isinstance(data, str | os.PathLike | Episodes):
        data = rlds.feeds.open(data, split, **options)
    elif split is not None or options:
        raise TypeError("collect: a split and options need a path or Episodes")
    scalar_paths = {"rewards": reward}
    if log_prob is not None:
        scalar_paths["log_probs"] = log_prob
    if stored_discounts:
        scalar_paths["discounts"] = rlds.DISCOUNT
    paths = [*_as_list(observation), *_as_list(action), *scalar_paths.values()]
    blocks = list(_read_blocks(data, paths))
    if not blocks:
        raise ValueError("collect: there are no episodes")
    columns = {path: _concatenate(blocks, path) for path in blocks[0].columns}
    lengths = np.concatenate([block.num_steps for block in blocks])
    is_final_known = np.concatenate([block.final_observation_known for block in blocks])
    is_transition = np.ones(int(lengths.sum()), np.bool_)
    is_transition[np.cumsum(lengths)[is_final_known] - 1] = False
    transitions = np.flatnonzero(is_transition)
    rows = dict.fromkeys(scalar_paths, transitions)
    if log_prob_in_next_step and log_prob is not None:
        if not is_final_known.all():
            raise ValueError(
                f"collect: the final observation of episode {np.argmin(is_final_known)} is "
                f"unknown, so no step after its last action has the field {log_prob!r}"
            )
        rows["log_probs"] = transitions + 1
    nested = nest(columns)
    all_rows = np.arange(len(is_transition))
    for role, role_rows in ((observation, all_rows), (action, transitions)):
        for path, column in leaves_at(nested, role):
            _check_no_nan(path, column, role_rows, lengths)
    actions = _read_roles(nested, action, len(is_transition))
    return EvaluationSet(
        num_transitions=lengths - is_final_known,
        is_terminal=np.concatenate([block.is_terminal for block in blocks]),
        final_observation_known=is_final_known,
        observations=_read_roles(nested, observation, len(is_transition)),
        actions=_map(lambda column: column[transitions], actions),
        **{
            name: _read_scalars(nested, path, rows[name], lengths)
            for name, path in scalar_paths.items()
        },
    )


def _as_list(paths: str | Sequence[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


class _Block(NamedTuple):
    """A block of episodes: columns by path, lengths of episodes, and masks of their ends."""

    columns: dict[str, np.ndarray]
    num_steps: np.ndarray
    final_observation_known: np.ndarray
    is_terminal: np.ndarray


def _read_blocks(data: Any, paths: Sequence[str]) -> Iterator[_Block]:
    """Yields blocks of all episodes, with the fields at or below the paths."""
    offset = 0
    table = _table_of(data)
    chunks = _read_episodes(data, paths) if table is None else _read_table(table, paths)
    for columns, flags, num_steps, is_final_known in chunks:
        _check_flags(flags, num_steps, offset)
        is_terminal = _is_terminal(flags, num_steps, is_final_known, offset)
        yield _Block(columns, num_steps, is_final_known, is_terminal)
        offset += len(num_steps)


# Columns by path, flags by path, lengths of episodes, and masks of known final observations.
_Columns = tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray, np.ndarray]


def _table_of(data: Any) -> Table | None:
    """Returns the table of `rlds.feeds` behind data; None for other data."""
    if isinstance(data, rlds.feeds.Feed):
        if data.transform is not None:
            _refuse_changed_data("a feed with a transform", "feed.samples")
        data = data.samples
    if isinstance(data, rlds.feeds.Mixture):
        raise TypeError("collect: a mixture has several tables; collect each one separately")
    if isinstance(data, FilteredSamples | NormalizedSamples):
        _refuse_changed_data(type(data).__name__, "samples.table")
    if isinstance(data, rlds.feeds.Samples):
        data = data.table
    return data if isinstance(data, Table) else None


def _refuse_changed_data(data_name: str, alternative: str) -> NoReturn:
    raise TypeError(
        f"collect: needs complete, unchanged episodes, got {data_name}. Pass {alternative}; "
        "Table.filter_episodes leaves out episodes."
    )


def _read_table(table: Table, paths: Sequence[str]) -> Iterator[_Columns]:
    fields, storage = table.storage.fields, table.storage
    role_paths = _drop_images(
        fields,
        paths,
        lambda path: storage.is_image(path) or _is_image(fields[path].dtype, fields[path].shape),
    )
    flags = [path for name in _BOUNDARY_FIELDS for path in fields if is_below(path, name)]
    names = list(dict.fromkeys([*role_paths, *flags]))
    for episodes, columns in table.blocks(names):
        yield (
            {name: columns[name] for name in role_paths},
            {name: columns[name] for name in flags},
            table.summaries.num_steps[episodes],
            table.summaries.final_observation_known[episodes],
        )


def _read_episodes(episodes: Iterable[Any], paths: Sequence[str]) -> Iterator[_Columns]:
    role_paths: list[str] | None = None
    for index, episode in enumerate(episodes):
        steps = _as_step_columns(episode, index)
        try:
            if role_paths is None:
                leaves = {name: np.asarray(leaf) for name, leaf in leaves_at(steps, paths)}
                images = [n for n, leaf in leaves.items() if _is_image(leaf.dtype, leaf.shape[1:])]
                role_paths = _drop_images(leaves, paths, images.__contains__)
            columns = {name: np.asarray(leaf) for name, leaf in leaves_at(steps, role_paths)}
        except KeyError as error:
            raise KeyError(f"collect: episode {index}: {error.args[0]}") from None
        flag_names = [name for name in _BOUNDARY_FIELDS if name in steps]
        flags = {path: np.asarray(leaf) for path, leaf in leaves_at(steps, flag_names)}
        lengths = {name: len(column) for name, column in (columns | flags).items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"collect: columns of episode {index} differ in length: {lengths}")
        is_final_known = np.asarray(episode.get(rlds.FINAL_OBSERVATION_KNOWN, True), np.bool_)
        length = np.array([next(iter(lengths.values()))])
        yield columns, flags, length, is_final_known.reshape(1)


def _drop_images(
    leaves: Mapping[str, Any], paths: Sequence[str], is_image: Callable[[str], bool]
) -> list[str]:
    """Returns the field paths at or below some paths, without images nested in them."""
    all_paths: list[str] = []
    for path in paths:
        nested = dict(leaves_at(nest(leaves), path))
        numeric_paths = [name for name in nested if name == path or not is_image(name)]
        if not numeric_paths:
            raise ValueError(
                f"collect: {path!r} has only images: {', '.join(nested)}. Name the images that the "
                "policies use."
            )
        all_paths += numeric_paths
    return list(dict.fromkeys(all_paths))


def _is_image(dtype: Any, shape: tuple[int | None, ...]) -> bool:
    return bool(dtype == np.uint8) and len(shape) >= 3


def _as_step_columns(episode: Any, index: int) -> Mapping[str, Any]:
    """Returns the steps of an episode as columns by path."""
    steps = episode.get(rlds.STEPS) if isinstance(episode, Mapping) else None
    if isinstance(steps, Mapping):
        return steps
    join: Callable[[list[np.ndarray]], np.ndarray] = np.stack
    if steps is not None and hasattr(steps, "as_numpy_iterator"):
        # A tf.data.Dataset is faster in batches of steps.
        steps, join = steps.batch(_STEPS_PER_BATCH).as_numpy_iterator(), np.concatenate
    dicts: list[Any] = list(steps) if isinstance(steps, Iterable) else [steps]
    if not all(isinstance(item, Mapping) for item in dicts):
        kind = type(episode if steps is None else steps).__name__
        raise TypeError(
            f"collect: episode {index} must be a dict whose 'steps' are a dict of columns, or "
            f"dicts one after the other; got {kind}. You can also give the path of a dataset."
        )
    if not dicts:
        raise ValueError(f"collect: episode {index} has no steps")
    leaves = [dict(leaves_at(item, None)) for item in dicts]
    return nest({path: join([columns[path] for columns in leaves]) for path in leaves[0]})


def _locate_row(row: int, lengths: np.ndarray) -> str:
    """Returns the episode and the step of a row, for messages."""
    episode_ends = np.cumsum(lengths)
    episode = int(np.searchsorted(episode_ends, row, side="right"))
    return f"episode {episode}, step {row - int(episode_ends[episode] - lengths[episode])}"


def _check_no_nan(path: str, column: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> None:
    """Checks that some rows of a column have no NaN."""
    if column.dtype.kind not in "fc":
        return
    nan_rows = rows[np.isnan(column).reshape(len(column), -1).any(axis=1)[rows]]
    if len(nan_rows):
        raise ValueError(f"collect: {_locate_row(nan_rows[0], lengths)}, field {path!r} is NaN")


def _check_flags(flags: Mapping[str, np.ndarray], num_steps: np.ndarray, offset: int) -> None:
    """Checks that `is_first`, `is_last` and `is_terminal` match the bounds of episodes."""
    last_rows = np.cumsum(num_steps) - 1
    empty = np.flatnonzero(num_steps == 0)
    if len(empty):
        raise ValueError(f"collect: episode {offset + empty[0]} has no steps")
    if rlds.IS_FIRST in flags:
        cut = np.flatnonzero(~flags[rlds.IS_FIRST][last_rows + 1 - num_steps])
        if len(cut):
            raise ValueError(
                f"collect: episode {offset + cut[0]}, step 0, field 'is_first' is false: the "
                "episode has no start, so its value is not the value of the policy"
            )
    for name in (rlds.IS_LAST, rlds.IS_TERMINAL):
        if name not in flags:
            continue
        before_last = flags[name].astype(np.bool_)
        before_last[last_rows] = False
        if before_last.any():
            row = int(np.argmax(before_last))
            episode = int(np.searchsorted(last_rows, row))
            step = row - int(last_rows[episode] + 1 - num_steps[episode])
            raise ValueError(
                f"collect: episode {offset + episode}, step {step}, field {name!r} is true, but "
                "there are steps after it"
            )


def _is_terminal(
    flags: Mapping[str, np.ndarray], num_steps: np.ndarray, is_final_known: np.ndarray, offset: int
) -> np.ndarray:
    """Returns a mask of the terminal episodes, by their flags or their last discount."""
    last_rows = np.cumsum(num_steps) - 1
    if rlds.IS_TERMINAL in flags:
        return flags[rlds.IS_TERMINAL][last_rows].astype(np.bool_)
    discounts = [column for path, column in flags.items() if is_below(path, rlds.DISCOUNT)]
    if not discounts:
        raise KeyError(
            f"collect: the steps of episode {offset} have neither {rlds.IS_TERMINAL!r} nor "
            f"{rlds.DISCOUNT!r}; without one, terminated and truncated episodes look alike"
        )
    rows = np.maximum(last_rows - is_final_known, 0)
    continues = [(column[rows] != 0).reshape(len(rows), -1).any(axis=1) for column in discounts]
    return (num_steps > is_final_known) & ~np.any(continues, axis=0)


def _concatenate(blocks: Sequence[_Block], path: str) -> np.ndarray:
    columns = [block.columns[path] for block in blocks]
    shapes = {column.shape[1:] for column in columns}
    if len(shapes) > 1:
        raise ValueError(f"collect: field {path!r} has several shapes: {sorted(shapes)}")
    return np.concatenate(columns)


def _read_roles(nested: Mapping[str, Any], paths: str | Sequence[str], length: int) -> Any:
    """Returns the values of a role: a field, a nest of fields, or a vector of several."""
    if isinstance(paths, str):
        return lookup(nested, paths)
    columns = dict(leaves_at(nested, paths))
    for path in paths:
        if path not in columns or columns[path].dtype.kind not in "biuf":
            kind = columns[path].dtype if path in columns else "nested fields"
            raise ValueError(f"collect: field {path!r} cannot be joined to a vector: it is {kind}")
    return as_vector(paths, columns, (length,))


def _read_scalars(
    nested: Mapping[str, Any], path: str, rows: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    leaf = lookup(nested, path)
    if not isinstance(leaf, np.ndarray) or leaf.ndim != 1 or leaf.dtype.kind not in "biuf":
        leaf_type = "a nest" if isinstance(leaf, Mapping) else f"{leaf.dtype} of shape {leaf.shape}"
        raise ValueError(f"collect: field {path!r} must be a number in each step, got {leaf_type}")
    values: np.ndarray = leaf[rows].astype(np.float64)
    invalid = rows[~np.isfinite(values)]
    if len(invalid):
        fault = f"field {path!r} must be finite, got {leaf[invalid[0]]}"
        raise ValueError(f"collect: {_locate_row(invalid[0], lengths)}, {fault}")
    return values
