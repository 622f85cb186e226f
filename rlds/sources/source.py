"""Sources: raw data that is read as episodes, one at a time, each with a permanent key.

A source knows its raw format, and nothing about how datasets are written. Each part of a source can
be read without the others, so that several processes can share the work. The episodes of a part
always come in the same order, and a source can begin after any of them, so that an interrupted
conversion can continue. Only one episode is in memory at a time, or a bounded group of small ones
(`tfds_builders.conversion.episode_groups`).
"""

from __future__ import annotations

import abc
import dataclasses
import html
import os
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

from etils import epath

import rlds
from rlds.raw_files.input_files import Files
from rlds.raw_files.untrusted import (
    SourceChangedError,
    SourceError,
    check_is_file,
    source_errors,
)
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.names import what_there_is
from rlds_ecosystem.model.nests import has, is_in, leaves_at, named_leaves

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ALL_ROWS",
    "DERIVED_DISCOUNT",
    "FACTS",
    "OF_TRANSITIONS",
    "DamagedEpisode",
    "Origin",
    "Outline",
    "Outlines",
    "Place",
    "RandomAccessSource",
    "Source",
    "SourceEpisode",
    "SourceError",
    "StoredEpisode",
    "StoredSource",
    "check_flags",
    "files_of",
    "is_derived",
    "mistakes_of",
    "outline_of",
    "require_files",
    "with_discount",
]

# A nest of columns: arrays with a leading time axis in dicts.
Columns: TypeAlias = Mapping[str, Any]

ALL_ROWS = slice(None)
"""The rows of all steps of an episode."""

FACTS = ("description", "homepage", "citation", "license")
"""The attributes of a `Source` that say something of its data, in words."""

DERIVED_DISCOUNT = Field(
    "float32", doc="1, and 0 for a transition into a terminal state: it follows from the flags."
)
"""The field `discount` of formats that have none. Exports do not write it as if it were data."""

OF_TRANSITIONS = (rlds.ACTION, rlds.REWARD, rlds.DISCOUNT)
"""The fields that the last step has no values of, if its observation is the final one."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where the raw data of an episode is.

    Attributes:
      file: The file, by a name that is the same on every machine: relative to what the user named.
      begin: The first row (record, step) of the episode in it.
      end: The row after the last one. It may lie in a later file, if rows are counted across files.
    """

    file: str
    begin: int
    end: int


class Outline(NamedTuple):
    """How long an episode is.

    Attributes:
      num_steps: How many steps it has.
      num_transitions: How many of them have an action and what it led to. This is not the case for
        the last step: its action is a placeholder, or the observation that followed is not known,
        unless that one was terminal.
      final_observation_known: See `SourceEpisode`.
    """

    num_steps: int
    num_transitions: int
    final_observation_known: bool


class Outlines(NamedTuple):
    """How long several episodes are, see `Outline`: arrays with an element for each.

    Attributes:
      num_steps: int64 of shape `[episodes]`.
      num_transitions: In the same form.
      final_observation_known: bool of shape `[episodes]`.
    """

    num_steps: np.ndarray
    num_transitions: np.ndarray
    final_observation_known: np.ndarray

    def num_real_steps(self, episodes: Any = slice(None)) -> np.ndarray:
        """Returns how many steps of some episodes have an action that is no placeholder."""
        known = self.final_observation_known[episodes]
        return (self.num_steps[episodes] - known).clip(0)


