"""`rlds diff`: the differences between two datasets, value by value."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources.episode_fields import ORIGIN, fields_of
from rlds.sources.episodes import as_values
from rlds.sources.source import Source, SourceError, files_of
from rlds_ecosystem.model.fields import MEANING_ATTRIBUTES, Field, fields_text
from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import is_below, named_leaves
from rlds_ecosystem.model.texts import shorten
from rlds_ecosystem.progress import show_progress
from rlds_tools.reading import declared_length, indices_of
from rlds_tools.results import Block, Result, Table, count, next_commands, plain, text_of
from rlds_tools.split_scan import open_splits
from tfds_files import RaggedColumn

if TYPE_CHECKING:
    from rlds.sources import Episodes, SourceEpisode

__all__ = ["Difference", "Differences", "UnmatchedEpisode", "ValueDifference", "diff"]

MATCHES = ("auto", "index", "id")
# Fields that name the origin of an episode; `diff` reports their differences as notes.
_ORIGIN_FIELDS = (rlds.metadata.EPISODE_ID, ORIGIN)
# The maximum number of episodes that are named if only one dataset has them.
_MAX_NAMED_EPISODES = 10


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference in the splits, fields or metadata of two datasets.

    Attributes:
      what: The subject of the difference, such as "field steps/action".
      one: The value in the first dataset; None if the dataset lacks it.
      other: The value in the second dataset; None if the dataset lacks it.
    """

    what: str
    one: str | None
    other: str | None


@dataclasses.dataclass(frozen=True)
class ValueDifference:
    """A field whose values differ.

    Attributes:
      field: The path: "steps/action" for a field of a step, "seed" for a field of an episode,
        "steps" for the number of steps.
      episodes: The number of episodes with differences.
      steps: The number of steps with differences; None for a field of an episode.
      split: The split of the first difference.
      episode: The index of its episode in the first dataset.
      other_episode: The index of the matching episode in the second dataset.
      step: The step of the first difference; None for a field of an episode.
      index: The index of the differing element in the array.
      one: The element in the first dataset, or the shape if the shapes differ.
      other: The element in the second dataset, or the shape.
      largest: The largest absolute difference of finite numbers; None for other values.
    """

    field: str
    episodes: int
    steps: int | None
    split: str
    episode: int
    other_episode: int
    step: int | None
    index: tuple[int, ...]
    one: Any
    other: Any
    largest: float | None

    @property
    def where(self) -> str:
        """The text that names the location of the first difference."""
        episode = f"{self.episode}"
        if self.other_episode != self.episode:
            episode += f" and {self.other_episode}"
        step = "" if self.step is None else f", step {self.step}"
        return f"{self.split} episode {episode}{step}{f', {[*self.index]}' if self.index else ''}"


