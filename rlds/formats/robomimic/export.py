"""Episodes of any source as demonstrations in robomimic's format."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import rlds
from rlds.formats.robomimic.files import KEPT
from rlds.formats.robomimic.kept import KEY
from rlds.formats.robomimic.recorded import (
    ATTRIBUTES,
    FIRST,
    INSTRUCTION,
    LAST,
    LAYOUT,
    MASKS,
    METADATA_KEY,
    NEXT,
    place_of,
    rows_of,
)
from rlds.formats.tfds.source import FolderSource
from rlds.raw_files.hdf5_layout import (
    create_array,
    create_attributes,
    create_constant,
    decode_dtype,
    decode_value,
    encode_data,
)
from rlds.raw_files.input_files import natural_order
from rlds.sources.aside import Aside
from rlds.sources.episode_fields import EPISODE_FIELDS
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.exporting import (
    PNGS,
    Export,
    Placement,
    as_converted,
    encoding_of,
    kept_aside,
    pngs_of,
    with_arrays,
    without_transitions,
)
from rlds.sources.source import Outline, RandomAccessSource, SourceEpisode, SourceError
from rlds_ecosystem import import_extra
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import at, excludes, leaves_at, nest, root_of

__all__ = ["RobomimicExport"]

_ACTIONS, _OBS, _REWARDS, _DONES = "actions", "obs", "rewards", "dones"
_RESERVED = (_ACTIONS, "action_dict", _OBS, NEXT, _REWARDS, _DONES)
_NO_ENVIRONMENT: Mapping[str, Any] = {"env_name": "", "type": 2, "env_kwargs": {}}


class RobomimicExport(Export):
    """A file of demonstrations that robomimic trains on, or the files that the episodes came from.

    Episodes that came from robomimic's format, also by way of a TFDS dataset, become files that are
    equal in every group, array, dtype, shape and attribute, and are compressed as they were.

    Of other episodes, demonstrations have `actions` (parts of an action in `action_dict` too),
    `obs`, `next_obs` where the final observation is known, `rewards`, `dones` (set where the last
    action led to a terminal state), and all other fields of steps that have numbers of one shape.
    Each split is a mask. Images that are files become arrays. What has no place in it, such as
    text, is kept in the attribute `rlds` and the group `rlds`, which robomimic does not look into.

    Args:
      episodes: The episodes.
      env_args: What robomimic is to know of the environment; `env_name`, `type` (1 for robosuite, 2
        for Gym) and `env_kwargs`.
      compression: How arrays of other episodes are compressed.
    """

    format = "robomimic"

    def __init__(
        self,
        episodes: Episodes,
        *,
        env_args: Mapping[str, Any] | None = None,
        compression: Literal["gzip", "lzf"] | None = None,
    ) -> None:
        super().__init__(episodes)
        said = _said_of(episodes)
        self._writer: _Again | _Anew
        if said is None:
            self._writer = _Anew(episodes, env_args or _NO_ENVIRONMENT, compression)
        else:
            self._writer = _Again(episodes, said)
        self.suffixes = () if self._writer.is_folder else (".hdf5", ".h5")

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        return self._writer.placements()

    def read_options(self) -> Mapping[str, Any]:
        """Returns the options with which the episodes were read."""
        return self._writer.read_options

    def each(self, order: Iterable[int] | None = None) -> Iterator[SourceEpisode]:
        """Yields the episodes, with arrays for PNG files, in the order in which they are read."""
        if self.order is None and isinstance(self._writer, _Again):
            self.order = self._order_of_keys()
        yield from map(self._writer.prepared, super().each(order))

    def _order_of_keys(self) -> list[int]:
        """The episodes in the order that their files have them in: datasets have another one."""
        keys = []
        for index in range(len(self.episodes)):
            try:
                key = self._key(index)
            except SourceError:  # Whoever reads it says so.
                key = ""
            file, _, demo = key.rpartition("/")
            keys.append((natural_order(file), natural_order(demo), index))
        return [index for _, _, index in sorted(keys)]

    def _key(self, index: int) -> str:
        source = self.episodes.source
        if isinstance(source, RandomAccessSource) and not isinstance(source, FolderSource):
            return source.key(*self.episodes.place(index))
        return as_converted(self.episodes.peek(index)).key

    def objection(self, outline: Outline) -> str:
        """Says that there has to be an action."""
        number = outline.num_steps - outline.final_observation_known
        return without_transitions(number, "robomimic")

    def write(self, path: Path) -> None:
        """See `Export`."""
        self._writer.write(path, self)


# --- The same files again ------------------------------------------------------------------------


def _said_of(episodes: Episodes) -> Mapping[str, Any] | None:
    """What the files said, if the episodes still have all of what was in them, and nothing else."""
    said, spec = episodes.metadata.get(METADATA_KEY), episodes.spec
    steps = dict(leaves_at(spec.pop(rlds.STEPS), None))
    fields = {
        path: field
        for name, inner in spec.items()
        if name not in EPISODE_FIELDS
        for path, field in leaves_at({name: inner}, None)
    }
    if not isinstance(said, dict) or LAYOUT not in fields:
        return None
    arrays = [item for found in said["structures"].values() for item in found["arrays"].items()]
    places = {place_of(path) for path, _ in arrays}
    for path, facts in arrays:
        field = steps.get(place_of(path), fields.get(path))
        dtype = decode_dtype(facts["dtype"])
        if not isinstance(field, Field) or (dtype.kind in "SO") != field.is_text:
            return None
        if not (field.is_text or np.can_cast(dtype, field.column_dtype)):
            return None
    derived = {rlds.DISCOUNT, INSTRUCTION, *rlds.STEP_FLAGS, *(f"{path}_known" for path in places)}
    own = {*dict(arrays), MASKS, LAYOUT}
    has_more = steps.keys() - places - derived or any(
        path not in own and root_of(path) not in (ATTRIBUTES, FIRST, LAST) for path in fields
    )
    return None if has_more else said


class _Again:
    """Writes the files that the episodes came from."""

    def __init__(self, episodes: Episodes, said: Mapping[str, Any]) -> None:
        self._said = said
        self._spec = episodes.spec
        self._steps = dict(leaves_at(self._spec[rlds.STEPS], None))
        self._offsets: Mapping[str, int] = said["offsets"]
        self.is_folder: bool = said["is_folder"]
        names = ("dialect", "alignment", "terminal", "per_episode")
        self.read_options = {name: said[name] for name in names}

    def placements(self) -> Sequence[Placement]:
        """All is where it was."""
        return [
            Placement(path, "as it was read", "exact") for path, _ in leaves_at(self._spec, None)
        ]

    def prepared(self, episode: SourceEpisode) -> SourceEpisode:
        """An episode with arrays for images, and rows that have one size as one array."""
        steps = {
            path: as_values(column, self._steps[path]) if path in self._steps else column
            for path, column in leaves_at(episode.steps, None)
        }
        return dataclasses.replace(
            episode, steps=nest({path: _even(column) for path, column in steps.items()})
        )

    def write(self, path: Path, export: RobomimicExport) -> None:
        """Writes all files."""
        h5py = import_extra("h5py")
        written: dict[str, list[str]] = {}
        rows: dict[str, int] = {}
        with contextlib.ExitStack() as stack:
            opened: dict[str, Any] = {}
            if self.is_folder:
                path.mkdir()
            for episode in export.each():
                file, _, demo = episode.key.rpartition("/")
                if self.is_folder and file not in self._said["files"]:
                    raise ValueError(f"{episode.key}: there was no file {file!r}")
                if self.is_folder and (os.path.basename(file) != file or file in ("", "..")):
                    raise ValueError(f"{file!r} is no name of a file")
                if file not in opened:
                    place = path / file if self.is_folder else path
                    opened[file] = stack.enter_context(h5py.File(place, "x"))
                written.setdefault(file, []).append(demo)
                length = self._write_demo(opened[file].create_group(f"data/{demo}"), episode)
                rows[file] = rows.get(file, 0) + length
            if not opened:
                opened[""] = stack.enter_context(h5py.File(path, "x"))
            for file, names in written.items():
                name = file if self.is_folder else next(iter(self._said["files"]))
                self._write_others(opened[file], self._said["files"][name], names, rows[file])

    def _write_demo(self, group: Any, episode: SourceEpisode) -> int:
        layout = json.loads(episode.metadata[LAYOUT])
        structure = self._said["structures"][layout["structure"]]
        own = layout.get("arrays", {})
        number = episode.num_steps
        is_shifted = any(offset > 0 for offset in self._offsets.values())
        length = number - (episode.final_observation_known and not is_shifted)
        for path in structure["groups"]:
            group.require_group(path)
        for path, facts in structure["arrays"].items():
            values = self._values(episode, path, length + facts.get("more", 0))
            dtype = decode_dtype(facts["dtype"])
            if dtype.kind not in "SO":
                values = np.asarray(values, dtype)
            described = {name: value for name, value in facts.items() if name != "more"}
            shape = list(np.shape(values))
            array = create_array(group, path, {**described, "shape": shape, **own.get(path, {})})
            if np.size(values):
                array[...] = _strings(values, dtype) if dtype.kind in "SO" else values
        for path, attributes in structure["attributes"].items():
            create_attributes(group[path], attributes)
        create_attributes(group, self._attributes(episode, structure["types"], layout))
        return length

    def _values(self, episode: SourceEpisode, path: str, num_rows: int) -> Any:
        """The values that an array had."""
        if path.startswith(f"{NEXT}/"):
            rows = at(episode.metadata, path)
            if len(rows):
                return rows
            return at(episode.steps, place_of(_OBS + path.removeprefix(NEXT)))[1 : num_rows + 1]
        place = place_of(path)
        if place not in self._steps:
            return at(episode.metadata, path)
        rows = rows_of(num_rows, episode.num_steps, self._offsets.get(path, 0))
        column = at(episode.steps, place)
        pieces = [column[rows.before : episode.num_steps - rows.after]]
        if rows.begin:
            pieces.insert(0, at(episode.metadata, f"{FIRST}/{path}"))
        if rows.end < num_rows:
            pieces.append(at(episode.metadata, f"{LAST}/{path}"))
        return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]

    def _attributes(
        self, episode: SourceEpisode, types: Mapping[str, Any], layout: Mapping[str, Any]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        odd = layout.get("attributes", {})
        models = self._said.get("model_files", {})
        for name, facts in types.items():
            if name in odd or facts["shape"] is None:
                found[name] = odd.get(name, facts)
                continue
            value = episode.metadata[ATTRIBUTES][name]
            if name == "model_file":
                text = value.decode() if isinstance(value, bytes) else value
                value = models.get(text, text)
            dtype = decode_dtype(facts["dtype"])
            value = np.asarray(value, object if dtype.kind in "SO" else dtype)
            if dtype.kind in "SO":
                value = _strings(value, dtype)
            found[name] = {**facts, "data": encode_data(value[()], facts["dtype"])}
        return found

    def _write_others(
        self, file: Any, said: Mapping[str, Any], names: Sequence[str], num_rows: int
    ) -> None:
        """Writes what is not in a demonstration, for those that were written."""
        described = said["description"]
        is_whole = set(names) == set(said["demos"])
        for path in described["groups"]:
            file.require_group(path)
        for path, facts in described["constants"].items():
            if not is_whole and path.removeprefix("mask/") in said["masks"]:
                values = np.asarray(decode_value(facts)).reshape(-1)
                kept = [name for name in values.tolist() if name.decode() in names]
                dtype = decode_dtype(facts["dtype"])
                file.create_dataset(path, data=np.array(kept, dtype), dtype=dtype)
                continue
            create_constant(file, path, facts)
        for path, attributes in described["attributes"].items():
            create_attributes(file[path], attributes)
        if not is_whole:
            data = file["data"]
            for name, value in (("total", num_rows), ("num_demos", len(names))):
                if name in data.attrs:
                    data.attrs.modify(name, value)


def _even(column: Any) -> Any:
    """Rows that may be of different sizes, as one array where they are not."""
    if isinstance(column, np.ndarray) and (
        column.dtype != object or not len(column) or not isinstance(column[0], np.ndarray)
    ):
        return column
    return np.stack(list(column))


def _strings(values: Any, dtype: np.dtype) -> np.ndarray:
    """Strings as bytes, which HDF5 stores in any charset."""
    values = np.asarray(values, object)
    encoded = [item.encode() if isinstance(item, str) else item for item in values.reshape(-1)]
    return (
        np.array([*encoded, None], object)[:-1]
        .reshape(values.shape)
        .astype(dtype if dtype.kind == "S" else object)
    )


# --- Any episodes --------------------------------------------------------------------------------


class _Anew:
    """Writes a file of episodes that robomimic has not seen."""

    is_folder = False

    def __init__(
        self, episodes: Episodes, env_args: Mapping[str, Any], compression: str | None
    ) -> None:
        self.read_options: Mapping[str, Any] = {}
        self._env_args, self._compression = env_args, compression
        self._episodes = episodes
        self._fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        self._copies = {
            path: _name_of(path)
            for path, field in self._fields.items()
            if encoding_of(field) and not pngs_of(self._fields, [path])
            if path.startswith(rlds.OBSERVATION) and None not in field.shape
        }
        places = _places(self._fields, {*self._copies})
        self._pngs = pngs_of(self._fields, places)
        whole = [path for path in places if places[path].startswith(f"{_OBS}/")]
        self._aside = Aside.of(episodes, places, whole, arrays=self._pngs)
        self._parts = [path for path in places if places[path].startswith("action_dict/")]
        if _ACTIONS not in places.values() and not self._parts:
            raise ValueError("the steps have no actions that are numbers, as robomimic's are")

    def placements(self) -> Sequence[Placement]:
        """Nothing changes."""
        why = {path: f"its pixels are in {name}, too" for path, name in self._copies.items()}
        return kept_aside(self._aside, {**why, **dict.fromkeys(self._pngs, PNGS)})

    def prepared(self, episode: SourceEpisode) -> SourceEpisode:
        """An episode with arrays for PNG files."""
        return with_arrays(episode, self._pngs)

    def write(self, path: Path, export: RobomimicExport) -> None:
        """Writes the file."""
        total = 0
        masks: dict[str, list[str]] = {}
        with import_extra("h5py").File(path, "x") as file:
            data = file.create_group("data")
            file.attrs[KEPT] = self._aside.to_json()
            for number, episode in enumerate(export.each()):
                name = f"demo_{number}"
                total += self._write_demo(data.create_group(name), episode)
                kept = np.frombuffer(self._aside.pack(episode), np.uint8)
                file.create_dataset(f"{KEPT}/{name}", data=kept).attrs[KEY] = episode.key
                self._add_masks(masks, name, episode, number + len(export.left_out))
            data.attrs["total"] = total
            data.attrs["env_args"] = json.dumps(dict(self._env_args))
            for mask, names in masks.items():
                file[f"mask/{mask}"] = np.array(names, "S")

    def _add_masks(
        self, masks: dict[str, list[str]], name: str, episode: SourceEpisode, index: int
    ) -> None:
        """Adds a demonstration to its masks: those that it was in, or its split."""
        if MASKS in episode.metadata:
            for mask in np.asarray(episode.metadata[MASKS]).reshape(-1):
                text = mask.decode() if isinstance(mask, bytes) else str(mask)
                masks.setdefault(text, []).append(name)
        else:
            masks.setdefault(self._episodes.place(index)[0], []).append(name)

    def _write_demo(self, demo: Any, episode: SourceEpisode) -> int:
        known = episode.final_observation_known
        length = episode.num_steps - known
        rows = self._aside.rows(episode)
        for path, column in rows.items():
            self._write(demo, self._aside.places[path], column, length, known)
        for path, name in self._copies.items():
            images = as_values(at(episode.steps, path), self._fields[path])
            self._write(demo, name, images, length, known)
        if self._parts:
            parts = [rows[path].reshape(length, -1) for path in self._parts]
            self._write(demo, _ACTIONS, np.concatenate(parts, axis=1), length, known)
        dones = np.zeros(length, np.int64)
        dones[-1] = episode.steps[rlds.IS_TERMINAL][-1]
        self._write(demo, _DONES, dones, length, known)
        demo.attrs["num_samples"] = length
        texts = set(np.asarray(episode.steps.get(INSTRUCTION, ()), object).reshape(-1))
        if len(texts) == 1:
            (text,) = texts
            text = text.decode() if isinstance(text, bytes) else text
            demo.attrs["ep_meta"] = json.dumps({"lang": text})
        return length

    def _write(self, demo: Any, name: str, column: np.ndarray, length: int, known: bool) -> None:
        if column.ndim == 1 and name not in (_REWARDS, _DONES):  # Others expect vectors.
            column = column[:, np.newaxis]
        demo.create_dataset(name, data=column[:length], compression=self._compression)
        if known and name.startswith(f"{_OBS}/"):
            following = NEXT + name.removeprefix(_OBS)
            demo.create_dataset(following, data=column[1:], compression=self._compression)


def _name_of(path: str) -> str:
    """The name that robomimic has for a part of the observation; it knows no groups in `obs`."""
    rest = path.partition("/")[2] or rlds.OBSERVATION
    return f"{_OBS}/{rest.replace('/', '.')}"


def _places(fields: Mapping[str, Any], others: set[str]) -> dict[str, str]:
    """Where robomimic has the fields of steps that have numbers of one shape."""
    places: dict[str, str] = {}
    for path, field in fields.items():
        if path in rlds.STEP_FLAGS or path in others or not isinstance(field, Field):
            continue
        is_number = field.column_dtype.kind in "biuf" and None not in field.shape
        if not is_number or 0 in field.shape:
            continue
        root, _, rest = path.partition("/")
        if root == rlds.ACTION:
            place = f"action_dict/{rest.replace('/', '.')}" if rest else _ACTIONS
        elif root == rlds.OBSERVATION:
            place = _name_of(path)
        elif path == rlds.REWARD and field.shape == ():
            place = _REWARDS
        else:
            place = path
            if root in _RESERVED:
                continue
        taken = dict.fromkeys(places.values())
        if place not in taken and not excludes(taken, place):
            places[path] = place
    return places
