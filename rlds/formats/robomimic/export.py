"""Exports to files of demonstrations in robomimic's format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.hdf5_export import Hdf5EpisodesExport, StagedFiles, copy_row
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
from rlds.sources.source import EpisodeSummary, Location, SourceEpisode, is_derived
from rlds.sources.texts import as_text
from rlds.sources.writing import encoding_of, transition_needed
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import Paths, conflicts, leaves_at, lookup, root_of

__all__ = ["RobomimicExport"]

_ACTIONS, _OBS, _REWARDS, _DONES = "actions", "obs", "rewards", "dones"
_ENV_ARGS = "env_args"
_DEFAULT_ENVIRONMENT: Mapping[str, Any] = {"env_name": "", "type": 2, "env_kwargs": {}}
# The fields that get their arrays first.
_MAIN_FIELDS = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD)
_NUM_DEMOS = "num_demos"
# The limit of an attribute in HDF5 is 64 KiB, with its header.
_ATTRIBUTE_BYTES = 60_000


class RobomimicExport(Hdf5EpisodesExport):
    """A file of demonstrations that robomimic trains on.

    Demonstrations have `actions` (nested actions are in `action_dict`, too), `obs`, `next_obs` if
    there is a final observation, `rewards`, `dones` (1 if the last action led to a terminal state),
    and all further fields of steps with numbers of a fixed shape. Encoded images become arrays. All
    other data, such as text, is in the group `rlds`, which robomimic ignores.

    Episodes from robomimic's format keep their attributes, masks and order, and get no new `dones`.
    For all other episodes, each split becomes a mask. Demonstrations are renumbered.

    Args:
      episodes: The episodes.
      env_args: The environment arguments of robomimic; `env_name`, `type` (1 for robosuite, 2
        for Gym) and `env_kwargs`. By default, the arguments in the source files.
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
        # An array may be missing in the episodes of one worker only.
        self.copies_parts = not any(self._is_optional(path) for path in self.array_paths)
        self.names = {f"{rlds.STEPS}/{path}": name for path, name in self.array_paths.items()}
        self.reasons = {
            path: f"its pixels are in {name}, too{channel_note(self.steps[path])}"
            for path, name in self._pixels.items()
        }
        files = self.metadata.get("files", {}).values()
        self._contents = [file["others"] for file in files if "others" in file]
        texts = [file.get("attributes", {}) for file in files]
        self._texts = _find_common(texts)
        self._instruction = instruction_of_file(self._texts, "", "")
        environments = {item[_ENV_ARGS] for item in texts if _ENV_ARGS in item}
        if len(environments) > 1 and env_args is None:
            raise ValueError(
                f"the files have {len(environments)} different {_ENV_ARGS}, but a file holds "
                f"one. Pass {_ENV_ARGS}=... (--to-option on the command line), or export each "
                "file separately"
            )

    @override
    def find_array_paths(self) -> dict[str, str]:
        self._pixels = {
            path: _observation_path(path)
            for path, field in self.steps.items()
            if encoding_of(field) not in ("", "png")
            if root_of(path) == rlds.OBSERVATION and None not in field.shape
        }
        array_paths: dict[str, str] = {}
        names = Paths(dict.fromkeys([NEXT, *self._pixels.values()]))
        for path in sorted(self.steps, key=lambda path: root_of(path) not in _MAIN_FIELDS):
            array = self._array_path(path)
            if array and array not in names and not conflicts(names, array):
                array_paths[path] = array
                names[array] = None
        self._action_fields = [p for p in array_paths if array_paths[p].startswith("action_dict/")]
        if _ACTIONS in array_paths.values():
            self._action_fields = []
        elif not self._action_fields:
            raise ValueError("robomimic needs actions that are numbers; the steps have none")
        return array_paths

    def _array_path(self, path: str) -> str:
        """Returns the array path of a field; "" if it does not hold numbers of a fixed shape."""
        field = self.steps[path]
        if path in self._pixels or not isinstance(field, Field) or {None, 0} & {*field.shape}:
            return ""
        is_known_flag = any(path == known_field(other) for other in self.steps)
        if is_derived(path, field) or (self.metadata and is_known_flag):
            return ""
        if field.column_dtype.kind not in "biufc":
            return ""
        root, _, suffix = path.partition("/")
        if root == rlds.OBSERVATION:
            return _observation_path(path)
        if root == rlds.ACTION:
            return f"action_dict/{suffix.replace('/', '.')}" if suffix else _ACTIONS
        if path == _OBS:  # The name of a group.
            return ""
        return _REWARDS if path == rlds.REWARD and field.shape == () else path

    @override
    def why_unsupported(self, summary: EpisodeSummary) -> str:
        num_transitions = summary.num_steps - summary.final_observation_known
        return transition_needed(num_transitions, "robomimic")

    @override
    def write(self, path: Path) -> None:
        total = 0
        masks: dict[str, list[str]] = {}
        missing = {*self.array_paths}
        with new_file(path) as (file, check), StagedFiles() as staged:
            data = file.create_group("data")
            sidecar = hdf5_sidecar_writer(file, self.sidecar)
            for index, item in enumerate(self.iter_items()):
                name = f"demo_{index}"
                if isinstance(item, Location):
                    staged.copy(item.source, {f"data/demo_{item.index}": f"data/{name}"}, file)
                    episode = copy_row(item, sidecar)
                else:
                    episode = item
                    self._write_demo(data.create_group(name), episode)
                    sidecar.add(episode)
                total += episode.num_steps - episode.final_observation_known
                missing = {path for path in missing if self._is_missing(path, episode)}
                check()
                for mask in self._find_masks(episode):
                    masks.setdefault(mask, []).append(name)
            sidecar.close()
            for field in missing:  # The reader needs each array in at least one demonstration.
                column = self.columns(episode)[self.array_paths[field]]
                self._write(data[name], self.array_paths[field], column, len(column), False)
            for mask, names in masks.items():
                file[f"mask/{mask}"] = np.array(names, "S")
            self._write_outside(file)
            data.attrs["total"] = total
            if any(_NUM_DEMOS in item["attributes"].get("data", {}) for item in self._contents):
                data.attrs[_NUM_DEMOS] = index + 1

    def _write_outside(self, file: Any) -> None:
        """Writes the arrays and attributes outside of demonstrations, if all files agree."""
        arrays = [content["arrays"] for content in self._contents]
        for path, value in _find_common(arrays).items():
            if root_of(path) != "mask":
                file[path] = decode_value(value)
        paths = {path for content in self._contents for path in content["attributes"]}
        for path in sorted(paths):
            attributes = _find_common([item["attributes"].get(path, {}) for item in self._contents])
            if not any(path in item for item in arrays):
                file.require_group(path)
            if path in file:
                write_attributes(file[path], attributes)
        data_attributes = file["data"].attrs
        for name in self._texts.keys() - {*data_attributes}:  # A merge can resolve differences.
            data_attributes[name] = self._texts[name]
        data = [content["attributes"].get("data", {}) for content in self._contents]
        is_lost = _ENV_ARGS not in data_attributes and any(_ENV_ARGS in item for item in data)
        if self._env_args is not None or not self.metadata or is_lost:
            data_attributes[_ENV_ARGS] = json.dumps(dict(self._env_args or _DEFAULT_ENVIRONMENT))

    def _find_masks(self, episode: SourceEpisode) -> list[str]:
        """Returns the masks of an episode: recorded masks, or its split."""
        if MASKS in episode.metadata:
            return [as_text(mask) for mask in np.asarray(episode.metadata[MASKS]).reshape(-1)]
        if self.metadata and len({split for split, *_ in self.episodes.ranges}) == 1:
            return []
        return [self.episodes.locate(self.index)[0]]

    def _is_missing(self, path: str, episode: SourceEpisode) -> bool:
        """Returns True if the array of a field is missing in an episode, which has placeholders."""
        return self._is_optional(path) and not np.any(lookup(episode.steps, known_field(path)))

    def _is_optional(self, path: str) -> bool:
        """Returns True if the array of a field is missing in some demonstrations."""
        return bool(self.metadata) and known_field(path) in self.steps

    def _write_demo(self, demo: Any, episode: SourceEpisode) -> None:
        has_final = episode.final_observation_known
        length = episode.num_steps - has_final
        columns = self.columns(episode)
        for path, name in self.array_paths.items():
            if not self._is_missing(path, episode):
                self._write(demo, name, columns[name], length, has_final)
        for path, name in self._pixels.items():
            images = as_values(lookup(episode.steps, path), field := self.steps[path])
            self._write(demo, name, as_rgb(images, field), length, has_final)
        if self._action_fields:
            arrays = [self.array_paths[path] for path in self._action_fields]
            actions = [columns[array].reshape(length, -1) for array in arrays]
            self._write(demo, _ACTIONS, np.concatenate(actions, axis=1), length, has_final)
        if _DONES not in demo and not self.metadata:
            dones = np.zeros(length, np.int64)
            dones[-1] = episode.steps[rlds.IS_TERMINAL][-1]
            self._write(demo, _DONES, dones, length, has_final)
        self._write_attributes(demo, episode)
        texts = set(np.asarray(episode.steps.get(INSTRUCTION, ()), object).reshape(-1))
        meta = demo.attrs.get(EP_META, "")
        text = as_text(texts.pop()) if len(texts) == 1 else ""
        if text and text != (instruction_of_demo(meta) or self._instruction):
            demo.attrs[EP_META] = with_instruction(meta, text)
        demo.attrs["num_samples"] = length

    def _write_attributes(self, demo: Any, episode: SourceEpisode) -> None:
        """Writes the recorded attributes of a demonstration, its groups and its arrays."""
        metadata = episode.metadata.get(ATTRIBUTES, {}) if self.metadata else {}
        attributes = dict(leaves_at(metadata, None))
        for path, value in attributes.items():
            parent, _, name = path.rpartition("/")
            is_flag = name.endswith(known_field("")) and path.removesuffix("_known") in attributes
            has_parent = not parent or parent in demo
            if is_flag or not has_parent or not attributes.get(known_field(path), True):
                continue
            if np.asarray(value).dtype.kind in "SUO" and np.shape(value) == ():
                is_text = self.sidecar.episode[f"{ATTRIBUTES}/{path}"].dtype == str
                value = as_text(value) if is_text else np.bytes_(np.asarray(value).item())
            if isinstance(value, str) or np.asarray(value).nbytes <= _ATTRIBUTE_BYTES:
                (demo[parent] if parent else demo).attrs[name] = value

    def _write(
        self, demo: Any, name: str, column: np.ndarray, length: int, has_final: bool
    ) -> None:
        is_flag = name in (_REWARDS, _DONES) or self.metadata
        if column.ndim == 1 and not is_flag:  # robomimic expects vectors.
            column = column[:, np.newaxis]
        demo.create_dataset(name, data=column[:length], compression=self._compression)
        if has_final and name.startswith(f"{_OBS}/"):
            next_name = NEXT + name.removeprefix(_OBS)
            demo.create_dataset(next_name, data=column[1:], compression=self._compression)


def _find_common(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the values that are equal in all mappings that have their key."""
    union = {name: value for item in mappings for name, value in item.items()}
    return {
        name: value
        for name, value in union.items()
        if all(item.get(name, value) == value for item in mappings)
    }


def _observation_path(path: str) -> str:
    """Returns the array path of a field of observations, without groups in `obs`."""
    suffix = path.partition("/")[2] or rlds.OBSERVATION
    return f"{_OBS}/{suffix.replace('/', '.')}"