@dataclasses.dataclass(frozen=True)
class UnmatchedEpisode:
    """Episodes that only one of the datasets has.

    Attributes:
      path: The path of the dataset.
      split: The split.
      episodes: The number of episodes.
      ids: The ids of the first of these episodes.
    """

    path: str
    split: str
    episodes: int
    ids: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Differences(Result):
    """The result of `rlds diff`: the differences of two datasets.

    Attributes:
      one: The first dataset.
      other: The second dataset.
      episodes: The number of compared pairs of episodes; 0 for `structure_only`.
      steps: The number of compared pairs of steps.
      differences: Splits, fields and numbers of episodes that differ.
      values: The fields whose values differ.
      unmatched: Episodes that only one of the datasets has.
      notes: Differences that do not count: the origin of episodes, the metadata of the dataset, the
        names of elements, the name of the only split.
      structure_only: Whether the values were not compared.
    """

    one: str
    other: str
    episodes: int
    steps: int
    differences: tuple[Difference, ...]
    values: tuple[ValueDifference, ...]
    unmatched: tuple[UnmatchedEpisode, ...]
    notes: tuple[Difference, ...]
    structure_only: bool = False

    @property
    def exit_code(self) -> int:
        """1 if there are differences, as for `diff`."""
        return 1 if self.differences or self.values or self.unmatched else 0

    @override
    def blocks(self) -> Iterator[Block]:
        compared = f"{count(self.episodes, 'episode')}, {count(self.steps, 'step')}, all values"
        compared = "the structure" if self.structure_only else compared
        total = len(self.differences) + len(self.values) + len(self.unmatched)
        yield f"{count(total, 'difference') if total else 'no differences'} in {compared}"
        if self.differences:
            yield self._table("", self.differences)
        for group in self.unmatched:
            ids = ", ".join(group.ids) + (", …" if group.episodes > len(group.ids) else "")
            episodes = count(group.episodes, "episode")
            yield f"only in {group.path}, {group.split}: {episodes}: {ids}"
        if self.values:
            columns = ["values of", ">episodes", ">steps", "first", self.one, self.other]
            rows = [
                [
                    value.field,
                    f"{value.episodes:,}",
                    "" if value.steps is None else f"{value.steps:,}",
                    value.where,
                    _as_cell(value.one),
                    _as_cell(value.other),
                    "" if value.largest is None else f"{value.largest:.6g}",
                ]
                for value in self.values
            ]
            yield Table([*columns, ">largest difference"], rows)
        if self.notes:
            yield self._table("not counted", self.notes)
        if self.structure_only:
            yield next_commands(["diff", self.one, self.other])

    def _table(self, heading: str, rows: Sequence[Difference]) -> Table:
        return Table(
            [heading, self.one, self.other],
            [[row.what, _as_cell(row.one), _as_cell(row.other)] for row in rows],
        )


