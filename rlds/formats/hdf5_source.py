"""Base class of formats with an HDF5 group for each episode, described by a layout table."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.alignment import derived_columns
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_episodes import EpisodeGroup, field_of_values
from rlds.raw_files.input_files import present
from rlds.raw_files.untrusted import SourceChangedError, source_errors
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import (
    ALL_ROWS,
    DERIVED_DISCOUNT,
    Capabilities,
    Fields,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    files_of,
)
from rlds.video import VIDEO
from rlds.video.fields import read_video, video_fields
from rlds_ecosystem.model.columns import with_placeholder
from rlds_ecosystem.model.fields import BGR, Field
from rlds_ecosystem.model.nests import Paths, conflicts, nest, root_of

__all__ = [
    "ATTRIBUTE_NAMES",
    "INSTRUCTION",
    "OTHER_ATTRIBUTES",
    "Channels",
    "Hdf5Episode",
    "Hdf5EpisodesSource",
    "Hdf5Table",
]

INSTRUCTION = "language_instruction"
# The field of an episode with attributes in JSON that have no separate field: attributes of arrays,
# and attributes that the first episode lacks. See `rlds.raw_files.hdf5_values`.
OTHER_ATTRIBUTES = "other_attributes"
# The metadata key of the fields of an episode that are attributes.
ATTRIBUTE_NAMES = "attribute_names"

_CHANNEL_NAMES: Mapping[str, tuple[str, ...]] = {"rgb": ("red", "green", "blue"), "bgr": BGR}


@dataclasses.dataclass(frozen=True)
class Channels:
    """The names, unit and meaning of the numbers along the last axis of an array; see `Field`."""

    names: tuple[str, ...] | None = None
    unit: str | None = None
    doc: str = ""
    kind: str = ""


@dataclasses.dataclass(frozen=True)
class Hdf5Table:
    """The layout of groups that are episodes: the arrays of steps, actions and episode fields.

    Further arrays with a row for each action become fields of the steps, too, with their own names.
    All other arrays become fields of the episode.

    Attributes:
      steps: The fields of steps, by the paths of arrays or groups; a group is a nested field.
      actions: The array, or the group of arrays, with a row for each transition.
      with_final_row: Arrays of `steps` that have a row for the final observation, too.
      episode: Arrays that are fields of the episode, independent of their number of rows.
      derived: Arrays that are computed from other arrays, and are not read.
      terminal: The array whose last row marks a terminal state.
      channels: The channels of arrays, by the ends of their paths.
    """

    steps: Mapping[str, str]
    actions: str
    with_final_row: Collection[str] = ()
    episode: Collection[str] = ()
    derived: Collection[str] = ()
    terminal: str = ""
    channels: Mapping[str, Channels] = dataclasses.field(default_factory=dict)

    @property
    def aliases(self) -> dict[str, str]:
        """The paths of fields of steps, by their names in the file if they differ."""
        steps = self.steps.items()
        return {root: f"{rlds.STEPS}/{path}" for root, path in steps if path != root}

    def field_path(self, path: str) -> str:
        """Returns the path of the field of steps of an array."""
        root = root_of(path)
        return self.steps.get(root, root) + path.removeprefix(root)

    def array_path(self, field_path: str) -> str:
        """Returns the path of the array of a field of steps."""
        for root, field in self.steps.items():
            if field_path == field or field_path.startswith(f"{field}/"):
                return root + field_path.removeprefix(field)
        return field_path

    def describe(self, path: str, field: Field) -> Field:
        """Returns the field of an array with the table's channels, if their number fits."""
        for end, channels in self.channels.items():
            if f"/{path}".endswith(f"/{end}"):
                is_unlike = channels.names and field.shape[-1:] != (len(channels.names),)
                meaning = {} if is_unlike else dataclasses.asdict(channels)
                return dataclasses.replace(field, **meaning)
        return field


class StepArray(NamedTuple):
    """An array with a row for each step.

    Attributes:
      path: The path of the field of steps.
      field: The type of a row.
      has_final_row: True if the array has a row for the final observation, too.
    """

    path: str
    field: Field
    has_final_row: bool = False


