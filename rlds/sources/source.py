"""Sources: readers of raw data as episodes, one at a time, each with a permanent key.

A source reads one raw format. Several processes can read the parts of a source in parallel. The
episodes of a part always have the same order, and reading can begin after any of them, so that an
interrupted conversion can resume. Only one episode is in memory at a time, or a bounded group of
small ones.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import html
import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from etils import epath

import rlds
import tfds_files
from rlds.raw_files.input_files import Files
from rlds.raw_files.untrusted import SourceError, check_is_file
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import has, is_below, leaves_at, named_leaves

__all__ = [
    "ALL_ROWS",
    "DERIVED_DISCOUNT",
    "TRANSITION_FIELDS",
    "AnySource",
    "Capabilities",
    "DamagedEpisode",
    "EpisodeSummary",
    "Examples",
    "Fields",
    "Lengths",
    "Location",
    "NoRandomAccessError",
    "Origin",
    "Source",
    "SourceEpisode",
    "SourceError",
    "SourceInfo",
    "Stream",
    "check_flags",
    "files_of",
    "is_derived",
    "programming_errors",
    "require_files",
    "summary_of",
    "with_discount",
    "with_random_access",
]

# A nest of columns: arrays with a leading time axis in dicts.
Columns: TypeAlias = Mapping[str, Any]

ALL_ROWS = slice(None)
"""The rows of all steps of an episode."""

INFO_TEXTS = ("description", "homepage", "citation", "license")
"""The attributes of `SourceInfo` with a description of the data in text."""

DERIVED_DISCOUNT = Field(
    "float32", doc="1, and 0 for a transition into a terminal state: it follows from the flags."
)
"""The field `discount` of formats without discounts. Exports do not write it as data."""

TRANSITION_FIELDS = (rlds.ACTION, rlds.REWARD, rlds.DISCOUNT)
"""The fields that are placeholders in the last step if its observation is the final one."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """The location of the raw data of an episode.

    Attributes:
      file: The path of the file, relative to the opened path, so equal on every machine.
      begin: The first row (record, step) of the episode in the file.
      end: The row after the last one, in a later file if rows are counted across files.
    """

    file: str
    begin: int
    end: int


class EpisodeSummary(NamedTuple):
    """The numbers of steps and transitions of an episode.

    Attributes:
      num_steps: The number of steps.
      num_transitions: The number of steps with an action and its result. The last step has none
        (its action is a placeholder, or the next observation is unknown), except a terminal step.
      final_observation_known: See `SourceEpisode`.
    """

    num_steps: int
    num_transitions: int
    final_observation_known: bool


class Lengths(NamedTuple):
    """The summaries of several episodes: an array for each field of `EpisodeSummary`.

    Attributes:
      num_steps: int64 of shape `[episodes]`.
      num_transitions: int64 of shape `[episodes]`; None if unknown without reading the episodes.
      final_observation_known: bool of shape `[episodes]`; None if unknown without reading them.
    """

    num_steps: np.ndarray
    num_transitions: Any = None
    final_observation_known: Any = None

    @classmethod
    def create(cls, num_steps: Any, *, final_observation_known: bool | None = None) -> Lengths:
        """Returns lengths of episodes that all have, or all lack, a final observation."""
        lengths = np.asarray(num_steps, np.int64).reshape(-1)
        if final_observation_known is None:
            return cls(lengths)
        is_known = np.full(len(lengths), final_observation_known)
        return cls(lengths, (lengths - 1).clip(0), is_known)

    @property
    def are_complete(self) -> bool:
        """Whether transitions and final observations are known without reading the episodes."""
        return self.num_transitions is not None and self.final_observation_known is not None

    @classmethod
    def concatenate(cls, all_lengths: Sequence[Lengths]) -> Lengths:
        """Returns the lengths of the episodes of several splits, one after the other."""
        if not all_lengths:
            return cls.create([], final_observation_known=False)
        columns: Any = zip(*all_lengths)
        arrays: Any = (None if any(c is None for c in cs) else np.concatenate(cs) for cs in columns)
        return cls(*arrays)

    def take(self, episodes: Any) -> Lengths:
        """Returns the lengths of some of the episodes."""
        arrays: Any = (None if array is None else array[episodes] for array in self)
        return Lengths(*arrays)

    def num_real_steps(self, episodes: Any = slice(None)) -> np.ndarray:
        """Returns the number of steps with an action that is no placeholder, by episode."""
        is_known = self.final_observation_known[episodes]
        return (self.num_steps[episodes] - is_known).clip(0)


@dataclasses.dataclass(frozen=True, repr=False)
class SourceEpisode:
    """An episode of a source, in the alignment of RLDS.

    `len(episode)` is the number of steps; `episode["steps"]` has the columns of the steps, and
    `episode["observation"]` one of these columns.

    Attributes:
      key: The permanent name of the episode, unique in its split. The key becomes `episode_id`.
      steps: The columns of the steps, with the flags; see `rlds.alignment`.
      origin: The location of the raw data.
      final_observation_known: True if the last step holds the observation after the last
        transition. If False, the action and the reward of the last step are valid.
      truncated: True if the episode ended without a terminal state, by a time limit or by its
        recorder.
      complete: False if the recording or the file ends within the episode.
      metadata: The fields of the episode that the source declares in `episode_fields`.
      counts: The contribution of the episode to the `totals` of `Capabilities`.
      fraction: The share of the part of the source that is read after this episode, if available.
    """

    key: str
    steps: Columns
    origin: Origin
    truncated: bool
    final_observation_known: bool = True
    complete: bool = True
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    fraction: float | None = None

    def __len__(self) -> int:
        return self.num_steps

    def __getitem__(self, name: str) -> Any:
        fields = {**self.metadata, **self.steps, rlds.STEPS: self.steps}
        if name not in fields:
            raise KeyError(f"no field {name!r}; {suggest_names(str(name), fields)}")
        return fields[name]

    def __repr__(self) -> str:
        return f"<SourceEpisode {self.key!r}, {len(self)} steps of {list(self.steps)}>"

    def _repr_html_(self) -> str:
        notes = {"truncated": self.truncated, "complete": self.complete, "file": self.origin.file}
        rows = [
            *(
                (path, getattr(column, "dtype", ""), getattr(column, "shape", (len(column),)))
                for path, column in named_leaves(self.steps)
            ),
            *((path, reprlib.repr(v), "") for path, v in named_leaves({**notes, **self.metadata})),
        ]
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>"
            for row in [("field", "dtype or value", "shape"), *rows]
        )
        return f"<table><caption>{html.escape(repr(self))}</caption>{body}</table>"

    @property
    def num_steps(self) -> int:
        """The number of steps of the episode."""
        return next((len(column) for _, column in named_leaves(self.steps)), 0)

    @property
    def total_reward(self) -> float | None:
        """The sum of the rewards, without the placeholder in the last step.

        None if there are no rewards, or several in a step.
        """
        reward: Any = self.steps.get(rlds.REWARD)
        if getattr(reward, "ndim", None) != 1 or reward.dtype.kind not in "biuf":
            return None
        real = reward[:-1] if self.final_observation_known else reward
        return float(real.sum(dtype="float64"))

    @property
    def summary(self) -> EpisodeSummary:
        """The numbers of steps and transitions."""
        return summary_of(self.steps, self.final_observation_known)


@dataclasses.dataclass(frozen=True)
class DamagedEpisode:
    """A placeholder for an episode that cannot be read.

    Attributes:
      key: The key of the episode, or a description of its location.
      error: The error, and its location.
      ends_part: True if the later episodes of the part are unreadable, too: reading stops here.
    """

    key: str
    error: SourceError
    ends_part: bool = False


def is_derived(path: str, field: Any) -> bool:
    """True if a field of steps is derived from the flags. The sidecar keeps its field."""
    return path == rlds.DISCOUNT and bool(field == DERIVED_DISCOUNT)


def with_discount(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields of steps by path; adds the derived discount if there is no discount."""
    discount = {} if has(fields, rlds.DISCOUNT) else {rlds.DISCOUNT: DERIVED_DISCOUNT}
    return {**fields, **discount}


