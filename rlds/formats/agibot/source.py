"""AgiBot World: three folders with the files of episodes, by task and episode.

    task_info/task_<task>.json                                 the segments of all its episodes
    observations/<task>/<episode>/videos/<camera>_color.mp4    a frame for each step, at 30 Hz
    observations/<task>/<episode>/depth/<camera>_depth_<i>.png millimetres; one for each step
    observations/<task>/<episode>/tactile/<sensor>.mp4         for some tasks only
    proprio_stats/<task>/<episode>/proprio_stats.h5            state/..., action/..., timestamp

An array of actions may have fewer rows than there are states; `action/<group>/index` then holds
the steps of the rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.hdf5_source import Channels, Hdf5Episode, Hdf5EpisodesSource, Hdf5Table
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_episodes import ComputedArray, EpisodeGroup
from rlds.raw_files.input_files import natural_order, present
from rlds.raw_files.untrusted import check_is_file, check_link, folders_in, is_there, source_errors
from rlds.sources.source import Capabilities, SourceError, SourceInfo
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import root_of

__all__ = ["AgiBotSource"]

_INFO, _OBSERVATIONS, _PROPRIO = "task_info", "observations", "proprio_stats"
_FILE, _VIDEOS, _DEPTH = "proprio_stats.h5", {"videos": "images", "tactile": "tactile"}, "depth"
_STATE, _ACTION_KNOWN, _TIMESTAMP = "state", "action_known", "timestamp"
_RATE_HZ = 30
_FILL_MODES = ("zeros", "state")
_IMAGE_NAME = re.compile(r"(.+?)(?:_depth)?_?([0-9]+)\.png")

_JOINTS = tuple(f"{side}_joint_{i}" for side in ("left", "right") for i in range(1, 8))
_TABLE = Hdf5Table(
    steps={
        "state": "observation/state",
        "depth": "observation/depth",
        "action": "action",
        "action_known": "action_known",
    },
    actions="action",
    channels={
        "joint/position": Channels(_JOINTS, "rad"),
        "end/position": Channels(("x", "y", "z"), "m"),
        "end/orientation": Channels(("x", "y", "z", "w")),
        "effector/position": Channels(("left_gripper", "right_gripper")),
        "head/position": Channels(("yaw", "pitch"), "rad"),
        "waist/position": Channels(("pitch", "lift")),
    },
)


class AgiBotSource(Hdf5EpisodesSource):
    """Episodes of AgiBot World; the first readable one defines the fields of all.

    `state/...` and the depth images belong to the observation, and `action/...` is the action. For
    each array of the action, `action_known/...` marks the steps with a recorded value: train on
    these. `action/.../index` stays a field of the episode. An array without rows is such a field if
    no state has the same name and shape.

    The instruction is the `task_name`. The field `annotations` of an episode has the segments that
    were labelled: `begin` and `end` are the steps `start_frame` and `end_frame` of the file, `text`
    and `skill` describe the action. `metadata` is the entry of the episode in the file, in JSON. If
    the file has no entry of an episode, all of these fields are empty.

    Args:
      path: The folder.
      tasks: The ids of the tasks to read; all by default. Robots with hands have other shapes than
        robots with grippers, so they cannot be read together.
      fill: The values of unrecorded actions: "zeros", or the "state" of the same name at that step.
      video: Whether the steps have the frames of the videos, see `rlds.sources.video_frames`.

    Raises:
      FileNotFoundError: There is no episode.
      SourceError: No episode can be read.
    """

    table = _TABLE
    has_instruction = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tasks: Sequence[str] = (),
        fill: Literal["zeros", "state"] = "zeros",
        video: Literal["packets", "frames"] = "packets",
    ) -> None:
        if fill not in _FILL_MODES:
            raise ValueError(f"fill: got {fill!r}, expected one of {_FILL_MODES}")
        self.video, self._fill, self._tasks = video, fill, [str(task) for task in tasks]
        self._root = stores.as_path(path)
        keys = {
            f"{task}/{episode}"
            for top in (_OBSERVATIONS, _PROPRIO)
            for task in self._tasks or _numbered_folders(self._root / top)
            for episode in _numbered_folders(self._root / top / task)
        }
        if not keys:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no {_PROPRIO}/<task>/<episode>.")
        self._infos: dict[str, dict[str, Any]] = {}
        paths = [(key, f"{_PROPRIO}/{key}/{_FILE}") for key in sorted(keys, key=natural_order)]
        episodes = [Hdf5Episode(key, self._root / file, file) for key, file in paths]
        self._set_episodes({"train": episodes})

    def _group(self, hdf5: Hdf5File, file: Any, episode: Hdf5Episode) -> EpisodeGroup:
        images = _images(self._root / _OBSERVATIONS / episode.key / _DEPTH)
        return _Proprio(hdf5, file, images, fills=self._fill == "state")

    def _videos(self, episode: Hdf5Episode) -> Mapping[str, epath.Path]:
        cameras: dict[str, epath.Path] = {}
        for folder, kind in _VIDEOS.items():
            path = self._root / _OBSERVATIONS / episode.key / folder
            for name in _names(path, ".mp4"):
                stem = name.removesuffix(".mp4")
                camera = f"{rlds.OBSERVATION}/{kind}/{stem.removesuffix('_color')}"
                camera = f"{rlds.OBSERVATION}/{kind}/{stem}" if camera in cameras else camera
                cameras[camera] = path / name
        return cameras

    def _num_transitions(self, group: EpisodeGroup) -> int:
        assert isinstance(group, _Proprio)
        return group.num_steps

    def _has_step_rows(self, path: str, group: EpisodeGroup, count: int) -> bool:
        return not path.endswith("/index") and super()._has_step_rows(path, group, count)

    def _instruction(self, episode: Hdf5Episode, group: EpisodeGroup) -> str:
        return str(self._info(episode).get("task_name") or "")

    def _other_values(self, episode: Hdf5Episode) -> Mapping[str, Any]:
        info = self._info(episode)
        with source_errors(self._info_file(episode), episode=episode.key):
            label = info.get("label_info") or info.get("lable_info") or {}
            actions = label.get("action_config") or []
            columns = {
                "begin": np.array([int(action["start_frame"]) for action in actions], np.int64),
                "end": np.array([int(action["end_frame"]) for action in actions], np.int64),
                "text": _texts([action.get("action_text") for action in actions]),
                "skill": _texts([action.get("skill") for action in actions]),
            }
        return {
            **{f"annotations/{name}": column for name, column in columns.items()},
            "metadata": json.dumps(info) if info else "",
        }

    def _other_fields(self) -> Mapping[str, Field]:
        return {
            **{f"annotations/{name}": Field(np.int64, (None,)) for name in ("begin", "end")},
            **{f"annotations/{name}": Field(str, (None,)) for name in ("text", "skill")},
            "metadata": Field(str, doc="In JSON."),
        }

    # --- Files.

    def _info_file(self, episode: Hdf5Episode) -> epath.Path:
        return self._root / _INFO / f"task_{episode.key.partition('/')[0]}.json"

    def _info(self, episode: Hdf5Episode) -> dict[str, Any]:
        """Returns the entry of an episode in the file of a task."""
        task, _, episode_id = episode.key.partition("/")
        file = self._info_file(episode)
        check_link(file.parent)
        if task not in self._infos and is_there(file):
            check_is_file(file)
            with source_errors(file, episode=episode.key):
                infos = json.loads(file.read_bytes())
                self._infos[task] = {str(info["episode_id"]): dict(info) for info in infos}
        entry: dict[str, Any] = self._infos.get(task, {}).get(episode_id, {})
        return entry

    # --- Methods of `Source`.

    @property
    @override
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(super().capabilities, faults=self._find_faults)

    def _find_faults(self, split: str) -> Iterator[SourceError]:
        """Yields the episodes without instruction and annotations."""
        for episode in self._episodes[split]:
            with contextlib.suppress(SourceError):  # Reading the episode raises the error.
                if not self._info(episode):
                    problem = "the file has no entry for this episode"
                    yield SourceError(problem, file=self._info_file(episode), episode=episode.key)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        return SourceInfo(
            description="Episodes of AgiBot World: a robot with two arms, at many tasks.",
            homepage="https://agibot-world.com",
            license="CC BY-NC-SA 4.0",
            metadata={"agibot": {"control_frequency_hz": _RATE_HZ, "cameras": self._cameras}},
            options={"tasks": self._tasks, "fill": self._fill, "video": self.video},
            aliases=self.table.aliases,
        )

    @override
    def inputs(self) -> Sequence[epath.Path]:
        episodes = self._episodes["train"]
        files = [*dict.fromkeys(map(self._info_file, episodes))]
        for episode in episodes:
            folder = self._root / _OBSERVATIONS / episode.key
            files.append(episode.file)
            for name, ending in (*((name, ".mp4") for name in _VIDEOS), (_DEPTH, ".png")):
                files += [folder / name / file for file in _names(folder / name, ending)]
        return present(files)


class _Proprio(EpisodeGroup):
    """The depth images, and the arrays of a file, with a row of actions for each step.

    For each array of the action, `action_known/...` marks the steps with a recorded value.

    Attributes:
      num_steps: The number of states.
    """

    def __init__(
        self, hdf5: Hdf5File, group: Any, images: Mapping[str, list[epath.Path]], *, fills: bool
    ) -> None:
        super().__init__(hdf5, group)
        self._fills = fills
        arrays = {path: array for path, array in self.arrays.items() if array.shape}
        self._rows_stored = {path: array.shape[0] for path, array in arrays.items()}
        states = [path for path in arrays if path == _TIMESTAMP or root_of(path) == _STATE]
        states.sort(key=lambda path: path != _TIMESTAMP)
        self.num_steps = next(filter(None, map(self._rows_stored.get, states)), 0)
        if not self.num_steps:
            raise self.error("no rows", _STATE)
        for path, array in arrays.items():
            if root_of(path) == rlds.ACTION and not path.endswith("/index"):
                self._add_action(path, array)
        self._images = {f"{_DEPTH}/{name}": files for name, files in images.items()}
        for path, files in self._images.items():
            self.arrays[path] = ComputedArray(
                (len(files),),
                functools.partial(self._field_of_images, path),
                functools.partial(self._read_images, path),
            )

    def _add_action(self, path: str, array: Any) -> None:
        """Adds an action array with rows for all steps, if empty with the shape of its state."""
        state = path.replace(rlds.ACTION, _STATE, 1)
        name = path if array.shape[0] else state
        if not self._rows_stored.get(name):
            return
        field, shape = self.field(name), (self.num_steps, *array.shape[1:])
        if field.column_dtype.kind not in "biuf":
            raise self.error(f"{field}, expected numbers", path)
        if array.shape[0] > self.num_steps:
            raise self.error(f"{array.shape[0]} rows, but there are {self.num_steps} steps", path)
        recorded = Field(np.bool_, doc="Whether the action of this step was recorded.")
        self.arrays[path.replace(rlds.ACTION, _ACTION_KNOWN, 1)] = ComputedArray(
            (self.num_steps,), lambda: recorded, lambda rows: self._is_recorded(path)[rows]
        )
        if array.shape[0] != self.num_steps:
            self.arrays[path] = ComputedArray(
                shape, lambda: field, lambda rows: self._action(path, array, field, state)[rows]
            )

    def _is_recorded(self, path: str) -> np.ndarray:
        """Returns a mask of the steps with a recorded action."""
        is_known = np.zeros(self.num_steps, np.bool_)
        is_known[self._steps_of(path)] = True
        return is_known

    def _action(self, path: str, array: Any, field: Field, state: str) -> np.ndarray:
        """Returns an action column with its rows at their steps."""
        if self._fills:
            self.check(state, field)
            values = self.rows(state, field)
        else:
            shape: Any = (self.num_steps, *field.shape)
            values = np.zeros(shape, field.column_dtype)
        if array.shape[0]:
            values[self._steps_of(path)] = self._reader.read(self._group.id, path, array)
        return values

    def _steps_of(self, path: str) -> np.ndarray:
        """Returns the step of each row of an action array."""
        num_rows = self._rows_stored[path]
        if num_rows in (0, self.num_steps):
            return np.arange(num_rows)
        index = f"{path.rpartition('/')[0]}/index"
        if not self._rows_stored.get(index):  # Published files lack the index of the hands.
            index = index.replace("/end/", "/joint/")
        self.num_rows(index)
        row_steps = self.value(index)
        if row_steps.shape != (num_rows,) or row_steps.dtype.kind not in "iu":
            fault = f"{num_rows} rows, but {index} is {row_steps.dtype} of shape {row_steps.shape}"
            raise self.error(fault, path)
        steps = np.asarray(row_steps, np.int64)
        if (np.diff(steps) <= 0).any() or not 0 <= steps[0] <= steps[-1] < self.num_steps:
            raise self.error(f"expected increasing numbers below {self.num_steps}", index)
        return steps

    def _field_of_images(self, path: str) -> Field:
        (data,) = self._read_images(path, slice(0, 1))
        return dataclasses.replace(self._create_image_field(data, path, 0), unit="mm")

    def _read_images(self, path: str, rows: slice) -> np.ndarray:
        files = []
        for file in self._images[path][rows]:
            check_is_file(file)
            with source_errors(file, field=path):
                files.append(file.read_bytes())
        return objects(files)

    def error(self, problem: str, path: str, row: int | None = None) -> SourceError:
        """Returns an error about an array, or an image."""
        if row is not None and path in self._images:
            return SourceError(problem, file=self._images[path][row], field=path)
        return super().error(problem, path, row)


def _names(folder: epath.Path, ending: str = "") -> list[str]:
    """Returns the names in a folder with an ending, sorted; empty without a folder."""
    entries = stores.list_directory(folder) if is_there(folder) else []
    names = [str(entry.name) for entry in entries]
    return sorted((name for name in names if name.endswith(ending)), key=natural_order)


def _numbered_folders(folder: epath.Path) -> list[str]:
    names = folders_in(folder) if is_there(folder) else []
    return [name for name in names if re.fullmatch("[0-9]+", name)]


def _images(folder: epath.Path) -> dict[str, list[epath.Path]]:
    """Returns the depth images of each camera, in order."""
    images: dict[str, list[epath.Path]] = {}
    for name in _names(folder, ".png"):
        if match := _IMAGE_NAME.fullmatch(name):
            images.setdefault(match[1], []).append(folder / name)
    return images


def _texts(values: Sequence[Any]) -> np.ndarray:
    return objects("" if value is None else str(value) for value in values)