@dataclasses.dataclass(frozen=True, repr=False)
class SourceEpisode:
    """An episode as it is in a source, in RLDS order.

    `len(episode)` is how many steps it has; `episode["steps"]` are their columns, of which
    `episode["observation"]` is one.

    Attributes:
      key: Names the episode, uniquely in its split, and the same whenever it is read. It becomes
        `episode_id`.
      steps: The columns of the steps, with the flags; see `rlds.alignment`.
      origin: Where the raw data is.
      final_observation_known: Whether the observation after the last transition is there, as the
        last step. If not, the action and the reward of the last step are valid.
      truncated: Whether the episode ended without a terminal state: it was cut by a time limit, or
        by its recorder.
      complete: Whether all of the episode is there; false if the recording or the file was cut.
      metadata: The fields of the episode that the source declares in `episode_fields`.
      counts: What the raw data of the episode has to contribute to `Source.totals`.
      fraction: How much of its part of the source has been read with this episode, if known.
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
            raise KeyError(f"no field {name!r}; {what_there_is(str(name), fields)}")
        return fields[name]

    def __repr__(self) -> str:
        return f"<SourceEpisode {self.key!r}, {len(self)} steps of {list(self.steps)}>"

    def _repr_html_(self) -> str:
        said = {"truncated": self.truncated, "complete": self.complete, "file": self.origin.file}
        rows = [
            *(
                (path, getattr(column, "dtype", ""), getattr(column, "shape", (len(column),)))
                for path, column in named_leaves(self.steps)
            ),
            *((path, reprlib.repr(v), "") for path, v in named_leaves({**said, **self.metadata})),
        ]
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>"
            for row in [("field", "dtype or value", "shape"), *rows]
        )
        return f"<table><caption>{html.escape(repr(self))}</caption>{body}</table>"

    @property
    def num_steps(self) -> int:
        """How many steps the episode has."""
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
    def outline(self) -> Outline:
        """How long it is."""
        return outline_of(self.steps, self.final_observation_known)


@dataclasses.dataclass(frozen=True)
class DamagedEpisode:
    """What a source yields in the place of an episode that cannot be read.

    Attributes:
      key: The name that the episode has, or would have.
      error: What is wrong with it, and where.
      ends_part: Whether nothing after it can be read in its part either. Then nothing after it is
        asked for.
    """

    key: str
    error: SourceError
    ends_part: bool = False


@dataclasses.dataclass(frozen=True)
class StoredEpisode:
    """An episode that is the example of a TFDS dataset already.

    Attributes:
      key: Names the episode, as that of a `SourceEpisode`.
      example: The bytes of the example.
      fraction: How much of its part of the source has been read with this episode, if known.
    """

    key: str
    example: bytes
    fraction: float | None = None


def is_derived(path: str, field: Any) -> bool:
    """Whether a field of steps is no data, but follows from the flags. The sidecar keeps it."""
    return path == rlds.DISCOUNT and bool(field == DERIVED_DISCOUNT)


def with_discount(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields of steps by path, with the derived discount unless there are discounts."""
    derived = {} if has(fields, rlds.DISCOUNT) else {rlds.DISCOUNT: DERIVED_DISCOUNT}
    return {**fields, **derived}


def outline_of(steps: Columns, final_observation_known: bool) -> Outline:
    """Returns the outline of an episode, by the columns of its flags or of any other fields."""
    columns = (c for name in steps for _, c in leaves_at({name: steps[name]}, None))
    num_steps = next((len(column) for column in columns), 0)
    is_terminal = False
    if num_steps and not final_observation_known:
        if rlds.IS_TERMINAL in steps:
            is_terminal = bool(steps[rlds.IS_TERMINAL][-1])
        else:
            discounts = {name: steps[name] for name in steps if is_in(name, rlds.DISCOUNT)}
            last = [column[-1] for _, column in named_leaves(discounts)]
            is_terminal = bool(last) and not any((discount != 0).any() for discount in last)
    return Outline(num_steps, max(num_steps - 1 + is_terminal, 0), final_observation_known)