def summary_of(steps: Columns, final_observation_known: bool) -> EpisodeSummary:
    """Returns the summary of an episode, by the columns of its flags or of any other fields."""
    columns = (c for name in steps for _, c in leaves_at({name: steps[name]}, None))
    num_steps = next((len(column) for column in columns), 0)
    is_terminal = False
    if num_steps and not final_observation_known:
        if rlds.IS_TERMINAL in steps:
            is_terminal = bool(steps[rlds.IS_TERMINAL][-1])
        else:
            discounts = {name: steps[name] for name in steps if is_below(name, rlds.DISCOUNT)}
            values = [column[-1] for _, column in named_leaves(discounts)]
            is_terminal = bool(values) and not any((discount != 0).any() for discount in values)
    return EpisodeSummary(num_steps, max(num_steps - 1 + is_terminal, 0), final_observation_known)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """The description, license, metadata and options of a dataset.

    Attributes:
      name: The name of the dataset in its files.
      version: The version of the dataset.
      description: A description of the data, in a sentence or two.
      homepage: The website of the dataset.
      citation: The citation (BibTeX).
      license: The license: the terms of use.
      metadata: Further metadata of the files, in the types of JSON.
      options: The options that the episodes depend on, in the types of JSON.
      aliases: The paths of fields by their names in the format; edits and conditions accept both.
        A path identifies a field, or a group of fields, in `Episodes.spec`; `steps` stands for
        the number of steps.
      finite_fields: The paths of fields of steps that must be neither NaN nor infinite.
      images_as_png: Whether a TFDS dataset stores uint8 arrays of shape
        `(height, width, 1 | 3 | 4)` as PNG files.
    """

    name: str = ""
    version: str = ""
    description: str = ""
    homepage: str = ""
    citation: str = ""
    license: str = ""
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    finite_fields: Sequence[str] = ()
    images_as_png: bool = True

    def replace(self, **changes: Any) -> SourceInfo:
        """Returns a copy with changed attributes."""
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Fields:
    """The fields of the episodes of a source.

    A field is a `Field`, a dtype (for scalars), or a dict of fields.

    Args:
      steps: The fields of a step, without the flags.
      episode: The fields of an episode: of `SourceEpisode.metadata`.
      flags: The flags of steps: all three, unless a dataset is copied that lacks some.
    """

    steps: Mapping[str, Any]
    episode: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    flags: Sequence[str] = rlds.STEP_FLAGS

    def replace(self, **changes: Any) -> Fields:
        """Returns a copy with changed attributes."""
        return dataclasses.replace(self, **changes)

    def step_paths(self, paths: Iterable[str] | None = None) -> list[str]:
        """Returns the paths of requested fields and flags of a step, without `steps/`.

        Args:
          paths: The requested paths, see `Source.read`; all if None.
        """
        leaves = {**self.steps, **dict.fromkeys(self.flags)}
        return _filter_paths([path for path, _ in leaves_at(leaves, None)], paths, f"{rlds.STEPS}/")

    def episode_paths(self, paths: Iterable[str] | None = None) -> list[str]:
        """Returns the paths of requested fields of an episode; see `step_paths`."""
        return _filter_paths([path for path, _ in leaves_at(self.episode, None)], paths, "")