def diff(
    one: str | os.PathLike[str],
    other: str | os.PathLike[str],
    *,
    split: str | None = None,
    structure_only: bool = False,
    match: Literal["auto", "index", "id"] = "auto",
    ignore: Sequence[str] = (),
    rtol: float = 0.0,
    atol: float = 0.0,
    format: str | None = None,
    other_format: str | None = None,
    options: Mapping[str, Any] | None = None,
    other_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Differences:
    """Compares two datasets of any formats episode by episode.

    All values of all steps and episodes are compared. NaN equals NaN, and images are equal if their
    pixels are equal. The names and the number of files do not count. Two episodes are in memory at
    a time.

    Args:
      one: A dataset, as `inspect` takes it.
      other: Another dataset.
      split: The split, or the slice of a split, to compare; all splits if None.
      structure_only: Whether to compare only splits, fields and numbers of episodes, without
        reading episodes.
      match: The pairing of episodes: by "index" or by "id". "auto" uses ids if the splits share
        any id, as conversions shuffle episodes and keep ids.
      ignore: Paths of fields to leave out, such as "steps/observation" or "seed".
      rtol: The tolerance of numbers, relative to the second dataset.
      atol: The absolute tolerance of numbers, which is added to the relative tolerance.
      format: The format of the first dataset, if it cannot be recognized.
      other_format: The format of the second dataset.
      options: Options of the first format, see `rlds.sources.formats`.
      other_options: The options of the second dataset.
      progress: Whether to show a progress bar; if None, on a terminal.

    Raises:
      FileNotFoundError: A path does not exist.
      KeyError: The datasets lack the split, or a field to ignore.
      SourceError: An episode is damaged; the message has the location.
      ValueError: Two episodes of a split have the same id, and `match` is "id".

    >>> import tempfile
    >>> import envlogger
    >>> from envlogger.testing.catch_env import Catch
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> print(diff(directory, directory))
    no differences in 1 episode, 10 steps, all values
    """
    if match not in MATCHES:
        raise ValueError(f"match: got {match!r}, expected one of {', '.join(MATCHES)}")
    paths = os.fspath(one), os.fspath(other)
    datasets = [
        {episodes.split: episodes for episodes in open_splits(path, split, *its_format)}
        for path, its_format in zip(paths, ((format, options), (other_format, other_options)))
    ]
    names = [next(iter(splits)) for splits in datasets if len(splits) == 1]
    if len(names) == 2:  # Formats without splits name their only split freely.
        datasets[1] = {names[0]: datasets[1][names[1]]}
    comparison = _Comparison(datasets, ignore, rtol, atol)
    comparison.compare_fields()
    comparison.compare_metadata()
    if len(names) == 2:
        comparison.notes += _list_changes("split", *names)
    with show_progress(progress) as bars:
        for name in {**datasets[0], **datasets[1]}:
            one_split, other_split = (splits.get(name) for splits in datasets)
            if one_split is None or other_split is None or structure_only:
                comparison.compare_lengths(name, one_split, other_split)
                continue
            comparison.pair = one_split, other_split
            index_pairs = _pair_up(one_split, other_split, match)
            total = declared_length(one_split)
            for one_index, other_index in bars.track(index_pairs, total, description=name):
                if one_index is not None and other_index is not None:
                    comparison.compare_episodes(one_index, other_index)
                else:
                    comparison.add_unmatched(one_index, other_index)
    origins = [value for value in comparison.values.values() if _is_provenance(value.field)]
    unmatched = [
        UnmatchedEpisode(paths[side], name, num_episodes, tuple(ids))
        for (side, name), (num_episodes, ids) in comparison.unmatched.items()
    ]
    return Differences(
        *paths,
        comparison.episodes,
        comparison.steps,
        tuple(comparison.differences),
        tuple(value for value in comparison.values.values() if not _is_provenance(value.field)),
        tuple(unmatched),
        (*comparison.notes, *map(_as_note, origins)),
        structure_only,
    )


def _pair_up(one: Episodes, other: Episodes, match: str) -> Iterator[tuple[int | None, int | None]]:
    """Yields the indices of matched episodes; None instead of a missing episode."""
    if match != "index":
        indices = [_indices_by_id(episodes, match == "id") for episodes in (one, other)]
        if match == "id" or indices[0].keys() & indices[1].keys():
            yield from ((index, indices[1].get(key)) for key, index in indices[0].items())
            yield from ((None, index) for key, index in indices[1].items() if key not in indices[0])
            return
    for index in itertools.count():
        pair = [index if episodes.has(index) else None for episodes in (one, other)]
        if pair == [None, None]:
            return
        yield pair[0], pair[1]


def _indices_by_id(episodes: Episodes, is_needed: bool) -> dict[str, int]:
    """Returns the indices of episodes by id. For a duplicate id, raises if ids are needed."""
    indices: dict[str, int] = {}
    for index in indices_of(episodes):
        key = _id_of(episodes, index)
        if indices.setdefault(key, index) != index:
            if not is_needed:
                return {}
            problem = f"episodes {indices[key]} and {index} have the same id {key!r}"
            raise ValueError(f"{files_of(episodes.source)}: {problem}. Use --match index.")
    return indices


def _id_of(episodes: Episodes, index: int) -> str:
    source, location = episodes.source, episodes.locate(index)
    field = rlds.metadata.EPISODE_ID
    if (stored := source.capabilities.examples) is not None and field in stored.folder.features:
        split, position = location
        return str(_text(stored.folder[split].example(position, [field])[field]))
    if isinstance(source, Source):
        return source.key(*location)
    return episodes.peek(index).key


class _Comparison:
    """A collector of the differences between two datasets.

    Args:
      datasets: The splits of each dataset, by name.
      ignore: The paths of fields to leave out.
      rtol: See `diff`.
      atol: See `diff`.

    Attributes:
      pair: The two splits that are being compared.
      differences: See `Differences`.
      notes: See `Differences`.
      values: The fields whose values differ, by their paths.
      unmatched: The number of unmatched episodes and their first ids, by the dataset (0 or 1) and
        the split.
      episodes: See `Differences`.
      steps: See `Differences`.

    Raises:
      KeyError: Both datasets lack a field to ignore.
    """

    def __init__(
        self,
        datasets: Sequence[Mapping[str, Episodes]],
        ignore: Sequence[str],
        rtol: float,
        atol: float,
    ) -> None:
        self._first_splits = [next(iter(splits.values()), None) for splits in datasets]
        self._specs = [dict(named_leaves(s.spec)) if s else {} for s in self._first_splits]
        self._ignore = tuple(ignore)
        all_paths = dict.fromkeys([*self._specs[0], *self._specs[1]])
        for path in ignore:
            if not any(is_below(name, path) for name in all_paths):
                raise KeyError(f"ignore: no field {path!r}; {suggest_names(path, all_paths)}")
        self._equal = _is_equal if rtol == atol == 0 else _is_close(rtol, atol)
        self.pair: tuple[Episodes, ...] = ()
        self.differences: list[Difference] = []
        self.notes: list[Difference] = []
        self.values: dict[str, ValueDifference] = {}
        self.unmatched: dict[tuple[int, str], tuple[int, list[str]]] = {}
        self.episodes = self.steps = 0

    def compare_fields(self) -> None:
        """Compares the sets of fields, and their dtypes and shapes."""
        for path in dict.fromkeys([*self._specs[0], *self._specs[1]]):
            if self._is_ignored(path) or _is_provenance(path):
                continue
            fields = [spec.get(path) for spec in self._specs]
            texts = [None if field is None else fields_text(field) for field in fields]
            if texts[0] != texts[1]:
                # Values may all have the size that only one dataset declares.
                differences = self.notes if _may_agree(*fields) else self.differences
                differences.append(Difference(f"field {path}", *texts))
        for attribute in MEANING_ATTRIBUTES:
            self._compare_meaning(attribute)

    def _compare_meaning(self, attribute: str) -> None:
        """Adds a note for each field whose meaning (names, units, codes) differs."""
        one, other = ({p: getattr(f, attribute, None) for p, f in s.items()} for s in self._specs)
        changed = [path for path in one if path in other and one[path] != other[path]]
        if changed:
            paths = [", ".join(path for path in changed if s[path]) or None for s in (one, other)]
            self.notes.append(Difference(f"{attribute} in {count(len(changed), 'field')}", *paths))

    def compare_metadata(self) -> None:
        """Compares the formats, and the metadata of the datasets."""
        if None in self._first_splits:
            return
        formats = [episodes.format for episodes in self._first_splits if episodes]
        self.notes += _list_changes("format", *formats)
        metadata = (plain(episodes.metadata) for episodes in self._first_splits if episodes)
        self.notes += _list_changes("metadata", *metadata)

    def compare_lengths(self, split: str, *pair: Episodes | None) -> None:
        """Compares the declared numbers of episodes of a split."""
        lengths = [None if episodes is None else declared_length(episodes) for episodes in pair]
        if None in pair or (None not in lengths and lengths[0] != lengths[1]):
            texts = [
                None if episodes is None else "?" if length is None else count(length, "episode")
                for episodes, length in zip(pair, lengths)
            ]
            self.differences.append(Difference(f"split {split}", *texts))

    def add_unmatched(self, *indices: int | None) -> None:
        """Counts an episode that only one of the splits has."""
        for side, (episodes, index) in enumerate(zip(self.pair, indices)):
            if index is not None:
                key = side, self.pair[0].split
                num_unmatched, ids = self.unmatched.get(key, (0, []))
                if num_unmatched < _MAX_NAMED_EPISODES:
                    ids.append(_id_of(episodes, index))
                self.unmatched[key] = num_unmatched + 1, ids

    def compare_episodes(self, *indices: int) -> None:
        """Compares two episodes."""
        pair = [episodes.episode(index) for episodes, index in zip(self.pair, indices)]
        lengths = [episode.num_steps for episode in pair]
        self.episodes, self.steps = self.episodes + 1, self.steps + min(lengths)
        columns = [self._columns(side, *each) for side, each in enumerate(zip(pair, indices))]
        for path in dict.fromkeys([*columns[0], *columns[1]]):
            one, other = (side.get(path) for side in columns)
            if self._is_ignored(path):
                continue
            if one is None or other is None:
                if not all(any(is_below(path, root) for root in s) for s in self._specs):
                    continue  # `compare_fields` has noted the missing field.
                one = [None] * len(other or ()) if one is None else one
                other = [None] * len(one) if other is None else other
            self._compare_column(path, one, other, indices)

    def _columns(self, side: int, episode: SourceEpisode, index: int) -> dict[str, Any]:
        """Returns the fields of an episode as columns of one row, and of its steps, by path."""
        fields = {rlds.STEPS: episode.num_steps, **dict(named_leaves(fields_of(episode)))}
        columns = {path: _as_column(value) for path, value in fields.items()}
        step_columns = named_leaves(episode.steps)
        columns |= {f"{rlds.STEPS}/{path}": column for path, column in step_columns}
        for path, field in self._specs[side].items():
            if not isinstance(field, Field) or not path.startswith(f"{rlds.STEPS}/"):
                continue
            try:
                columns[path] = as_values(columns.get(path), field, decode_images=False)
            except ValueError as error:
                file = files_of(self.pair[side].source)
                raise SourceError(str(error), file=file, episode=index, field=path) from error
        return columns

    def _compare_column(self, path: str, one: Any, other: Any, indices: Sequence[int]) -> None:
        length = min(len(one), len(other))
        fields = [spec.get(path) for spec in self._specs]
        if _are_numbers(one, other) and one.shape[1:] == other.shape[1:]:
            one, other = one[:length], other[:length]
            is_equal = self._equal(one, other)
            if is_equal.all():
                return
            rows = np.flatnonzero(~is_equal.all(axis=tuple(range(1, is_equal.ndim)))).tolist()
            largest = _max_difference(one[rows], other[rows])
        else:
            rows, largest = [], None
            for row in range(length):
                if not _is_same_text(one[row], other[row]):
                    pair = _decode_values((one[row], other[row]), fields)
                    if pair[0].shape != pair[1].shape or not self._equal(*pair).all():
                        rows.append(row)
                        largest = _max_or_none(largest, _max_difference(*pair))
        if rows:
            pair = _decode_values((one[rows[0]], other[rows[0]]), fields)
            self._add_rows(path, rows, largest, pair, indices)

    def _add_rows(
        self,
        path: str,
        rows: Sequence[int],
        largest: float | None,
        first_pair: Sequence[np.ndarray],
        indices: Sequence[int],
    ) -> None:
        """Adds the rows of a field that differ in an episode."""
        is_step_field = path.startswith(f"{rlds.STEPS}/")
        difference = self.values.get(path)
        if difference is None:
            step = rows[0] if is_step_field else None
            element = self._first_difference(*first_pair)
            split = self.pair[0].split
            one, other = indices
            difference = ValueDifference(path, 0, None, split, one, other, step, *element, None)
        self.values[path] = dataclasses.replace(
            difference,
            episodes=difference.episodes + 1,
            steps=(difference.steps or 0) + len(rows) if is_step_field else None,
            largest=_max_or_none(difference.largest, largest),
        )

    def _first_difference(
        self, one: np.ndarray, other: np.ndarray
    ) -> tuple[tuple[int, ...], Any, Any]:
        """Returns the index of the first differing element of two arrays, and the two elements."""
        if one.shape != other.shape:
            return (), f"shape {one.shape}", f"shape {other.shape}"
        index = tuple(np.argwhere(~self._equal(one, other))[0].tolist())
        return index, one[index], other[index]

    def _is_ignored(self, path: str) -> bool:
        return any(is_below(path, ignored_path) for ignored_path in self._ignore)


def _list_changes(path: str, one: Any, other: Any) -> Iterator[Difference]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):
            yield from _list_changes(f"{path} {name}", one.get(name), other.get(name))
    elif one != other:
        yield Difference(path, _text(one), _text(other))