class Source(abc.ABC):
    """Raw data that can be read as episodes.

    A source can be pickled, because worker processes get a copy. So it holds paths and options, and
    no open files. When you make a source, it checks everything that it can without reading all of
    the data.

    The data may be damaged, or hostile. Callers read a source through `rlds.sources.reading`,
    where any error that a method raises because of the data becomes a `SourceError`. A `TypeError`,
    `AttributeError` or `NameError` of a class outside of this project stays itself. In `__init__`,
    where a `ValueError`, `TypeError` or `KeyError` may be about the arguments, use `source_errors`
    around the code that reads.

    Attributes:
      description: What the data is, in a sentence or two.
      homepage: Where it comes from.
      citation: How to cite it (BibTeX).
      license: Under which terms it may be used.
      finite_fields: The paths of fields that must be neither NaN nor infinite.
      inputs_may_grow: Whether its files may become longer while they are read, as what comes after
        the episodes that were there at first is not read. All else that happens to them makes a
        conversion an error.
      images_as_png: Whether a dataset stores uint8 arrays of shape `(height, width, 1 | 3 | 4)` as
        PNG files.
      video: How the video of episodes is given: as "packets", in fields of the episodes, or as
        "frames", in those of the steps; see `rlds.video`. Where the source offers it, as
        "png" or "jpeg" files in those of the steps.
      quality: The quality of such JPEG files.
      opened: The files as they were when it was opened: `rlds.sources.reading` compares them after
        each read. None in a store. A source sets it whose path does not name the dataset's folder.
    """

    description: str = ""
    homepage: str = ""
    citation: str = ""
    license: str = ""
    finite_fields: Sequence[str] = ()
    inputs_may_grow: bool = False
    images_as_png: bool = True
    video: Literal["packets", "frames", "png", "jpeg"] = "packets"
    quality: int = 95
    opened: Files | None = None

    def with_image_files(self) -> Source:
        """Returns a source whose images are the files that are stored; itself if it can be none."""
        return self

    @property
    def splits(self) -> Sequence[str]:
        """The names of the splits."""
        return ("train",)

    @property
    def step_flags(self) -> Sequence[str]:
        """Which of the flags of a step the source gives: all three, unless it copies a dataset."""
        return rlds.STEP_FLAGS

    @abc.abstractmethod
    def step_fields(self) -> Mapping[str, Any]:
        """Returns the fields of a step, without the three flags.

        A field is a `Field`, a dtype (for scalars), or a dict of fields.
        """

    def episode_fields(self) -> Mapping[str, Any]:
        """Returns the fields of `SourceEpisode.metadata`, in the same form."""
        return {}

    def metadata(self) -> Mapping[str, Any]:
        """Returns what is said of the data as a whole, in the types of JSON."""
        return {}

    def aliases(self) -> Mapping[str, str]:
        """Returns the paths of fields by the names that the format has for them.

        Edits and conditions know fields by both. A path is one in `Episodes.spec`, of a field or of
        all below it; `steps` stands for the number of steps.
        """
        return {}

    @abc.abstractmethod
    def inputs(self) -> Sequence[str | os.PathLike[str]]:
        """Returns the files that are read. A change to one makes a conversion begin anew."""

    def options(self) -> Mapping[str, Any]:
        """Returns what else decides about the result, in the types of JSON."""
        return {}

    @abc.abstractmethod
    def parts(self, split: str) -> Sequence[str]:
        """Returns the names of the parts of a split, in order. Depends on `inputs` alone."""

    @abc.abstractmethod
    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of a part, always in the same order.

        Args:
          split: The split.
          part: One of the parts of the split.
          after: The key of an episode of the part: it and those before it are left out.
        """

    def totals(self, split: str) -> Mapping[str, int]:
        """Returns what the `counts` of all episodes have to add up to.

        It is counted in the raw data by other means than reading the episodes, for example as the
        length of an array.
        """
        del split
        return {}

    def num_episodes(self, split: str) -> int | None:
        """Returns how many episodes a split has, if that is known."""
        del split
        return None

    def faults(self, split: str) -> Iterator[SourceError]:
        """Yields what is wrong with the files of a split that reading its episodes does not show.

        Raises:
          SourceError: It cannot be found out.
        """
        del split
        yield from ()

    def num_steps(self, split: str) -> Sequence[int] | None:
        """Returns how many steps each episode of a split has, if that is known without reading."""
        del split
        return None

    def shard_lengths(self, split: str) -> Sequence[int]:
        """Returns how many episodes each shard of a split has, if there are shards."""
        del split
        return ()

    def bases(self) -> Sequence[Source]:
        """Returns the sources that read its episodes from files: itself, if it does."""
        return [self]

    def stored_sidecar(self) -> Any:
        """Returns what an export has kept beside the data: a `StoredSidecar`, or None.

        `rlds.sources.open` puts it together with the episodes, see `rlds.sources.restored`.
        """
        return None


class StoredSource(Source):
    """Episodes that are stored as examples of a TFDS dataset: they are copied as they are.

    Attributes:
      directory: Where the dataset is, whose features the copy has.
    """

    directory: epath.Path

    @abc.abstractmethod
    def episodes(  # type: ignore[override]
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[StoredEpisode | DamagedEpisode]:
        """Yields the episodes of a part; see `Source.episodes`."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an episode is.

    Attributes:
      source: The source that reads it from files.
      split: A split of that source.
      index: The number of the episode in the split.
    """

    source: RandomAccessSource
    split: str
    index: int


class RandomAccessSource(Source):
    """A source that can read any episode by its index.

    Attributes:
      episodes_per_part: How many consecutive episodes make a part.
      reads_rows: Whether `read` reads some of the rows if it is asked for them.
    """

    episodes_per_part: ClassVar[int] = 100
    reads_rows: bool = False

    @abc.abstractmethod
    def num_episodes(self, split: str) -> int:
        """Returns how many episodes a split has."""

    @abc.abstractmethod
    def key(self, split: str, index: int) -> str:
        """Returns the key of an episode; cheap."""

    @abc.abstractmethod
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        """Reads an episode, or some of it.

        Callers go through `rlds.sources.reading`, where errors of libraries get their place.

        Args:
          split: The split.
          index: The episode.
          fields: The paths of the fields that are wanted, such as `steps/observation/camera`,
            `steps/is_terminal` or `instruction`; all if None. The episode may have more.
          rows: The steps that are wanted. They are all, unless the source `reads_rows`: then they
            are consecutive, and may end behind the last step.

        Raises:
          SourceError: It is damaged. The next one may be read nevertheless.
        """

    def step_paths(self, fields: Iterable[str] | None = None) -> list[str]:
        """Returns the paths of the wanted fields of a step, without `steps/`; see `read`."""
        known = {**self.step_fields(), **dict.fromkeys(self.step_flags)}
        return _wanted([path for path, _ in leaves_at(known, None)], fields, f"{rlds.STEPS}/")

    def episode_paths(self, fields: Iterable[str] | None = None) -> list[str]:
        """Returns the paths of the wanted fields of an episode; see `read`."""
        return _wanted([path for path, _ in leaves_at(self.episode_fields(), None)], fields, "")

    def outline(self, split: str, index: int) -> Outline:
        """Returns how long an episode is, by its flags.

        Override it where that is known without reading an episode.
        """
        if rlds.IS_TERMINAL in self.step_flags:
            paths = list(self.step_flags)
        else:  # Of a dataset that is copied.
            paths = [path for path in self.step_paths() if is_in(path, rlds.DISCOUNT)]
            paths = [*self.step_flags, *paths] or self.step_paths()[:1]
        return self.read(split, index, [f"{rlds.STEPS}/{path}" for path in paths]).outline

    def outlines(self, split: str) -> Outlines | None:
        """Returns how long all episodes of a split are, if that is known without reading them."""
        del split
        return None

    def stored_names(self) -> Mapping[str, str]:
        """Returns the paths that fields have where they are stored, by their paths here.

        What is not stored is left out.
        """
        steps = (f"{rlds.STEPS}/{path}" for path in self.step_paths())
        return {path: path for path in (*steps, *self.episode_paths())}

    def stored_at(self, split: str, index: int, *, in_part: bool = False) -> Place | None:
        """Returns where an episode is stored as it is here; None if it is made of what is stored.

        Exports copy what is stored in their own format.

        Args:
          split: The split.
          index: The episode.
          in_part: Whether fields may have other names, be left out or be added.
        """
        return Place(self, split, index)

    def base_at(self, split: str, index: int) -> tuple[Place, int]:
        """Returns what an episode is made of: one of the `bases`, and the first of its steps."""
        return Place(self, split, index), 0

    def origin(self, split: str, index: int) -> Origin | None:
        """Returns where the raw data of an episode is; None if that takes reading the episode."""
        del split, index
        return None

    def parts(self, split: str) -> Sequence[str]:
        """Returns the ranges of episodes that are read together, such as "100-200"."""
        number, size = self.num_episodes(split), self.episodes_per_part
        return [f"{i}-{min(i + size, number)}" for i in range(0, number, size)]

    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of a range; see `Source.episodes`."""
        begin, end = map(int, part.split("-"))
        indices = range(begin, end)
        if after is not None:
            indices = range(self._index(split, indices, after) + 1, end)
        for index in indices:
            try:
                with source_errors(
                    lambda: files_of(self),
                    episode=self.key(split, index),
                    mistakes=mistakes_of(map(type, self.bases())),
                ):
                    episode = self.read(split, index)
            except SourceChangedError:
                raise
            except SourceError as error:
                yield DamagedEpisode(self.key(split, index), error)
                continue
            yield dataclasses.replace(episode, fraction=(index + 1 - begin) / (end - begin))
            del episode

    def _index(self, split: str, indices: range, key: str) -> int:
        for index in indices:
            if self.key(split, index) == key:
                return index
        raise StorageError(
            f"cannot resume after {key!r}: the episodes {indices.start} to {indices.stop} of the "
            f"split {split!r} have no such key. The staged data is of another source; remove it"
        )