class Examples(NamedTuple):
    """The stored form of a TFDS dataset, whose examples can be copied undecoded.

    Attributes:
      folder: The dataset folder.
    """

    folder: tfds_files.DatasetFolder

    @property
    def directory(self) -> epath.Path:
        """The folder of the dataset."""
        return self.folder.directory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Optional capabilities of a source: functions; None if the source does not have one.

    Attributes:
      lengths: Takes a split. Returns the lengths of its episodes, without reading them.
      reads_rows: True if `read` can skip rows that are not requested.
      video: The form of video in the episodes of `rlds.sources.open`: "packets" in fields of the
        episodes, or "frames" in fields of the steps; see `rlds.video`. If the source offers it,
        "png" or "jpeg" files in fields of the steps.
      quality: The quality of the JPEG files of `video`.
      totals: Takes a split. Returns the expected sums of the `counts` of its episodes, from other
        facts in the raw data, such as the length of an array.
      faults: Takes a split. Yields errors of its files that reading its episodes does not detect.
      origin: Takes a split and an index. Returns the origin of an episode; None if unknown without
        reading it.
      shards: Takes a split. Returns the number of episodes of each of its shards.
      image_files: Returns a source with undecoded image files.
      run: Takes a split and a range of episodes (begin, end). Reads the first episodes of the range
        together, which is faster; the result may be empty.
      hold_open: Returns a context in which files stay open, for many reads.
      keeps_keys: True if the files store the keys of the episodes.
      examples: The stored form of the episodes, if the data is a TFDS dataset.
      sidecar: Returns the `StoredSidecar` of an export, or None. `rlds.sources.open` restores the
        episodes with it, see `rlds.sources.restored_source`.
    """

    lengths: Callable[[str], Lengths | None] | None = None
    reads_rows: bool = False
    video: Literal["packets", "frames", "png", "jpeg"] = "packets"
    quality: int = 95
    totals: Callable[[str], Mapping[str, int]] | None = None
    faults: Callable[[str], Iterator[SourceError]] | None = None
    origin: Callable[[str, int], Origin | None] | None = None
    shards: Callable[[str], Sequence[int]] | None = None
    image_files: Callable[[], AnySource] | None = None
    run: Callable[[str, int, int], Sequence[SourceEpisode]] | None = None
    hold_open: Callable[[], contextlib.AbstractContextManager[Any]] | None = None
    keeps_keys: bool = False
    examples: Examples | None = None
    sidecar: Callable[[], Any] | None = None


class AnySource(abc.ABC):
    """Raw data that can be read as episodes: a `Source`, or a `Stream`.

    A source is picklable, as worker processes get a copy: it holds paths and options, but no open
    files. The constructor of a source checks as much as possible without reading all data.

    The data may be damaged, or hostile. Callers read it through `rlds.sources.reading`, which turns
    errors of methods that damaged data causes into `SourceError`s. A `TypeError`, `AttributeError`
    or `NameError` of a class outside of this project is not changed. In
    `__init__`, where a `ValueError`, `TypeError` or `KeyError` may be about the arguments, use
    `source_errors` around the code that reads.

    Attributes:
      splits: The names of the splits.
      bases: The wrapped sources; empty for a source that reads files.
      opened_files: The state of the files on opening, which `rlds.sources.reading` compares later.
        None in an object store. A source sets it if its path is not the folder of the dataset.
      may_grow: True if other programs may append to the files; only the episodes that existed on
        opening are read. Any other change of the files is an error.
    """

    splits: Sequence[str] = ("train",)
    bases: Sequence[Source] = ()
    may_grow: bool = False
    opened_files: Files | None = None

    @property
    @abc.abstractmethod
    def fields(self) -> Fields:
        """The fields of the episodes."""

    @property
    def source_info(self) -> SourceInfo:
        """The description, license, metadata and options of the dataset."""
        return SourceInfo()

    @property
    def capabilities(self) -> Capabilities:
        """The optional capabilities of the source."""
        return Capabilities()

    @abc.abstractmethod
    def inputs(self) -> Sequence[str | os.PathLike[str]]:
        """Returns the input files. A conversion starts over if one changes."""


class Stream(AnySource):
    """A source without random access: episodes are read in order, and counted by reading.

    The episodes of a part always come in the same order, and reading can begin after any of them.
    """

    @abc.abstractmethod
    def parts(self, split: str) -> Sequence[str]:
        """Returns the names of the parts of a split, in order; `inputs` alone determine them."""

    @abc.abstractmethod
    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of a part, always in the same order.

        Args:
          split: The split.
          part: A part of the split.
          after: The key of an episode of the part; only the later episodes are yielded.
        """