def _is_equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    is_equal = np.asarray(one == other)
    return is_equal if is_equal.all() else is_equal | np.asarray((one != one) & (other != other))


def _is_close(rtol: float, atol: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        if {one.dtype.kind, other.dtype.kind} <= set("iufc"):
            return np.asarray(np.isclose(one, other, rtol, atol, equal_nan=True))
        return _is_equal(one, other)

    return equal


def _max_or_none(one: float | None, other: float | None) -> float | None:
    return max((size for size in (one, other) if size is not None), default=None)


def _max_difference(one: np.ndarray, other: np.ndarray) -> float | None:
    """Returns the largest absolute difference of two arrays where both are finite."""
    if one.shape != other.shape or not {one.dtype.kind, other.dtype.kind} <= set("iufc"):
        return None
    dtype = np.result_type(one, other, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.abs(one.astype(dtype) - other.astype(dtype))
    sizes = sizes[np.isfinite(sizes)]
    return float(sizes.max()) if sizes.size else None


def _are_numbers(*columns: Any) -> bool:
    return all(isinstance(c, np.ndarray) and c.dtype.kind not in "OSU" for c in columns)


def _is_same_text(one: Any, other: Any) -> bool:
    return isinstance(one, bytes | str) and isinstance(other, bytes | str) and one == other


def _as_column(value: Any) -> Any:
    """Returns a value of an episode as a column of one row."""
    if isinstance(value, np.ndarray | np.generic | bool | int | float):
        return np.asarray(value)[np.newaxis]
    return [value]


def _decode_values(pair: Sequence[Any], fields: Sequence[Any]) -> list[np.ndarray]:
    """Returns two values as arrays: encoded images as pixels, and texts as bytes."""
    arrays = []
    for value, field in zip(pair, fields):
        if isinstance(value, bytes) and isinstance(field, Field) and field.encoding:
            value = as_values(np.array([value], object), field)[0]
        is_ragged = isinstance(value, RaggedColumn)
        array = np.asarray([*value] if is_ragged else value, object if is_ragged else None)
        is_number = array.dtype.kind not in "OSU"
        arrays.append(array if is_number else np.asarray(_as_bytes(array.astype(object)), object))
    return arrays


def _as_comparable(item: Any) -> Any:
    """Returns an element of an array of objects as a value that `==` compares to one boolean."""
    if isinstance(item, np.ndarray):
        return str(item.tolist()).encode()
    return item.encode() if isinstance(item, str) else item


_as_bytes = np.frompyfunc(_as_comparable, 1, 1)


def _may_agree(one: Any, other: Any) -> bool:
    """Returns True if two fields can have the same values; an open size matches any size."""
    if not isinstance(one, Field) or not isinstance(other, Field):
        return False
    sizes = zip(one.shape, other.shape)
    return (
        one.column_dtype == other.column_dtype
        and len(one.shape) == len(other.shape)
        and all(a == b or None in (a, b) for a, b in sizes)
    )


def _is_provenance(path: str) -> bool:
    return any(is_below(path, name) for name in _ORIGIN_FIELDS)


def _as_note(value: ValueDifference) -> Difference:
    subject = f"{value.field} in {count(value.episodes, 'episode')}"
    return Difference(subject, _text(value.one), _text(value.other))


def _text(value: Any) -> str | None:
    return None if value is None else text_of(value)


def _as_cell(value: Any) -> str:
    return shorten("-" if value is None else " ".join(str(_text(value)).split()), 40)
