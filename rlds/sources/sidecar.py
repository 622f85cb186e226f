"""The sidecar: what a format has no place for, kept beside its data.

Formats of demonstrations hold an observation and an action in each of `T` rows, and not much else:
no final observation, no flags, no metadata of episodes, no text of any length. An export writes the
rows as its format has them, and all else to a sidecar: a text in JSON for the dataset, and some
bytes for each episode, a `tf.train.Example`. It is in a folder or in arrays of the data itself,
where other readers do not look. With it, episodes come back as they were.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

import rlds
import tfds_files
from rlds.raw_files.untrusted import check_link, is_there, source_errors
from rlds.sources.digests import as_array
from rlds.sources.episode_fields import COMPLETE, EPISODE_FIELDS, ORIGIN, TRUNCATED, fields_of
from rlds.sources.episodes import Episodes
from rlds.sources.source import FACTS, Origin, Outline, SourceEpisode, require_files
from rlds.sources.stored_features import as_features
from rlds.sources.texts import as_texts
from rlds.video import CLIP, FIRST
from rlds.video.container import Clip, split_clip, whole_clip
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import stack_values, step_flags
from rlds_ecosystem.model.fields import DepthCodes, Field, match_columns
from rlds_ecosystem.model.nests import leaves_at, nest
from tfds_files.columns import RaggedColumn
from tfds_files.features import Dataset, Features, Image, images_as_bytes
from tfds_files.record_files import TFRecordWriter

__all__ = [
    "SIDECAR_BYTES",
    "SIDECAR_ENDS",
    "SIDECAR_TEXT",
    "Sidecar",
    "SidecarWriter",
    "StoredSidecar",
    "field_from_json",
    "field_json",
]

# What the arrays are called in which a file keeps it, see `StoredSidecar.in_arrays`.
SIDECAR_TEXT, SIDECAR_ENDS, SIDECAR_BYTES = "rlds/json", "rlds/ends", "rlds/episodes"

# The files of a folder in which it is kept: the text, and the bytes of all episodes.
_TEXT_FILE, _EPISODES_FILE = "rlds.json", "rlds.tfrecord"

_VERSION = 1
_KEY = rlds.metadata.EPISODE_ID
_NUM_STEPS, _FLAGS, _FINAL, _METADATA = "num_steps", "flags", "final", "metadata"
# Of what says how long an episode is, and how it is called.
_OUTLINE = (_KEY, _NUM_STEPS, rlds.FINAL_OBSERVATION_KNOWN, rlds.IS_TERMINAL)


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """What the sidecar of a dataset holds, and what the format itself has.

    Attributes:
      steps: All fields of a step, by path, without flags.
      episode: The fields of episodes that the source declares, by path.
      places: Where the format holds fields of a step. All others are in the sidecar.
      episode_places: Where the format holds fields of an episode. All others are in the sidecar.
      whole: Which of `places` have a row for the final observation, too. Of the others, its row is
        in the sidecar.
      metadata: What is said of the data as a whole: attributes of `Source`, by name.
      drops_final_row: Whether the format takes the last observation of every episode for the final
        one, and drops what others of `places` have in its row, even if there is more after it. It
        is in the sidecar, too.
      is_about: Whether it has nothing of single episodes, and no bytes for each.
      clips: Cameras of `episode_places` of which the format has the frames of its rows only. Those
        after them are in the sidecar.

    >>> sidecar = Sidecar({"x": Field(np.float32)}, {}, {"x": "data/x"})
    >>> steps = {"x": np.array([1, 2, 3], "f4"), **step_flags([3], [True])}
    >>> episode = SourceEpisode("a", steps, Origin("a.npz", 0, 3), truncated=False)
    >>> data = sidecar.pack(episode)
    >>> sidecar = Sidecar.from_json(sidecar.to_json())
    >>> sidecar.unpack(data, {"x": steps["x"][:2]}).steps["x"]
    array([1., 2., 3.], dtype=float32)
    """

    steps: Mapping[str, Field]
    episode: Mapping[str, Field]
    places: Mapping[str, str]
    whole: Collection[str] = ()
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    drops_final_row: bool = False
    episode_places: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_about: bool = False
    clips: Collection[str] = ()

    @classmethod
    def of(
        cls,
        episodes: Episodes,
        places: Mapping[str, str],
        whole: Collection[str] = (),
        *,
        arrays: Collection[str] = (),
        drops_final_row: bool = False,
        episode_places: Mapping[str, str] | None = None,
        clips: Collection[str] = (),
    ) -> Sidecar:
        """Returns the sidecar that episodes need.

        Args:
          episodes: The episodes.
          places: See the class.
          whole: See the class.
          arrays: The fields of steps whose files of images become arrays.
          drops_final_row: See the class.
          episode_places: See the class.
          clips: See the class.

        Raises:
          ValueError: A field of the episodes cannot be stored.
        """
        spec = episodes.spec
        steps = dict(leaves_at(spec.pop(rlds.STEPS), None))
        others = {name: field for name, field in spec.items() if name not in EPISODE_FIELDS}
        fields = {**steps, **(episode := dict(leaves_at(others, None)))}
        for path, field in fields.items():
            if not isinstance(field, Field):
                raise ValueError(f"{path}: {field} cannot be exported")
        steps = {path: field for path, field in steps.items() if path not in rlds.STEP_FLAGS}
        steps |= {path: dataclasses.replace(steps[path], encoding="") for path in arrays}
        about, of_episode = cls.of_dataset(episodes).metadata, dict(episode_places or {})
        return cls(
            steps,
            episode,
            dict(places),
            tuple(whole),
            about,
            drops_final_row,
            of_episode,
            clips=tuple(clips),
        )

    @classmethod
    def of_dataset(cls, episodes: Episodes, but: str = "") -> Sidecar:
        """Returns the sidecar of a format that holds all of the episodes: what is said of them.

        Args:
          episodes: The episodes.
          but: What the format itself says, by its name in the metadata.
        """
        source = episodes.source
        said = {
            "metadata": {name: it for name, it in episodes.metadata.items() if name != but},
            **{name: getattr(source, name) for name in FACTS},
        }
        return cls({}, {}, {}, (), said, is_about=True)

    def to_json(self) -> str:
        """Returns all but the episodes."""
        return json.dumps(
            {
                "version": _VERSION,
                "steps": {path: field_json(field) for path, field in self.steps.items()},
                "episode": {path: field_json(field) for path, field in self.episode.items()},
                "places": dict(self.places),
                "episode_places": dict(self.episode_places),
                "whole": list(self.whole),
                "cuts_last": self.drops_final_row,
                **({"about": True} if self.is_about else {}),
                **({"clips": list(self.clips)} if self.clips else {}),
                "metadata": self.metadata,
            },
            indent=1,
        )

    def write_text(self, directory: Path) -> None:
        """Writes all but the episodes to a folder, which is made if need be."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _TEXT_FILE).write_text(self.to_json())

    @classmethod
    def from_json(cls, text: str | bytes) -> Sidecar:
        """Reads what `to_json` returns.

        Raises:
          ValueError: It is something else, or of a later version.
        """
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            raise ValueError(f"expected version {_VERSION} of a sidecar")
        try:
            steps, episode = (
                {str(path): field_from_json(field) for path, field in content[name].items()}
                for name in ("steps", "episode")
            )
            places, episode_places = (
                {str(path): str(place) for path, place in content.get(name, {}).items()}
                for name in ("places", "episode_places")
            )
            whole = [str(path) for path in content["whole"]]
            metadata = dict(content["metadata"])
            drops_final_row = bool(content["cuts_last"])
            clips = [str(camera) for camera in content.get("clips", ())]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a sidecar: {error}") from error
        about = content.get("about") is True
        facts = whole, metadata, drops_final_row, episode_places, about
        sidecar = cls(steps, episode, places, *facts, clips)
        placed = episode_places.keys()
        known = places.keys() | {*whole} <= steps.keys() and placed <= episode.keys()
        if not known or not sidecar._clip_fields <= placed:
            raise ValueError("not a sidecar: it places unknown fields")
        return sidecar

    def pack(self, episode: SourceEpisode) -> bytes:
        """Returns what the sidecar has of an episode.

        Raises:
          ValueError: The episode has not the fields that were declared.
        """
        num_steps = episode.num_steps
        columns = self.columns(episode)
        last = self._num_rows(num_steps, episode.final_observation_known)
        canonical = step_flags([num_steps], [bool(episode.steps[rlds.IS_TERMINAL][-1])])
        flags = {
            name: [] if np.array_equal(episode.steps[name], flag) else episode.steps[name]
            for name, flag in canonical.items()
            if name in episode.steps
        }
        example = {
            **{name: value for name, value in fields_of(episode).items() if name in EPISODE_FIELDS},
            _NUM_STEPS: np.int64(num_steps),
            rlds.IS_TERMINAL: np.bool_(canonical[rlds.IS_TERMINAL][-1]),
            _FLAGS: {name: np.asarray(flags.get(name, []), bool) for name in canonical},
            _METADATA: self._metadata_of(episode),
            _FINAL: {path: columns[path][last:] for path in self._final},
            rlds.STEPS: {path: columns[path] for path in self._others},
        }
        return self._encoder.encode(example)

    def columns(self, episode: SourceEpisode) -> dict[str, np.ndarray]:
        """Returns the columns of an episode by path, as their fields say.

        Raises:
          ValueError: They do not fit.
        """
        where = f"episode {episode.key}"
        # By their paths: names may have slashes, too.
        columns = {
            path: as_array(column) if isinstance(column, RaggedColumn) else column
            for path, column in leaves_at(episode.steps, None)
            if path not in rlds.STEP_FLAGS
        }
        fields = dict(self.steps)
        uneven = {path: columns.pop(path) for path in self._uneven(columns)}
        for path in uneven:
            if fields.pop(path).is_text:
                raise ValueError(f"{where}, {path}: texts in lists of several lengths")
        matched = match_columns(columns, fields, rows=episode.num_steps, where=where)
        return {**matched, **uneven}

    def _uneven(self, columns: Mapping[str, Any]) -> list[str]:
        """The paths of columns that are arrays of arrays, and may be."""
        return [
            path
            for path, field in self.steps.items()
            if None in field.shape and not field.encoding
            if isinstance(column := columns.get(path), np.ndarray) and column.dtype == object
            if all(isinstance(value, np.ndarray) for value in column)
        ]

    def rows(self, episode: SourceEpisode) -> dict[str, np.ndarray]:
        """Returns the columns that the format holds, by path: without the final observation's row.

        Those of `whole` have it.

        Raises:
          ValueError: They do not fit.
        """
        last = self._num_rows(episode.num_steps, episode.final_observation_known)
        columns = self.columns(episode)
        return {
            path: columns[path] if path in self.whole else columns[path][:last]
            for path in self.places
        }

    def unpack(
        self,
        data: bytes,
        columns: Mapping[str, np.ndarray],
        fields: Iterable[str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> SourceEpisode:
        """Puts an episode together.

        Args:
          data: What the sidecar has of it.
          columns: The rows that the format has of each of `places`; they may have a placeholder for
            the last step. Images that fields have as arrays may be files.
          fields: Paths of fields to return; all by default. `columns` may lack all others.
          values: What the format has of `episode_places`, of some or of all of them.

        Raises:
          ValueError: They do not belong together, or are damaged.
        """
        found = self._decoder.decode(data)
        num_steps, known = int(found[_NUM_STEPS]), bool(found[rlds.FINAL_OBSERVATION_KNOWN])
        paths = self.steps if fields is None else list(fields)
        steps = {
            path: self._column(path, columns, found, num_steps, known)
            for path in paths
            if path in self.steps
        }
        flags = step_flags([num_steps], [bool(found[rlds.IS_TERMINAL])])
        for name, flag in found[_FLAGS].items():
            if len(flag) not in (0, num_steps):
                raise ValueError(f"{name}: {len(flag)} values, expected {num_steps}")
            flags[name] = flag if len(flag) else flags[name]
        origin = found[ORIGIN]
        return SourceEpisode(
            key=found[_KEY].decode(),
            steps={**nest(steps), **flags},
            origin=Origin(origin["file"].decode(), int(origin["begin"]), int(origin["end"])),
            truncated=bool(found[TRUNCATED]),
            complete=bool(found[COMPLETE]),
            final_observation_known=known,
            metadata=nest(self._episode_values(found.get(_METADATA, {}), values or {})),
        )

    def about(self, data: bytes) -> tuple[str, Outline]:
        """Returns the key of an episode, and how long it is; decodes nothing else.

        Raises:
          ValueError: It is damaged.
        """
        found = self._outline_decoder.decode(data)
        num_steps, known = int(found[_NUM_STEPS]), bool(found[rlds.FINAL_OBSERVATION_KNOWN])
        valid = num_steps - 1 + (bool(found[rlds.IS_TERMINAL]) and not known)
        return found[_KEY].decode(), Outline(num_steps, max(valid, 0), known)

    def _num_rows(self, num_steps: int, known: bool) -> int:
        """How many rows the format has of what is not `whole`."""
        return num_steps - (known or self.drops_final_row)

    def _value(self, path: str, metadata: Mapping[str, Any]) -> Any:
        value = metadata[path]
        if self.episode[path].dtype != str:
            return value
        return value.decode() if isinstance(value, bytes) else as_texts(value)

    def _episode_values(
        self, metadata: Mapping[str, Any], placed: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The values of an episode: those of the sidecar, and those that the format has."""
        kept = {path: self._value(path, metadata) for path in self._kept}
        values = {**kept, **placed}
        for clip, first in map(_parts_of, self.clips):
            if clip in placed and kept[clip]:
                values[clip] = whole_clip(placed[clip], Clip(kept[clip], int(kept[first])))
        gone = self._clip_fields - placed.keys()
        return {path: value for path, value in values.items() if path not in gone}

    def _metadata_of(self, episode: SourceEpisode) -> dict[str, Any]:
        if not self._kept:
            return {}
        about = dict(leaves_at(episode.metadata, None))
        values = {path: value for path, value in about.items() if path not in self.episode_places}
        num_rows = self._num_rows(episode.num_steps, episode.final_observation_known)
        for clip, first in map(_parts_of, self.clips):
            _, rest = split_clip(Clip(bytes(about[clip]), int(about[first])), num_rows)
            values |= {clip: b"" if rest is None else rest.data}
            values |= {first: np.int64(0 if rest is None else rest.first)}
        columns = dict(leaves_at(stack_values([nest(values)]), None))
        matched = match_columns(columns, self._kept, rows=1, where=episode.key)
        return {path: column[0] for path, column in matched.items()}

    def _column(
        self,
        path: str,
        columns: Mapping[str, np.ndarray],
        found: Mapping[str, Any],
        num_steps: int,
        known: bool,
    ) -> np.ndarray:
        """A field of all steps."""
        field = self.steps[path]
        if path not in self.places:
            column = found[rlds.STEPS][path]
            num_rows = num_steps
        else:
            is_whole = path in self.whole
            column = columns[path]
            num_rows = num_steps if is_whole else self._num_rows(num_steps, known)
            if column.dtype.kind == "O" and not (field.is_text or field.encoding):
                column = _decoded(column, field)
            if num_rows < num_steps == len(column):  # With a placeholder.
                column = column[:num_rows]
        if column.dtype.kind != "O" and None not in field.shape:
            # Formats without vectors of one element have numbers.
            column = column.reshape(len(column), *field.shape)
        if len(column) != num_rows:
            raise ValueError(f"{path}: {len(column)} rows, expected {num_rows}")
        if num_rows < num_steps:
            column = np.concatenate([column, found[_FINAL][path]])
        return as_texts(column) if field.dtype == str else np.asarray(column)

    @property
    def _final(self) -> list[str]:
        return [path for path in self.places if path not in self.whole]

    @property
    def _others(self) -> list[str]:
        return [path for path in self.steps if path not in self.places]

    @property
    def _clip_fields(self) -> set[str]:
        """The fields of `clips`."""
        return {path for camera in self.clips for path in _parts_of(camera)}

    @property
    def _kept(self) -> dict[str, Field]:
        """The fields of episodes that the format has not."""
        placed = self.episode_places.keys() - self._clip_fields
        return {path: field for path, field in self.episode.items() if path not in placed}

    # What is made of the fields, for all episodes once.
    @functools.cached_property
    def _encoder(self) -> tfds_files.ExampleEncoder:
        return tfds_files.ExampleEncoder(self._features)

    @functools.cached_property
    def _decoder(self) -> tfds_files.ExampleDecoder:
        return tfds_files.ExampleDecoder(images_as_bytes(self._features))

    @functools.cached_property
    def _outline_decoder(self) -> tfds_files.ExampleDecoder:
        return tfds_files.ExampleDecoder(self._features, _OUTLINE)

    @functools.cached_property
    def _features(self) -> Features:
        features = as_features(
            {
                **EPISODE_FIELDS,
                _NUM_STEPS: Field(np.int64),
                rlds.IS_TERMINAL: Field(np.bool_),
                _FLAGS: {name: Field(np.bool_, (None,)) for name in rlds.STEP_FLAGS},
            }
        )
        steps = {path: _stored(field) for path, field in self.steps.items()}
        episode = {path: _stored(field) for path, field in self._kept.items()}
        tables = {
            name: Dataset(feature=Features(features={path: steps[path] for path in paths}))
            for name, paths in ((_FINAL, self._final), (rlds.STEPS, self._others))
        }
        children = {**features, _METADATA: Features(features=episode), **tables}
        return Features(features=children)


class SidecarWriter:
    """Writes a sidecar to a folder, for formats that are one.

    Args:
      directory: The folder, on this machine.
      sidecar: What the sidecar holds.
    """

    def __init__(self, directory: Path, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        sidecar.write_text(directory)
        self._records = TFRecordWriter(stores.as_path(directory / _EPISODES_FILE))

    def add(self, episode: SourceEpisode) -> None:
        """Keeps what belongs to the next episode.

        Raises:
          ValueError: The episode has not the fields that were declared.
        """
        self.add_stored(self._sidecar.pack(episode))

    def add_stored(self, data: bytes) -> None:
        """Keeps what another sidecar of the same fields has of the next episode."""
        self._records.write(data)

    def __enter__(self) -> SidecarWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._records.close()


class StoredSidecar:
    """The sidecar of a dataset that is read; can be pickled.

    Args:
      sidecar: What it holds.
      place: What to call it in errors.
      read: Returns the bytes of an episode; raises what the library that reads the file raises.
      length: Of how many episodes there are bytes.
      files: The files beside those of the format, for `Source.inputs`.

    Attributes:
      splits: The rows of each split, by its name; None if the data has a single split.
    """

    splits: Mapping[str, range] | None = None

    def __init__(
        self,
        sidecar: Sidecar,
        place: str | os.PathLike[str],
        read: Callable[[int], bytes | bytearray],
        length: int,
        files: Sequence[epath.Path] = (),
    ) -> None:
        self.sidecar, self.place, self.files = sidecar, os.fspath(place), files
        self._read, self._length = read, length

    @classmethod
    def in_folder(cls, directory: str | os.PathLike[str]) -> StoredSidecar | None:
        """Returns the sidecar that is in a folder; None if there is none.

        Raises:
          SourceError: It is damaged.
        """
        check_link(directory)
        place = stores.as_path(directory)
        if not is_there(place / _TEXT_FILE):
            return None
        files = require_files(place / _TEXT_FILE)
        with source_errors(files[0]):
            sidecar = Sidecar.from_json(files[0].read_bytes())
        if sidecar.is_about:
            return cls(sidecar, files[0], _no_bytes, 0, files)
        files += require_files(place / _EPISODES_FILE)
        with source_errors(files[1]):
            records = tfds_files.open_record_file(files[1], "tfrecord")
            return cls(sidecar, files[1], records.read, len(records), files)

    @classmethod
    def in_arrays(
        cls,
        place: str | os.PathLike[str],
        text: np.ndarray,
        ends: np.ndarray,
        rows: Callable[[int, int], np.ndarray],
    ) -> StoredSidecar:
        """Returns the sidecar that is in three arrays of bytes, in a file that holds arrays.

        Args:
          place: What to call the file in errors.
          text: What `Sidecar.to_json` returned.
          ends: Where the bytes of each episode end, in those of all.
          rows: Returns bytes from one to another.

        Raises:
          SourceError: It is damaged.
        """
        with source_errors(place, field=SIDECAR_TEXT):
            sidecar = Sidecar.from_json(np.asarray(text, np.uint8).tobytes())
            bounds = np.asarray(ends, np.int64).reshape(-1)
        return cls(sidecar, place, functools.partial(_bytes_of, bounds, rows), len(bounds))

    def __len__(self) -> int:
        return self._length

    def if_of(self, number: int) -> StoredSidecar | None:
        """Returns itself; None if it has not as many episodes, as others added some to the data."""
        return self if self.sidecar.is_about or self._length == number else None

    def row(self, split: str, index: int) -> int:
        """Returns the row of an episode of a split."""
        return index if self.splits is None else self.splits[split][index]

    def read(self, index: int) -> bytes:
        """Returns what the sidecar has of an episode, for `Sidecar.unpack`.

        Raises:
          SourceError: It is damaged.
        """
        with source_errors(self.place, row=index):
            return bytes(self._read(index))


def _parts_of(camera: str) -> tuple[str, str]:
    """The fields of the clip of a camera."""
    return f"{camera}/{CLIP}", f"{camera}/{FIRST}"


def _no_bytes(index: int) -> bytes:
    raise IndexError(index)


def _bytes_of(ends: np.ndarray, rows: Callable[[int, int], np.ndarray], index: int) -> bytes:
    begin, end = int(ends[index - 1]) if index else 0, int(ends[index])
    if not 0 <= begin <= end:
        raise ValueError(f"{SIDECAR_ENDS}: ends before it begins")
    return rows(begin, end).tobytes()


def _stored(field: Field) -> Any:
    """How a field is kept: image files as they are, all else as plain values."""
    if field.encoding:
        return Image(shape=field.shape, dtype=field.column_dtype, encoding_format=field.encoding)
    return as_features({"": field})[""]


def _decoded(column: np.ndarray, field: Field) -> np.ndarray:
    image = Image(shape=field.shape, dtype=field.column_dtype)
    images = [tfds_files.decode_image(data, image) for data in column]
    return np.stack(images) if images else np.zeros((0, *map(int, field.shape)), field.dtype)  # type: ignore[arg-type]


def field_json(field: Field) -> dict[str, Any]:
    """Returns a field in the types of JSON."""
    dtype = "str" if field.dtype == str else "bytes" if field.is_text else str(field.column_dtype)
    said = {"encoding": field.encoding, **field.meaning, "doc": field.doc}
    if field.codes is not None:
        said["codes"] = field.codes.to_json()
    return {"dtype": dtype, "shape": field.shape, **{k: v for k, v in said.items() if v}}


def field_from_json(content: Mapping[str, Any]) -> Field:
    """Reads what `field_json` returns; an error is one of the content."""
    kinds: Mapping[str, Any] = {"str": str, "bytes": bytes}
    names, codes = content.get("names"), content.get("codes")
    return Field(
        kinds.get(content["dtype"], content["dtype"]),
        tuple(None if size is None else int(size) for size in content["shape"]),
        encoding=str(content.get("encoding", "")),
        names=None if names is None else tuple(map(str, names)),
        unit=content.get("unit"),
        doc=str(content.get("doc", "")),
        codes=None if codes is None else DepthCodes.from_json(codes),
        table=str(content.get("table", "")),
        kind=str(content.get("kind", "")),
    )