def _wanted(paths: list[str], fields: Iterable[str] | None, prefix: str) -> list[str]:
    if fields is None:
        return paths
    fields = frozenset(fields)
    return [path for path in paths if prefix + path in fields]


def step_aliases(source: Source) -> dict[str, str]:
    """Returns the paths of fields of a step, by the names that the format has for them."""
    root = f"{rlds.STEPS}/"
    aliases = source.aliases().items()
    return {name: path.removeprefix(root) for name, path in aliases if path.startswith(root)}


def check_flags(source: Source, needed: Iterable[str], what: str) -> None:
    """Checks that steps have the flags that something needs: which steps are terminal, say.

    Raises:
      ValueError: They have not; says how to add them.
    """
    known = {*source.step_flags, *source.step_fields()}
    missing = [name for name in needed if name not in known]
    if rlds.IS_TERMINAL in missing:
        advice = (
            "Which episodes end in a terminal state is unknown. Add it with `rlds edit PATH --add "
            "steps/is_terminal=MODULE:FUNCTION` (rlds.editing.Add)"
        )
    else:
        advice = "Add them with `rlds edit PATH --fix` (rlds.editing.Fix)"
    if missing:
        raise ValueError(f"{what}: the steps have no {' and no '.join(missing)}. {advice}")


def mistakes_of(kinds: Iterable[Any]) -> tuple[type[Exception], ...]:
    """Returns the errors that are mistakes in the code of sources, and no damage of their data.

    The sources of this project take files in which any value may have any type: theirs are damage.

    Args:
      kinds: The classes of the sources.
    """
    roots = {kind.__module__.partition(".")[0] for kind in kinds}
    return (AttributeError, TypeError) if roots - {"rlds", "tfds_builders"} else ()


def files_of(source: Source, most: int = 3) -> str:
    """Returns what to call the files of a source in an error."""
    try:
        names = [os.fspath(path) for path in source.inputs()]
    except Exception:  # There is another error to be reported.
        names = []
    if not names:
        return f"the source {type(source).__name__}"
    others = [f"and {len(names) - most} more files"] if len(names) > most else []
    return ", ".join([*names[:most], *others])


def require_files(*paths: str | os.PathLike[str]) -> list[epath.Path]:
    """Returns paths that exist as files.

    Raises:
      FileNotFoundError: One does not.
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