class Source(AnySource):
    """A source with random access to episodes, by their index in a split."""

    @abc.abstractmethod
    def num_episodes(self, split: str) -> int:
        """Returns the number of episodes of a split."""

    @abc.abstractmethod
    def key(self, split: str, index: int) -> str:
        """Returns the key of an episode; fast."""

    @abc.abstractmethod
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        """Reads an episode, or some of its fields and steps.

        Callers use `rlds.sources.reading`, which adds the location to errors of libraries.

        Args:
          split: The split.
          index: The episode.
          fields: The paths of the requested fields, such as `steps/observation/camera`,
            `steps/is_terminal` or `instruction`; all if None. The result may have more.
          rows: The requested steps: all without `capabilities.reads_rows`; otherwise a slice of
            consecutive steps, which may end after the last step.

        Raises:
          SourceError: The episode is damaged. Other episodes may be readable.
        """


class Location(NamedTuple):
    """The location of an episode in a source.

    Attributes:
      source: The source.
      split: A split of the source.
      index: The index of the episode in the split.
    """

    source: Source
    split: str
    index: int  # type: ignore[assignment]  # `tuple` has a method `index`.


class NoRandomAccessError(TypeError, ValueError):
    """The source has no random access: its episodes can only be read in order.

    It is also a `ValueError`, which commands report in one line.
    """


