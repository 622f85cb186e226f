"""Episodes of any source as demonstrations in robomimic's format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.hdf5_export import Hdf5EpisodesExport, PartFiles, copy_row
from rlds.formats.hdf5_sidecar import hdf5_sidecar_writer
from rlds.formats.hdf5_source import INSTRUCTION
from rlds.formats.robomimic.dialects import (
    instruction_of_demo,
    instruction_of_file,
    with_instruction,
)
from rlds.formats.robomimic.merging import NEXT
from rlds.formats.robomimic.source import ATTRIBUTES, EP_META, MASKS, TABLE
from rlds.raw_files.hdf5_values import decode_value, write_attributes
from rlds.raw_files.hdf5_writing import new_file
from rlds.sources.channel_order import as_rgb, channel_note
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.source import Outline, Place, SourceEpisode, is_derived
from rlds.sources.texts import as_text
from rlds.sources.writing import encoding_of, transition_needed
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import Paths, at, conflicts, leaves_at, root_of

__all__ = ["RobomimicExport"]

_ACTIONS, _OBS, _REWARDS, _DONES = "actions", "obs", "rewards", "dones"
_ENVIRONMENT = "env_args"
_NO_ENVIRONMENT: Mapping[str, Any] = {"env_name": "", "type": 2, "env_kwargs": {}}
# The fields that get their arrays first.
_MAIN_FIELDS = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD)
_NUM_DEMOS = "num_demos"
# HDF5 has no place for attributes that are larger.
_ATTRIBUTE_BYTES = 60_000


class RobomimicExport(Hdf5EpisodesExport):
    """A file of demonstrations that robomimic trains on.

    Demonstrations have `actions` (parts of an action in `action_dict` too), `obs`, `next_obs` where
    the final observation is known, `rewards`, `dones` (set where the last action led to a terminal
    state), and all other fields of steps that have numbers of one shape. Images that are files
    become arrays. What has no place in it, such as text, is in the group `rlds`, which robomimic
    does not look into.

    Episodes that came from robomimic's format have the attributes, masks and order that they had,
    and no `dones` if they had none; each split of others is a mask. Demonstrations are numbered
    anew.

    Args:
      episodes: The episodes.
      env_args: The environment arguments of robomimic; `env_name`, `type` (1 for robosuite, 2
        for Gym) and `env_kwargs`. By default what the files said that the episodes came from.
      compression: The compression of arrays.
    """

    format = "robomimic"
    table = TABLE
    suffixes = (".hdf5", ".h5")

    def __init__(
        self,
        episodes: Episodes,
        *,
        env_args: Mapping[str, Any] | None = None,
        compression: Literal["gzip", "lzf"] | None = None,
    ) -> None:
        self._env_args, self._compression = env_args, compression
        super().__init__(episodes)
        # An array that is missing in a complete part may exist in other parts.
        self.copies_parts = not any(self._is_optional(path) for path in self.array_paths)
        self.names = {f"{rlds.STEPS}/{path}": name for path, name in self.array_paths.items()}
        self.reasons = {
            path: f"its pixels are in {name}, too{channel_note(self.steps[path])}"
            for path, name in self._copies.items()
        }
        files = self.metadata.get("files", {}).values()
        self._outside = [file["others"] for file in files if "others" in file]
        texts = [file.get("attributes", {}) for file in files]
        self._texts = _common(texts)
        self._task = instruction_of_file(self._texts, "", "")
        environments = {each[_ENVIRONMENT] for each in texts if _ENVIRONMENT in each}
        if len(environments) > 1 and env_args is None:
            raise ValueError(
                f"the files have {len(environments)} different {_ENVIRONMENT}, but a file holds "
                f"one. Pass {_ENVIRONMENT}=... (--to-option on the command line), or export each "
                "file separately"
            )

    @override
    def find_array_paths(self) -> dict[str, str]:
        self._copies = {
            path: _observation_path(path)
            for path, field in self.steps.items()
            if encoding_of(field) not in ("", "png")
            if root_of(path) == rlds.OBSERVATION and None not in field.shape
        }
        array_paths: dict[str, str] = {}
        taken = Paths(dict.fromkeys([NEXT, *self._copies.values()]))
        for path in sorted(self.steps, key=lambda path: root_of(path) not in _MAIN_FIELDS):
            array = self._array_path(path)
            if array and array not in taken and not conflicts(taken, array):
                array_paths[path] = array
                taken[array] = None
        self._parts = [path for path in array_paths if array_paths[path].startswith("action_dict/")]
        if _ACTIONS in array_paths.values():
            self._parts = []
        elif not self._parts:
            raise ValueError("robomimic needs actions that are numbers; the steps have none")
        return array_paths

    def _array_path(self, path: str) -> str:
        """Returns the path of a field in robomimic; empty if it is not numbers of one shape."""
        field = self.steps[path]
        if path in self._copies or not isinstance(field, Field) or {None, 0} & {*field.shape}:
            return ""
        is_mark = any(path == known_field(other) for other in self.steps)
        if is_derived(path, field) or (self.metadata and is_mark):
            return ""
        if field.column_dtype.kind not in "biufc":
            return ""
        root, _, suffix = path.partition("/")
        if root == rlds.OBSERVATION:
            return _observation_path(path)
        if root == rlds.ACTION:
            return f"action_dict/{suffix.replace('/', '.')}" if suffix else _ACTIONS
        if path == _OBS:  # That is a group.
            return ""
        return _REWARDS if path == rlds.REWARD and field.shape == () else path

    @override
    def why_unsupported(self, outline: Outline) -> str:
        num_transitions = outline.num_steps - outline.final_observation_known
        return transition_needed(num_transitions, "robomimic")

    @override
    def write(self, path: Path) -> None:
        total = 0
        masks: dict[str, list[str]] = {}
        missing = {*self.array_paths}
        with new_file(path) as (file, check), PartFiles() as parts:
            data = file.create_group("data")
            sidecar = hdf5_sidecar_writer(file, self.sidecar)
            for index, each in enumerate(self.each_or_stored()):
                name = f"demo_{index}"
                if isinstance(each, Place):
                    parts.copy(each.source, {f"data/demo_{each.index}": f"data/{name}"}, file)
                    episode = copy_row(each, sidecar)
                else:
                    episode = each
                    self._write_demo(data.create_group(name), episode)
                    sidecar.add(episode)
                total += episode.num_steps - episode.final_observation_known
                missing = {path for path in missing if self._lacks(path, episode)}
                check()
                for mask in self._masks_of(episode):
                    masks.setdefault(mask, []).append(name)
            sidecar.close()
            for field in missing:  # A file has each array that a field is read of.
                column = self.columns(episode)[self.array_paths[field]]
                self._write(data[name], self.array_paths[field], column, len(column), False)
            for mask, names in masks.items():
                file[f"mask/{mask}"] = np.array(names, "S")
            self._write_outside(file)
            data.attrs["total"] = total
            if any(
                _NUM_DEMOS in content["attributes"].get("data", {}) for content in self._outside
            ):
                data.attrs[_NUM_DEMOS] = index + 1

    def _write_outside(self, file: Any) -> None:
        """Writes the arrays and attributes in which no files differ, and the environment."""
        arrays = [content["arrays"] for content in self._outside]
        for path, value in _common(arrays).items():
            if root_of(path) != "mask":
                file[path] = decode_value(value)
        paths = {path for content in self._outside for path in content["attributes"]}
        for path in sorted(paths):
            attributes = _common([content["attributes"].get(path, {}) for content in self._outside])
            if not any(path in each for each in arrays):
                file.require_group(path)
            if path in file:
                write_attributes(file[path], attributes)
        stated = file["data"].attrs
        for name in self._texts.keys() - {*stated}:  # A merge has resolved differing attributes.
            stated[name] = self._texts[name]
        data = [content["attributes"].get("data", {}) for content in self._outside]
        is_lost = _ENVIRONMENT not in stated and any(_ENVIRONMENT in each for each in data)
        if self._env_args is not None or not self.metadata or is_lost:
            stated[_ENVIRONMENT] = json.dumps(dict(self._env_args or _NO_ENVIRONMENT))

    def _masks_of(self, episode: SourceEpisode) -> list[str]:
        """Returns the masks of an episode: recorded masks, or its split."""
        if MASKS in episode.metadata:
            return [as_text(mask) for mask in np.asarray(episode.metadata[MASKS]).reshape(-1)]
        if self.metadata and len({split for split, *_ in self.episodes.ranges}) == 1:
            return []
        return [self.episodes.place(self.number)[0]]

    def _lacks(self, path: str, episode: SourceEpisode) -> bool:
        """Whether the array of a field is missing in an episode, which has placeholders."""
        return self._is_optional(path) and not np.any(at(episode.steps, known_field(path)))

    def _is_optional(self, path: str) -> bool:
        """Whether the array of a field is missing in some demonstrations."""
        return bool(self.metadata) and known_field(path) in self.steps

    def _write_demo(self, demo: Any, episode: SourceEpisode) -> None:
        has_last = episode.final_observation_known
        length = episode.num_steps - has_last
        columns = self.columns(episode)
        for path, name in self.array_paths.items():
            if not self._lacks(path, episode):
                self._write(demo, name, columns[name], length, has_last)
        for path, name in self._copies.items():
            images = as_values(at(episode.steps, path), field := self.steps[path])
            self._write(demo, name, as_rgb(images, field), length, has_last)
        if self._parts:
            parts = [columns[self.array_paths[path]].reshape(length, -1) for path in self._parts]
            self._write(demo, _ACTIONS, np.concatenate(parts, axis=1), length, has_last)
        if _DONES not in demo and not self.metadata:
            dones = np.zeros(length, np.int64)
            dones[-1] = episode.steps[rlds.IS_TERMINAL][-1]
            self._write(demo, _DONES, dones, length, has_last)
        self._write_attributes(demo, episode)
        texts = set(np.asarray(episode.steps.get(INSTRUCTION, ()), object).reshape(-1))
        meta = demo.attrs.get(EP_META, "")
        text = as_text(texts.pop()) if len(texts) == 1 else ""
        if text and text != (instruction_of_demo(meta) or self._task):
            demo.attrs[EP_META] = with_instruction(meta, text)
        demo.attrs["num_samples"] = length

    def _write_attributes(self, demo: Any, episode: SourceEpisode) -> None:
        """Writes the attributes that a demonstration, its groups and its arrays had."""
        stored = episode.metadata.get(ATTRIBUTES, {}) if self.metadata else {}
        attributes = dict(leaves_at(stored, None))
        for path, value in attributes.items():
            parent, _, name = path.rpartition("/")
            is_mark = name.endswith(known_field("")) and path.removesuffix("_known") in attributes
            is_there = not parent or parent in demo
            if is_mark or not is_there or not attributes.get(known_field(path), True):
                continue
            if np.asarray(value).dtype.kind in "SUO" and np.shape(value) == ():
                is_text = self.sidecar.episode[f"{ATTRIBUTES}/{path}"].dtype == str
                value = as_text(value) if is_text else np.bytes_(np.asarray(value).item())
            if isinstance(value, str) or np.asarray(value).nbytes <= _ATTRIBUTE_BYTES:
                (demo[parent] if parent else demo).attrs[name] = value

    def _write(self, demo: Any, name: str, column: np.ndarray, length: int, has_last: bool) -> None:
        is_flag = name in (_REWARDS, _DONES) or self.metadata
        if column.ndim == 1 and not is_flag:  # Others expect vectors.
            column = column[:, np.newaxis]
        demo.create_dataset(name, data=column[:length], compression=self._compression)
        if has_last and name.startswith(f"{_OBS}/"):
            following = NEXT + name.removeprefix(_OBS)
            demo.create_dataset(following, data=column[1:], compression=self._compression)


def _common(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the values that are equal in all mappings that have their key."""
    merged = {name: value for each in several for name, value in each.items()}
    return {
        name: value
        for name, value in merged.items()
        if all(each.get(name, value) == value for each in several)
    }


def _observation_path(path: str) -> str:
    """Returns the array path of a part of the observation, without groups in `obs`."""
    suffix = path.partition("/")[2] or rlds.OBSERVATION
    return f"{_OBS}/{suffix.replace('/', '.')}"
