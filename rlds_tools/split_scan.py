"""One pass over the episodes of a split, for `rlds validate` and `rlds report`.

The pass collects findings and statistics. Memory grows by about 50 bytes for each episode and 8
bytes for each fault. Numeric fields are checked for several thousand steps at once; an image is
decoded only until a pixel shows that it is not blank.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import rlds
from rlds import validation
from rlds.auditing.audits import find_file_faults
from rlds.auditing.findings import first_equal
from rlds.feeds.compat import loader_profiles
from rlds.sources import Episodes
from rlds.sources.cameras import Frames, cameras_of, fault_of
from rlds.sources.digests import digest_of_columns
from rlds.sources.source import SourceEpisode, SourceError
from rlds.video import FRAMES, VIDEO
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below, named_leaves, root_of
from rlds_tools.findings import Finding, FindingCollector
from rlds_tools.inspection import recorded_steps
from rlds_tools.reading import declared_length, instructions_in, is_whole, read_all
from rlds_tools.results import count
from rlds_tools.robots import check_description, known_defect, meaning_or_none
from rlds_tools.values import NumericField, element_name
from tfds_files import RaggedColumn, TfdsFilesError

__all__ = ["SplitScan", "open_splits"]

# The largest batch of steps to check at once, in steps and in bytes.
_MAX_BATCH_STEPS, _MAX_BATCH_BYTES = 4096, 32 << 20
# The maximum size of a field whose elements have a meaning, and of the counter of instructions.
_MAX_FIELD_ELEMENTS, _MAX_INSTRUCTIONS = 4096, 10_000

# Consecutive unreadable episodes after which reading stops.
_MAX_UNREADABLE = 1000
_MAIN_FIELDS = (rlds.OBSERVATION, rlds.ACTION)
_TRANSITION_FIELDS = (rlds.ACTION, rlds.REWARD, rlds.DISCOUNT)
# The maximum length of a suspiciously short episode, and the minimum steps to report a constant.
_MAX_SHORT_STEPS, _MIN_STEPS_TO_JUDGE = 2, 10
# The minimum share of episodes whose first action is zero, and the maximum share of other zeros.
_MIN_ZERO_FIRST_SHARE, _MAX_ZERO_OTHER_SHARE = 0.9, 0.1
# A row of `SplitScan.table`.
_EPISODE_DTYPE = np.dtype(
    [
        *(("index", np.int64), ("length", np.int64), ("reward", np.float64)),
        *(("is_terminal", np.bool_), ("digest", np.uint64)),
    ]
)


def open_splits(
    path: str,
    split: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    where: str | None = None,
) -> list[Episodes]:
    """Opens splits without decoding the images of TFDS datasets.

    Args:
      path: The path of the data.
      split: The name of the split; all splits if None.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format.
      where: A condition on episodes, in SQL; see `rlds.sources.open`.

    Raises:
      FileNotFoundError: The path does not exist.
      KeyError: The dataset lacks the split.
      SourceError: The data is damaged, or its format is unknown.
    """
    from rlds import sources

    format = format or sources.format_of(path)
    options = {**({"decode_images": False} if format == "tfds" else {}), **(options or {})}
    if split is not None:
        return [sources.open(path, split, format=format, where=where, **options)]
    if where is not None:
        source = sources.open(path, "all", format=format, where=where, **options).source
    else:
        source = sources.formats()[format].source(path, **options)
    return [Episodes(source, name, format=format) for name in source.splits]


class _BatchEpisode(NamedTuple):
    """An episode of the batch to check."""

    episode: int
    length: int
    is_final_known: bool
    columns: Mapping[str, Any]
    fields: Mapping[str, Any]


class SplitScan:
    """Checks the episodes of a split one by one, and collects statistics.

    Args:
      episodes: The split.
      finite: Paths of fields that must be neither NaN nor infinite.
      profile: The profile of a loader to check; see `rlds.validation.validate`.
      decode_all: Whether to decode all images.

    Attributes:
      episodes: The split.
      numeric_fields: The statistics of numeric fields, by path.
      cameras: The image fields, by path.
      instructions: The number of episodes with each instruction.
      num_steps: The number of steps.
      num_unreadable: The number of unreadable episodes.
      collector: The faults.
    """

    def __init__(
        self,
        episodes: Episodes,
        *,
        finite: Sequence[str] = (),
        profile: str | None = None,
        decode_all: bool = False,
    ) -> None:
        self.episodes, self._decode_all, self._finite = episodes, decode_all, tuple(finite)
        self.fields: dict[str, Any] = dict(named_leaves(episodes.spec[rlds.STEPS]))
        self.cameras = cameras_of(self.fields)
        self.numeric_fields = {
            path: NumericField(tuple(int(size or 0) for size in field.shape))
            for path, field in self.fields.items()
            if _is_numeric(field) and path not in self.cameras and path not in rlds.STEP_FLAGS
        }
        self._rows = bytearray()
        self.instructions: collections.Counter[str] = collections.Counter()
        self.num_steps = self.num_unreadable = 0
        self._validator = validation.Validator(self._finite, profile)
        self._has_profile = profile is not None
        self.collector = FindingCollector(episodes.stored_index)
        self._batch: list[_BatchEpisode] = []
        self._batch_bytes = self._batch_steps = self._num_terminal = 0
        self._shapes: dict[str, tuple[int, ...]] | None = None
        self._meaning = meaning_or_none(episodes)
        # Counts of float actions: zero in the first step, all first, zero in later steps, all
        # later.
        self._zero_actions = np.zeros(4, np.int64)

    @property
    def table(self) -> Any:
        """A table with a row for each episode that was read.

        `index` is the index in the split, `length` the number of steps, `reward` the sum of the
        rewards (NaN without rewards), `is_terminal` is true if the episode ended in a terminal
        state, and `digest` is equal for episodes with the same observations and actions.
        """
        return np.frombuffer(bytes(self._rows), _EPISODE_DTYPE).view(np.recarray)

    def read(self, indices: Iterable[int], jobs: int = 1) -> None:
        """Reads the episodes, and collects the faults of files and episodes.

        Reading stops after too many consecutive unreadable episodes, as a damaged file can declare
        any number of them.

        Args:
          indices: The indices of the episodes.
          jobs: The number of processes that read.

        Raises:
          ValueError: The profile requires a TFDS dataset.
        """
        if self._has_profile:
            self._check_profile()
        for text, field in check_description(self.episodes):
            self.collector.add(Finding("description", text, field))
        self._is_whole = is_whole(self.episodes)
        for text in find_file_faults(self.episodes.source, [self.episodes.split] * self._is_whole):
            self.collector.add(Finding("files", text))
        num_consecutive = 0
        for index, episode in read_all(self.episodes, indices, jobs):
            if num_consecutive == _MAX_UNREADABLE:
                event = f"stopped at episode {index:,}"
                text = f"{event}: the {num_consecutive:,} episodes before it cannot be read"
                self.collector.add(Finding("unreadable", text))
                break
            if isinstance(episode, SourceError):
                self.num_unreadable += 1
                num_consecutive += 1
                self._add_finding("unreadable", f"cannot be read: {episode}", index)
            else:
                num_consecutive = 0
                self._scan_episode(index, episode)
        self._flush()
        self._check_num_steps()
        self._check_constants()
        self._check_duplicates()
        self._check_first_actions()
        self._check_terminal_flags()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The faults, errors first."""
        return tuple(
            finding if finding.hint else dataclasses.replace(finding, hint=self._hint_of(finding))
            for finding in self.collector.result()
        )

    def _check_profile(self) -> None:
        """Checks the storage of the dataset against the profile of a loader."""
        examples = self.episodes.source.capabilities.examples
        if examples is None:
            raise ValueError("profile: works only with TFDS datasets. Convert the dataset first.")
        features = loader_profiles.read_features(examples.directory)
        folder_violations = self._validator.check_directory(examples.directory)
        for violation in (*folder_violations, *self._validator.check_features(features)):
            self._add_violation(violation)

    def _hint_of(self, finding: Finding) -> str:
        words = finding.field, finding.check if finding.check == "first action" else None
        return known_defect(self._meaning, *words)

    def _add_finding(self, check: str, text: str, episode: int, field: str | None = None) -> None:
        self.collector.add(Finding(check, text, field), episode)

    def _scan_episode(self, index: int, episode: SourceEpisode) -> None:
        leaves = named_leaves(episode.steps)
        columns = {
            path: column
            for path, column in leaves
            if isinstance(column, RaggedColumn) or np.ndim(column)
        }
        lengths = set(map(len, columns.values()))
        length = lengths.pop() if len(lengths) == 1 else 0
        is_final_known = episode.final_observation_known
        self.num_steps += length
        fields = {rlds.FINAL_OBSERVATION_KNOWN: np.bool_(is_final_known), **episode.metadata}
        arrays = {path: c for path, c in columns.items() if isinstance(c, np.ndarray)}
        self._count_zero_actions(arrays, length - is_final_known)
        self._add_to_batch(_BatchEpisode(index, length, is_final_known, arrays, fields))
        is_terminal = arrays.get(rlds.IS_TERMINAL)
        is_terminal_end = length > 0 and is_terminal is not None and bool(np.any(is_terminal))
        self._num_terminal += is_terminal_end
        reward = episode.total_reward
        row = (
            index,
            length,
            math.nan if reward is None else reward,
            is_terminal_end or (is_terminal is None and not episode.truncated),
            _episode_digest(columns),
        )
        self._rows += np.array(row, _EPISODE_DTYPE).tobytes()
        if 0 < length <= _MAX_SHORT_STEPS:  # Length 0 is an error of the validator.
            self._add_finding("few steps", f"the episode has {count(length, 'step')}", index)
        if not episode.complete:
            self._add_finding("incomplete", "the recording of the episode is incomplete", index)
        self._count_instructions(index, episode)
        for path, missing in self._missing_frames(arrays, episode.metadata):
            text = f"{path} has no frame in {count(missing, 'step')}"
            self._add_finding("camera gaps", text, index, path)
        for path, field in self.cameras.items():
            if length and path in columns:
                self._check_frames(index, path, Frames(columns[path], field))

    def _missing_frames(
        self, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]
    ) -> Iterator[tuple[str, int]]:
        """Yields cameras that lack frames, with the number of steps without a frame."""
        suffix = f"/{FRAMES}"
        for path, frames in named_leaves(metadata.get(VIDEO, {})):
            if path.endswith(suffix) and (missing := int((np.asarray(frames) < 0).sum())):
                yield path.removesuffix(suffix), missing
        for path in self.cameras:
            has_frame = columns.get(known_field(path), np.ones(1, np.bool_))
            if has_frame.dtype == np.bool_ and not has_frame.all():
                yield path, int((~has_frame).sum())

    def _check_frames(self, index: int, path: str, frames: Frames) -> None:
        try:
            problem = fault_of(frames, decode_all=self._decode_all)
        except TfdsFilesError as error:
            self._add_finding("unreadable", f"{path} cannot be decoded: {error}", index, path)
        else:
            if problem:
                self._add_finding("camera blank", f"{path} {problem}", index, path)

    def _count_instructions(self, index: int, episode: SourceEpisode) -> None:
        for path, texts in instructions_in(episode).items():
            for text in sorted({*texts}):
                if len(self.instructions) < _MAX_INSTRUCTIONS or text in self.instructions:
                    self.instructions[text] += 1
            if not any(map(str.strip, texts)):
                self._add_finding("task", f"{path} is empty", index, path)

    # --- Checks of a batch of episodes.

    def _add_to_batch(self, row: _BatchEpisode) -> None:
        self._batch.append(row)
        self._batch_steps += row.length
        self._batch_bytes += sum(column.nbytes for column in row.columns.values())
        if self._batch_steps >= _MAX_BATCH_STEPS or self._batch_bytes >= _MAX_BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        rows, self._batch = self._batch, []
        self._batch_steps = self._batch_bytes = 0
        if not rows:
            return
        uniform = [row for row in rows if self._is_uniform(row)]
        columns = {
            path: np.concatenate([row.columns[path] for row in uniform])
            for path in (uniform[0].columns if uniform else ())
        }
        if len(uniform) < len(rows) or not self._are_valid(uniform, columns):
            for row in rows:
                self._validate(row)
        if uniform:
            self._add_statistics(uniform, columns)

    def _is_uniform(self, row: _BatchEpisode) -> bool:
        """Returns True if the columns can be concatenated with earlier and declared columns."""
        shapes = {path: column.shape[1:] for path, column in row.columns.items()}
        if self._shapes is None and all(
            shapes.get(path) == field.shape and row.columns[path].dtype.kind in "biuf"
            for path, field in self.numeric_fields.items()
        ):
            self._shapes = shapes
        return row.length > 0 and shapes == self._shapes

    def _are_valid(self, rows: Sequence[_BatchEpisode], columns: Mapping[str, np.ndarray]) -> bool:
        """Checks a batch of episodes at once; returns False if an episode is invalid."""
        first_row, last_row = rows[0], rows[-1]
        names = first_row.fields.keys()
        is_consecutive = last_row.episode - first_row.episode == len(rows) - 1
        if not is_consecutive or any(row.fields.keys() != names for row in rows):
            return False
        fields = {name: [row.fields[name] for row in rows] for name in names}
        is_final_known = np.array(fields[rlds.FINAL_OBSERVATION_KNOWN])
        self._validator.num_episodes = first_row.episode
        return self._validator.add_all(
            columns,
            np.array([row.length for row in rows]),
            {**fields, rlds.FINAL_OBSERVATION_KNOWN: is_final_known},
        )

    def _validate(self, row: _BatchEpisode) -> None:
        self._validator.num_episodes = row.episode
        for violation in self._validator.add({rlds.STEPS: row.columns, **row.fields}):
            self._add_violation(violation, row.episode)

    def _add_violation(self, violation: validation.Violation, episode: int | None = None) -> None:
        details: Any = {"field": violation.field, "step": violation.step, "hint": violation.hint}
        self.collector.add(Finding("rules", _describe(violation), **details), episode)

    def _add_statistics(
        self, rows: Sequence[_BatchEpisode], columns: Mapping[str, np.ndarray]
    ) -> None:
        end_rows = np.cumsum([row.length for row in rows])
        is_placeholder = np.zeros(end_rows[-1], np.bool_)
        is_placeholder[end_rows - 1] = [row.is_final_known for row in rows]
        all_valid = np.ones(end_rows[-1], np.bool_)
        for path, statistics in self.numeric_fields.items():
            has_placeholders = root_of(path) in _TRANSITION_FIELDS
            num_before = statistics.not_finite.sum()
            statistics.add(columns[path], ~is_placeholder if has_placeholders else all_valid)
            is_validated = any(is_below(path, name) for name in self._finite)
            if statistics.not_finite.sum() > num_before and not is_validated:
                for row in rows:
                    stop = row.length - (has_placeholders and row.is_final_known)
                    self._check_finite(row.episode, path, row.columns[path][:stop])

    def _check_finite(self, episode: int, path: str, column: np.ndarray) -> None:
        values = column.reshape(len(column), -1)
        positions = np.argwhere(~np.isfinite(values))
        if len(positions):
            step, element = map(int, positions[0])
            name = element_name(path, column.shape[1:], element)
            text = f"{name} is {'NaN' if np.isnan(values[step, element]) else 'infinite'}"
            self.collector.add(Finding("not finite", text, path, step=step), episode)

    def _count_zero_actions(self, columns: Mapping[str, np.ndarray], length: int) -> None:
        """Counts the float actions that are zero, without the placeholder."""
        if length < 2:
            return
        zeros = [
            ~columns[path].reshape(len(columns[path]), -1)[:length].any(axis=1)
            for path in self.numeric_fields
            if root_of(path) == rlds.ACTION and path in columns and columns[path].dtype.kind == "f"
        ]
        if zeros:
            are_zero = np.all(zeros, axis=0)
            self._zero_actions += [are_zero[0], 1, are_zero[1:].sum(), length - 1]

    # --- Checks after the last episode.

    def _check_num_steps(self) -> None:
        """Compares the number of steps with the number that a conversion has recorded."""
        expected = recorded_steps(self.episodes.metadata, self.episodes.split)
        is_complete = self._is_whole and not self.num_unreadable
        is_complete = is_complete and len(self.table) == declared_length(self.episodes)
        if expected is not None and is_complete and expected != self.num_steps:
            text = f"the split has {self.num_steps:,} steps, but the metadata says {expected:,}"
            self.collector.add(Finding("files", text))

    def _check_terminal_flags(self) -> None:
        # Without rewards, nothing is bootstrapped, so terminal flags do not matter.
        has_rewards = any(root_of(path) == rlds.REWARD for path in self.fields)
        if not self.num_steps:
            return
        if rlds.IS_TERMINAL not in self.fields:
            text = "is_terminal is missing: terminal and truncated episodes look the same"
            self.collector.add(Finding("terminal", text))
        elif has_rewards and not self._num_terminal and len(self.table) > 1:
            text = "is_terminal is false in all steps of all episodes"
            self.collector.add(Finding("terminal", text))

    def _check_constants(self) -> None:
        for path, field in self.numeric_fields.items():
            if root_of(path) not in _MAIN_FIELDS or field.count < _MIN_STEPS_TO_JUDGE:
                continue
            is_constant = field.is_constant
            if len(field.shape) > 1 and not is_constant.all():
                continue  # Boards may have unused squares.
            for value in np.unique(field.min[is_constant]):
                elements = _elements(path, field, is_constant & (field.min == value))
                text = f"{elements} is {value:g} in all steps"
                self.collector.add(Finding("constant", text, path))
            self._check_limits(path, field)

    def _check_limits(self, path: str, field: NumericField) -> None:
        if getattr(self.fields[path], "column_dtype", np.dtype(int)).kind != "f":
            return
        for side, counts in (("lowest", field.at_min), ("highest", field.at_max)):
            is_often = field.is_often_at(counts)
            if is_often.any():
                percents = 100 * counts[is_often] / field.count
                extent = f"{percents.min():.0f} %"
                extent += f" to {percents.max():.0f} %" if np.ptp(percents) >= 1 else ""
                elements = _elements(path, field, is_often)
                text = f"{elements} is at its {side} value in {extent} of steps"
                self.collector.add(Finding("limit", text, path))

    def _check_first_actions(self) -> None:
        zeros, episodes, other_zeros, other_steps = self._zero_actions.tolist()
        limit = _MAX_ZERO_OTHER_SHARE * other_steps
        if episodes > 1 and zeros >= _MIN_ZERO_FIRST_SHARE * episodes and other_zeros <= limit:
            fact = f"the first action is zero in {zeros:,} of {count(episodes, 'episode')}"
            text = f"{fact}: a placeholder, or actions are one step late"
            self.collector.add(Finding("first action", text))

    def _check_duplicates(self) -> None:
        indices, first_rows = self.table.index, first_equal(self.table.digest)
        for row in np.flatnonzero(first_rows != np.arange(len(first_rows))).tolist():
            stored_index = self.episodes.stored_index(int(indices[first_rows[row]]))
            text = f"same observations and actions as episode {stored_index}"
            self._add_finding("duplicate", text, int(indices[row]))


def _is_numeric(field: Any) -> bool:
    if not isinstance(field, Field) or field.encoding or field.column_dtype.kind not in "biuf":
        return False
    return 0 < math.prod(size or 0 for size in field.shape) <= _MAX_FIELD_ELEMENTS


def _describe(violation: validation.Violation) -> str:
    """Describes a violation without its location."""
    if violation.field is None:
        return violation.what
    value, separator, expectation = violation.what.partition(", but")
    problem = f" is {value.lower()}{separator}{expectation}" if separator else f": {violation.what}"
    return f"{violation.field}{problem}"


def _elements(path: str, field: NumericField, mask: np.ndarray) -> str:
    """Formats elements of a field as a Python expression."""
    if not field.shape:
        return path
    indices = list(map(str, np.flatnonzero(mask)))
    if len(indices) == len(mask) > 1:
        return f"all of {path}"
    return f"{path}[{', '.join(indices[:8])}{', …' if len(indices) > 8 else ''}]"


def _episode_digest(columns: Mapping[str, Any]) -> int:
    """Returns a hash of the observations and actions of an episode."""
    main = {path: column for path, column in columns.items() if root_of(path) in _MAIN_FIELDS}
    return int.from_bytes(digest_of_columns(main)[:8])