def with_random_access(source: AnySource) -> Source:
    """Returns the source if it has random access.

    Raises:
      NoRandomAccessError: The source can only be read in order.
    """
    if not isinstance(source, Source):
        raise NoRandomAccessError(
            f"{files_of(source)}: this format has no random access; convert it first (rlds convert)"
        )
    return source


def _filter_paths(all_paths: list[str], paths: Iterable[str] | None, prefix: str) -> list[str]:
    if paths is None:
        return all_paths
    paths = frozenset(paths)
    return [path for path in all_paths if prefix + path in paths]


def step_aliases(source: AnySource) -> dict[str, str]:
    """Returns the paths of fields of a step, by their names in the format."""
    root = f"{rlds.STEPS}/"
    aliases = source.source_info.aliases.items()
    return {name: path.removeprefix(root) for name, path in aliases if path.startswith(root)}


def check_flags(source: AnySource, needed_flags: Iterable[str], subject: str) -> None:
    """Checks that steps have the flags that a format or an algorithm needs.

    Raises:
      ValueError: A flag is missing; the message says how to add it.
    """
    names = {*source.fields.flags, *source.fields.steps}
    missing = [name for name in needed_flags if name not in names]
    if rlds.IS_TERMINAL in missing:
        advice = (
            "Which episodes end in a terminal state is unknown. Add it with `rlds edit PATH --add "
            "steps/is_terminal=MODULE:FUNCTION` (rlds.editing.Add)"
        )
    else:
        advice = "Add them with `rlds edit PATH --fix` (rlds.editing.Fix)"
    if missing:
        raise ValueError(f"{subject}: the steps have no {' and no '.join(missing)}. {advice}")


def programming_errors(kinds: Iterable[Any]) -> tuple[type[Exception], ...]:
    """Returns the error types that are bugs in the code of sources, not damage of their data.

    The sources of this project have none: their type errors are caused by damaged files.

    Args:
      kinds: The classes of the sources.
    """
    roots = {kind.__module__.partition(".")[0] for kind in kinds}
    return (AttributeError, TypeError) if roots - {"rlds", "tfds_builders"} else ()


def files_of(source: AnySource, max_names: int = 3) -> str:
    """Returns the name of the files of a source for errors."""
    try:
        names = [os.fspath(path) for path in source.inputs()]
    except Exception:  # This call is for an error message, so it must not raise.
        names = []
    if not names:
        return f"the source {type(source).__name__}"
    and_more = [f"and {len(names) - max_names} more files"] if len(names) > max_names else []
    return ", ".join([*names[:max_names], *and_more])


def require_files(*paths: str | os.PathLike[str]) -> list[epath.Path]:
    """Returns paths that exist as files.

    Raises:
      FileNotFoundError: A file does not exist.
    """
    files = [stores.as_path(path) for path in paths]
    are_folders = stores.in_parallel(
        lambda file: file.is_dir() if file.exists() else None, files, files[0] if files else ""
    )
    for file, is_folder in zip(files, are_folders):
        if is_folder is None:
            raise FileNotFoundError(f"{os.fspath(file)!r} does not exist.")
        if is_folder:
            raise FileNotFoundError(f"{os.fspath(file)!r} is a directory, expected a file.")
        check_is_file(file)
    return files