class Hdf5Episode(NamedTuple):
    """The location of an episode.

    Attributes:
      key: The key of the episode.
      file: The HDF5 file.
      location: The `file` of the `Origin`: the HDF5 file, with the group if it has several.
    """

    key: str
    file: epath.Path
    location: str


class Hdf5EpisodesSource(Source):
    """Episodes in groups of HDF5 files, with the fields of the first readable episode.

    Derived classes call `_set_episodes` in `__init__`.

    Attributes:
      table: The layout of the groups.
      colour: The order of channels in images: "rgb" or "bgr", or "" if unknown.
      has_instruction: True if the steps have a `language_instruction`.
      keeps_attributes: True if episodes have `OTHER_ATTRIBUTES`.
      video: The form of videos: "packets", in fields of the episode, or "frames" of the steps.
    """

    table: Hdf5Table
    colour: str = ""
    has_instruction = False
    keeps_attributes = False
    video: Literal["packets", "frames"] = "packets"

    def _file(self, episode: Hdf5Episode) -> Hdf5File:
        """Returns the file of an episode."""
        return Hdf5File(episode.file)

    def _group(self, hdf5: Hdf5File, file: Any, episode: Hdf5Episode) -> EpisodeGroup:
        """Returns the group of an episode in the open file; by default, the root group."""
        return EpisodeGroup(hdf5, file)

    @contextlib.contextmanager
    def _open_group(self, episode: Hdf5Episode) -> Iterator[EpisodeGroup]:
        hdf5 = self._file(episode)
        with hdf5.read(episode=episode.key) as file:
            yield self._group(hdf5, file, episode)

    def _num_transitions(self, group: EpisodeGroup) -> int:
        """Returns the number of transitions of an episode.

        Raises:
          SourceError: There are no actions.
        """
        actions = self.table.actions
        path = next((path for path in group.arrays if root_of(path) == actions), actions)
        return group.num_rows(path) or 0

    def _has_step_rows(self, path: str, group: EpisodeGroup, count: int) -> bool:
        """Returns True if an array has a row for each step."""
        if path in self.table.episode:
            return False
        rows = group.num_rows(path)
        if root_of(path) in self.table.steps:
            return bool(rows)
        return rows == count or (bool(self.table.with_final_row) and rows == count + 1)

    def _is_complete(self, episode: Hdf5Episode, num_transitions: int) -> bool:
        """Returns True if an episode is complete."""
        return True

    def _instruction(self, episode: Hdf5Episode, group: EpisodeGroup) -> str:
        """Returns the instruction of an episode, if it `has_instruction`."""
        raise NotImplementedError

    def _other_fields(self) -> Mapping[str, Field]:
        """Returns the fields of an episode that are not in its group."""
        return {}

    def _other_values(self, episode: Hdf5Episode) -> Mapping[str, Any]:
        """Returns the values of the fields of `_other_fields`."""
        return {}

    def _videos(self, episode: Hdf5Episode) -> Mapping[str, epath.Path]:
        """Returns the video files of an episode, by the paths of camera fields of steps."""
        return {}

    # --- Fields and metadata.

    def _set_episodes(self, episodes: Mapping[str, Sequence[Hdf5Episode]]) -> None:
        """Reads the fields of the first readable episode.

        Args:
          episodes: The episodes of each split.

        Raises:
          SourceError: No episode can be read.
        """
        self._episodes, self.splits = episodes, list(episodes)
        damage: SourceError | None = None
        for episode in itertools.chain(*episodes.values()):
            try:
                with (
                    source_errors(lambda: files_of(self), episode=episode.key),
                    self._open_group(episode) as group,
                ):
                    self._describe(group, episode)
                return
            except SourceChangedError:
                raise
            except SourceError as error:
                damage = damage or error
        assert damage is not None
        raise damage

    def _describe(self, group: EpisodeGroup, episode: Hdf5Episode) -> None:
        num_transitions = self._num_transitions(group)
        if not num_transitions:
            raise group.error("no rows", next(iter(group.arrays)))
        self._cameras = list(self._videos(episode))
        self._columns: dict[str, StepArray] = {}
        self._values: dict[str, Field] = {}
        self._rows_of_values: dict[str, int | None] = {}
        step_names: Paths[Any] = Paths(dict.fromkeys((*rlds.STEP_FLAGS, rlds.DISCOUNT)))
        other_fields = {**self._other_fields(), **video_fields(self._cameras)}
        reserved_names = (*RESERVED, OTHER_ATTRIBUTES, *other_fields)
        episode_names: Paths[Any] = Paths(dict.fromkeys(reserved_names))
        for path in group.arrays:
            if path in self.table.derived:
                continue
            column = self._column(path, group, num_transitions)
            names, name = (episode_names, path) if column is None else (step_names, column.path)
            if name in names or conflicts(names, name):
                raise group.error(f"another field is called {name!r}", path)
            names[name] = None
            if column is None:
                self._values[path] = group.value_field(path)
                self._rows_of_values[path] = group.num_rows(path)
            else:
                self._columns[path] = column
        self._num_rows(group)
        self._attributes = {
            name: field_of_values(value)
            for name, value in group.attributes().items()
            if name not in episode_names and not conflicts(episode_names, name)
        }

    def _column(self, path: str, group: EpisodeGroup, num_transitions: int) -> StepArray | None:
        """Returns the step field of an array; None for an array of the episode."""
        if not self._has_step_rows(path, group, num_transitions):
            return None
        root, field = root_of(path), group.field(path)
        has_final_row = root in self.table.with_final_row
        if root not in self.table.steps:
            has_final_row = group.num_rows(path) == num_transitions + 1
        if not field.encoding:
            field = self.table.describe(path, field)
        is_image = field.encoding or (len(field.shape) == 3 and field.column_dtype == np.uint8)
        if is_image and field.shape[-1] == 3 and self.colour in _CHANNEL_NAMES:
            field = dataclasses.replace(field, names=_CHANNEL_NAMES[self.colour])
        return StepArray(self.table.field_path(path), field, has_final_row)

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        columns = {column.path: column.field for column in self._columns.values()}
        instruction = {INSTRUCTION: Field(str)} if self.has_instruction else {}
        attributes = {OTHER_ATTRIBUTES: Field(str)} if self.keeps_attributes else {}
        other_fields = {**self._other_fields(), **video_fields(self._cameras)}
        return Fields(
            nest({**columns, rlds.DISCOUNT: DERIVED_DISCOUNT, **instruction}),
            nest({**self._attributes, **self._values, **other_fields, **attributes}),
        )

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(reads_rows=True, video=self.video)

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return present(episode.file for episode in itertools.chain(*self._episodes.values()))

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._episodes[split])

    @override
    def key(self, split: str, index: int) -> str:
        return self._episodes[split][index].key

    # --- One episode.

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        episode = self._episodes[split][index]
        with self._open_group(episode) as group:
            num_transitions, num_steps = self._num_rows(group)
            if not num_steps:
                raise SourceError("no rows", file=group.file)
            is_terminal = self._is_terminal(group)
            flags = derived_columns(num_steps, num_transitions, terminal=is_terminal)
            paths = self.fields.step_paths(fields)
            if INSTRUCTION in paths and self.has_instruction:
                flags[INSTRUCTION] = np.full(num_steps, self._instruction(episode, group), object)
            start, end, _ = rows.indices(num_steps)
            steps = {name: flags[name][start:end] for name in paths if name in flags}
            steps |= self._read_columns(group, paths, slice(start, end), num_transitions)
            return SourceEpisode(
                key=episode.key,
                steps=nest(steps),
                origin=Origin(episode.location, 0, num_steps),
                truncated=not is_terminal,
                final_observation_known=num_steps > num_transitions,
                complete=self._is_complete(episode, num_transitions),
                metadata=self._metadata(
                    group, episode, num_steps, self.fields.episode_paths(fields)
                ),
            )

    def _read_columns(
        self, group: EpisodeGroup, names: Collection[str], rows: slice, num_transitions: int
    ) -> dict[str, np.ndarray]:
        """Reads rows of columns; columns of transitions get a placeholder for the final step."""
        columns = {}
        for path, (name, field, has_final_row) in self._columns.items():
            group.check(path, field)
            if name in names:
                end = rows.stop if has_final_row else min(rows.stop, num_transitions)
                column = group.rows(path, field, slice(rows.start, end))
                is_short = len(column) < rows.stop - rows.start
                columns[name] = with_placeholder(column) if is_short else column
        return columns

    def _metadata(
        self, group: EpisodeGroup, episode: Hdf5Episode, num_steps: int, paths: Collection[str]
    ) -> dict[str, Any]:
        if not paths:
            return {}
        self._check_values(group)
        values = {path: group.value(path) for path in self._values if path in paths}
        if not self._attributes.keys().isdisjoint(paths):
            values |= self._read_attributes(group)
        if self.keeps_attributes and OTHER_ATTRIBUTES in paths:
            attributes = group.other_attributes(self._attributes)
            values[OTHER_ATTRIBUTES] = json.dumps(attributes) if attributes else ""
        values |= self._other_values(episode)
        return nest({**values, **self._read_videos(group, episode, num_steps, paths)})

    def _read_videos(
        self, group: EpisodeGroup, episode: Hdf5Episode, num_steps: int, paths: Collection[str]
    ) -> dict[str, Any]:
        files = self._videos(episode)
        for camera, file in files.items():
            if camera not in self._cameras:
                raise SourceError("the first episode has no such video", file=file, field=camera)

        def frame_indices(times: np.ndarray) -> np.ndarray:
            steps = np.arange(num_steps)  # The last steps may have no frames.
            return np.where(steps < len(times), steps, -1)

        values: dict[str, Any] = {}
        for camera in self._cameras:
            if any(field.startswith(f"{VIDEO}/{camera}/") for field in paths):
                if camera not in files:
                    raise group.error("no such video, but the first episode has it", camera)
                values |= read_video(files[camera], camera, frame_indices)
        return values

    def _is_terminal(self, group: EpisodeGroup) -> bool:
        path = self.table.terminal
        return path in group.arrays and bool(np.any(group.value(path, slice(-1, None))))

    def _num_rows(self, group: EpisodeGroup) -> tuple[int, int]:
        """Checks the lengths of arrays; returns the numbers of transitions and steps."""
        count = self._num_transitions(group)
        num_rows = {path: group.num_rows(path) for path in self._columns}
        finals = [path for path, column in self._columns.items() if column.has_final_row]
        num_steps = count + any(num_rows[path] == count + 1 for path in finals)
        for path, column in self._columns.items():
            expected = num_steps if column.has_final_row else count
            if num_rows[path] != expected:
                problem = f"{num_rows[path]} rows, expected {expected}: there are {count} actions"
                raise group.error(problem, path)
        return count, num_steps

    def _check_values(self, group: EpisodeGroup) -> None:
        """Checks that an episode has no arrays that the first episode lacks."""
        num_transitions = self._num_transitions(group)
        for path in group.arrays:
            if not (path in self._columns or path in self._values or path in self.table.derived):
                raise group.error("the first episode has no such array", path)
        for path, field in self._values.items():
            group.check(path, field, as_rows=False)
            has_other_rows = group.num_rows(path) != self._rows_of_values[path]
            if has_other_rows and self._has_step_rows(path, group, num_transitions):
                raise group.error("one row for each step, but not in the first episode", path)

    def _read_attributes(self, group: EpisodeGroup) -> dict[str, Any]:
        values = group.attributes()
        for name, field in self._attributes.items():
            if name not in values:
                raise group.error("no such attribute, but the first episode has it", name)
            if (other := field_of_values(values[name])) != field:
                raise group.error(f"{other}, expected {field}, as in the first episode", name)
        return {name: values[name] for name in self._attributes}
