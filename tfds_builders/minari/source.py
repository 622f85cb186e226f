"""Minari datasets (https://minari.farama.org) as RLDS, read without Minari.

Minari keeps the `T + 1` observations and infos and the `T` actions, rewards, terminations and
truncations of an episode in arrays of their own, so nothing is missing in RLDS. What an episode is
has to be found in the files, not only in the spaces: the dtypes of rewards and infos may change
from episode to episode (a reward of `0` is an integer, one of `0.5` is not), some episodes may have
no infos, images are JPEG since Minari 0.5.3, and raw arrays before.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from dm_env import specs
from etils import epath

from tfds_builders.alignment import from_sars
from tfds_builders.builder import SourceBuilder
from tfds_builders.jpeg_images import black_jpeg, jpeg_shape
from tfds_builders.minari.spaces import Leaf, Spaces, parse_space
from tfds_builders.minari.storage import FORMATS, Column, RawEpisode, Storage, open_storage
from tfds_builders.source import Origin, RandomAccessSource, SourceEpisode, SourceError
from tfds_builders.spec_features import feature_from_spec

__all__ = ["MinariSource", "RldsMinari", "dataset_directory", "datasets_root", "restored_episode"]

# Under this name, the metadata of a dataset holds what Minari's metadata.json says.
METADATA_KEY = "minari"
# And under this one the paths of all columns, in the order of the files.
COLUMNS_KEY = "minari_columns"

# The names of a Minari episode. OBSERVATIONS and INFOS have a row more than the others.
OBSERVATIONS, ACTIONS, REWARDS, INFOS = "observations", "actions", "rewards", "infos"
TERMINATIONS, TRUNCATIONS = "terminations", "truncations"
_SCALARS = (REWARDS, TERMINATIONS, TRUNCATIONS)
_FLAGS = (TERMINATIONS, TRUNCATIONS)
_SPACES = {OBSERVATIONS: "observation_space", ACTIONS: "action_space"}

# The attributes of an episode that have a place of their own in its metadata.
_ID, _TOTAL_STEPS, _SEED, _OPTIONS = "id", "total_steps", "seed", "options"
_OWN_PLACE = (_ID, _TOTAL_STEPS, _SEED, _OPTIONS)
RECORDED_ID, SEED_KNOWN, OPTIONS_KNOWN = "recorded_episode_id", "seed_known", "options_known"
ATTRIBUTES, IRREGULAR = "attributes", "irregular"


def datasets_root() -> pathlib.Path:
    """Returns the directory in which Minari looks for datasets."""
    root = os.environ.get("MINARI_DATASETS_PATH")
    return pathlib.Path(root) if root else pathlib.Path.home() / ".minari" / "datasets"


def dataset_directory(path_or_id: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the directory of a dataset that exists.

    Args:
      path_or_id: The directory `<name>-v<number>` itself, the directory `data` in it, or the
        identifier of a dataset that Minari finds, such as "mujoco/hopper/medium-v0".

    Raises:
      FileNotFoundError: There is none.
    """
    name = os.fspath(path_or_id)
    for directory in (pathlib.Path(name), datasets_root() / name):
        if (directory / "data" / "metadata.json").is_file():
            return directory
        if directory.name == "data" and (directory / "metadata.json").is_file():
            return directory.parent
    raise FileNotFoundError(
        f"{name!r} is no Minari dataset: there is no data/metadata.json in the directory of this "
        f"name, nor in {os.fspath(datasets_root() / name)!r}, where Minari would look for it."
    )


class MinariSource(RandomAccessSource):
    """The episodes of a Minari dataset in any of its formats: HDF5, Arrow, Parquet.

    Observations and actions have the structure of their spaces; a `Tuple` becomes a dict with the
    names `_index_0`, `_index_1`, .... Images that are stored as JPEG stay the same bytes. Beside
    the fields of RLDS, a step has `terminations` and `truncations` as they were recorded, and
    `infos` if there are any. Beside those that all builders have, the fields of an episode are:

    * `recorded_episode_id`: the attribute `id`;
    * `seed` and `seed_known`, `options` (in JSON) and `options_known`;
    * `attributes`: the other attributes, such as `rewards_sum`, if all episodes have them;
    * `irregular`: in JSON, whatever was recorded of this episode in another form than the features
      can show: other attributes, dtypes that are narrower than those of other episodes, infos that
      are missing (zeros stand in for them).

    `tfds_builders.minari.export` makes the same Minari dataset of all that.

    Args:
      path: See `dataset_directory`.

    Raises:
      FileNotFoundError: There is no dataset.
      SourceError: Its metadata cannot be read, or is not what the files hold; none of its episodes
        can be read.
    """

    description = "Episodes of a Minari dataset."
    homepage = "https://minari.farama.org"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._directory = dataset_directory(path)
        self._metadata = _read_metadata(self._metadata_file)
        self._spaces = self._read_spaces()
        self._storage = self._open()
        self._indices = self._check_indices()
        self._columns, self._attributes = self._scan()

    @property
    def _metadata_file(self) -> pathlib.Path:
        return self._directory / "data" / "metadata.json"

    def _read_spaces(self) -> Spaces:
        leaves: dict[str, Leaf] = {}
        tuples: frozenset[str] = frozenset()
        for path, name in _SPACES.items():
            if name not in self._metadata:  # Minari asks the environment then.
                continue
            try:
                spaces = parse_space(self._metadata[name], path)
            except ValueError as error:
                raise SourceError(str(error), file=self._metadata_file, field=name) from error
            leaves.update(spaces.leaves)
            tuples |= spaces.tuples
        return Spaces(leaves, tuples)

    def _open(self) -> Storage:
        data_format = self._metadata.get("data_format", "hdf5")
        if data_format not in FORMATS:
            raise SourceError(
                f"{data_format!r}, expected one of {FORMATS}",
                file=self._metadata_file,
                field="data_format",
            )
        return open_storage(data_format, self._directory / "data", self._spaces)

    def _check_indices(self) -> range:
        number = self._metadata["total_episodes"]
        indices = self._storage.indices()
        if indices != list(range(number)):
            missing = sorted(set(range(number)) - set(indices))
            what = f"episode {missing[0]} is missing" if missing else f"there are {len(indices)}"
            raise SourceError(
                f"{number} episodes, but {what}", file=self._metadata_file, field="total_episodes"
            )
        if not number:
            raise SourceError("there is no episode", file=self._metadata_file)
        return range(number)

    # --- What there is, over all episodes.

    def _scan(self) -> tuple[dict[str, Column], dict[str, np.ndarray]]:
        """Returns the columns of all episodes, without rows, and their common attributes.

        Episodes that are damaged are passed over; who reads them is told.
        """
        found: dict[str, Column] = {}
        attributes: dict[str, np.ndarray] | None = None
        damage: SourceError | None = None
        for layout in self._storage.layouts(self._indices):
            if isinstance(layout, SourceError):
                damage = damage or layout
                continue
            for path, column in layout.columns.items():
                if self._objection(path, column) is None:
                    found[path] = _merge(found.get(path), column)
            attributes = _common(attributes, layout.attributes)
        missing = [path for path in self._required() if not _has(found, path)]
        if missing:
            raise damage or self._storage.error("missing in all episodes", 0, missing[0])
        return found, attributes or {}

    def _required(self) -> Iterator[str]:
        """The paths of what every episode has to have."""
        yield from _SCALARS
        for group, name in _SPACES.items():
            if name not in self._metadata:
                yield group
        yield from self._spaces.leaves

    def _objection(self, path: str, column: Column) -> str | None:
        """Says what is wrong with a column, whatever those of other episodes are like."""
        group = path.split("/")[0]
        dtype, shape = column.values.dtype, column.values.shape[1:]
        if group in _SCALARS:
            wanted = "bfiu" if group == REWARDS else "b"
            if dtype.kind in wanted and column.kind == "numbers" and not set(shape) - {1}:
                return None
            kind = "number" if group == REWARDS else "bool"
            return f"{dtype} of shape {shape}, expected a {kind} for each step"
        if group == INFOS:
            return None
        if group not in _SPACES:
            return "Minari has no such field"
        leaf = self._spaces.leaves.get(path)
        if leaf is None:
            known = _SPACES[group] not in self._metadata
            return None if known else f"the {_SPACES[group]} has no such part"
        return _mismatch(leaf, column)

    # --- What it becomes.

    def step_features(self) -> Mapping[str, Any]:
        """Returns the features of a step, see the class."""
        nest = _nest({path: self._feature(path) for path in self._columns})
        return {
            "observation": nest[OBSERVATIONS],
            "action": nest[ACTIONS],
            "reward": nest[REWARDS],
            "discount": np.float32,
            TERMINATIONS: np.bool_,
            TRUNCATIONS: np.bool_,
            **({INFOS: nest[INFOS]} if INFOS in nest else {}),
        }

    def _feature(self, path: str) -> Any:
        column = self._columns[path]
        shape = () if path in _SCALARS else column.values.shape[1:]
        if column.kind == "jpeg":
            shape = self._spaces.leaves[path].shape
            channels = shape[2:] or (1,)
            return tfds.features.Image(shape=(*shape[:2], *channels), encoding_format="jpeg")
        if column.kind == "text" and not shape:
            return tfds.features.Text()
        if column.kind != "numbers":
            return tfds.features.Tensor(shape=shape, dtype=np.object_)
        return feature_from_spec(specs.Array(shape, column.values.dtype), path=path)

    def episode_features(self) -> Mapping[str, Any]:
        """Returns the features of an episode, see the class."""
        attributes = {
            name: tfds.features.Text()
            if value.dtype.kind == "U"
            else feature_from_spec(specs.Array(value.shape, value.dtype), path=name)
            for name, value in self._attributes.items()
        }
        return {
            RECORDED_ID: np.int64,
            _SEED: np.uint64,
            SEED_KNOWN: np.bool_,
            _OPTIONS: tfds.features.Text(),
            OPTIONS_KNOWN: np.bool_,
            **({ATTRIBUTES: attributes} if attributes else {}),
            IRREGULAR: tfds.features.Text(),
        }

    def metadata(self) -> Mapping[str, Any]:
        """Returns all that metadata.json says, as it says it, and the order of the columns."""
        return {METADATA_KEY: self._metadata, COLUMNS_KEY: list(self._columns)}

    def inputs(self) -> Sequence[epath.Path]:
        """Returns metadata.json and all files with episodes."""
        return [epath.Path(file) for file in (self._metadata_file, *self._storage.files())]

    def num_episodes(self, split: str) -> int:
        """Returns how many episodes there are."""
        del split
        return len(self._indices)

    def totals(self, split: str) -> Mapping[str, int]:
        """Returns what metadata.json says."""
        del split
        return {name: int(self._metadata[name]) for name in ("total_episodes", "total_steps")}

    def key(self, split: str, index: int) -> str:
        """Returns the name that an episode has in HDF5 files: "episode_0", "episode_1", ...."""
        del split
        return f"episode_{index}"

    # --- One episode.

    def read(self, split: str, index: int) -> SourceEpisode:
        """Reads an episode; see `RandomAccessSource`."""
        raw = self._storage.read(index)
        irregular = _Irregularities(raw)
        columns = {
            path: self._fit(path, column, index, irregular) for path, column in raw.columns.items()
        }
        num_steps = self._check_lengths(columns, raw, index)
        for path in self._required():
            if not _has(columns, path):
                raise self._storage.error("missing", index, path)
        for path, column in self._columns.items():
            if path not in columns and path.startswith(f"{INFOS}/"):
                irregular.absent.append(path)
                columns[path] = _stand_in(column, num_steps)
        nest = _nest({path: columns[path] for path in self._columns if path in columns})
        terminated, truncated = (bool(nest[name][-1:].any()) for name in _FLAGS)
        steps = from_sars(
            observation=nest[OBSERVATIONS],
            action=nest[ACTIONS],
            reward=nest[REWARDS],
            terminal=terminated,
            transition_metadata={name: nest[name] for name in _FLAGS},
            observation_metadata={INFOS: nest[INFOS]} if INFOS in nest else None,
        )
        self._fill_last_images(steps)
        return SourceEpisode(
            key=self.key(split, index),
            steps=steps,
            origin=Origin(self._storage.place(index), 0, num_steps),
            truncated=not terminated,
            complete=terminated or truncated,
            metadata=self._episode_metadata(raw.attributes, index, num_steps - 1, irregular),
            counts={"total_episodes": 1, "total_steps": num_steps - 1},
        )

    def _fit(self, path: str, column: Column, index: int, irregular: _Irregularities) -> np.ndarray:
        """Returns the values of a column as the features have them."""
        what = self._objection(path, column)
        if what is not None:
            raise self._storage.error(what, index, path)
        values, expected = column.values, self._columns[path]
        if column.kind != expected.kind:
            what = f"{column.kind}, but the episodes before have {expected.kind}"
            raise self._storage.error(what, index, path)
        shape, known = values.shape[1:], expected.values.shape[1:]
        if path not in _SCALARS and shape != known:
            what = f"shape {shape}, but the episodes before have {known}"
            raise self._storage.error(what, index, path)
        if column.kind == "jpeg":
            self._check_images(values, self._spaces.leaves[path], index, path)
            return values
        if path in _SCALARS and values.ndim > 1:
            irregular.shapes[path] = list(values.shape[1:])
            values = values.reshape(len(values))
        if values.dtype != expected.values.dtype:
            irregular.dtypes[path] = values.dtype.str
            converted = values.astype(expected.values.dtype)
            changed = ~_equal(converted.astype(values.dtype), values)
            if changed.any():
                row = int(np.argwhere(changed)[0][0])
                raise SourceError(
                    f"{values.dtype} {values[row]}, which {converted.dtype}, the dtype for all "
                    "episodes, cannot hold",
                    file=self._directory / self._storage.place(index),
                    episode=index,
                    row=row,
                    field=path,
                )
            values = converted
        return values

    def _check_images(self, images: np.ndarray, leaf: Leaf, index: int, path: str) -> None:
        for row, image in enumerate(images):
            try:
                shape = jpeg_shape(image)
                if shape != leaf.shape:
                    raise ValueError(f"an image of shape {shape}, expected {leaf.shape}")
            except ValueError as error:
                raise SourceError(
                    str(error),
                    file=self._directory / self._storage.place(index),
                    episode=index,
                    row=row,
                    field=path,
                ) from error

    def _check_lengths(self, columns: Mapping[str, np.ndarray], raw: RawEpisode, index: int) -> int:
        """Returns how many observations there are."""
        if REWARDS not in columns:
            raise self._storage.error("missing", index, REWARDS)
        transitions = len(columns[REWARDS])
        for path, values in columns.items():
            expected = transitions + (path.split("/")[0] in (OBSERVATIONS, INFOS))
            if len(values) != expected:
                what = f"{len(values)} rows, expected {expected}: there are {transitions} rewards"
                raise self._storage.error(what, index, path)
        recorded = raw.attributes.get(_TOTAL_STEPS, transitions)
        if not np.array_equal(recorded, transitions):
            what = f"{recorded!r}, but there are {transitions} rewards"
            raise self._storage.error(what, index, _TOTAL_STEPS)
        return transitions + 1

    def _fill_last_images(self, steps: dict[str, Any]) -> None:
        """Puts a black image where there is no action, as bytes of no image cannot be decoded."""
        for path, column in self._columns.items():
            group, *names = path.split("/")
            if column.kind == "jpeg" and group == ACTIONS:
                values = steps["action"]
                for name in names:
                    values = values[name]
                values[-1] = black_jpeg(self._spaces.leaves[path].shape)

    def _episode_metadata(
        self,
        attributes: Mapping[str, Any],
        index: int,
        transitions: int,
        irregular: _Irregularities,
    ) -> dict[str, Any]:
        options = attributes.get(_OPTIONS)
        seed = _integer(attributes.get(_SEED), np.uint64)
        recorded_id = _integer(attributes.get(_ID), np.int64)
        fields: dict[str, Any] = {
            RECORDED_ID: np.int64(index) if recorded_id is None else recorded_id,
            _SEED: np.uint64(0) if seed is None else seed,
            SEED_KNOWN: np.bool_(seed is not None),
            _OPTIONS: "" if options is None else json.dumps(options, default=_to_json),
            OPTIONS_KNOWN: np.bool_(options is not None),
        }
        common = {name: np.asarray(attributes[name]) for name in self._attributes}
        if common:
            fields[ATTRIBUTES] = {
                name: str(value) if value.dtype.kind == "U" else value
                for name, value in common.items()
            }
        # What can be told from the fields above needs not to be said again.
        told = restored_attributes(fields, transitions)
        irregular.missing = [name for name in told if name not in attributes]
        irregular.attributes = {
            name: _encode(value)
            for name, value in attributes.items()
            if name not in told or not _same(told[name], value)
        }
        fields[IRREGULAR] = irregular.to_json()
        return fields


class RldsMinari(SourceBuilder):
    """Any Minari dataset, in any of its formats, with all that it has.

    The `path` is the directory of the dataset, or the identifier by which Minari finds it:
    `tfds.load("rlds_minari", builder_kwargs={"path": "mujoco/hopper/medium-v0"})`. To have several
    in one `data_dir`, give each a config of its own: `RldsMinari(path="mujoco/hopper/medium-v0",
    config=tfds.core.BuilderConfig(name="hopper-medium"))`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}

    def make_source(self, path: epath.Path) -> MinariSource:
        """Returns the source for a dataset, see `SourceBuilder`."""
        return MinariSource(path)


class _Irregularities:
    """In which ways an episode was recorded otherwise than the features show it.

    Attributes:
      absent: The paths of infos that it does not have; "infos" if there is no place for any.
      empty: The paths of groups with nothing in them.
      shapes: The shapes of what is a single value in the dataset.
      dtypes: The dtypes of columns that have another one in the dataset.
      missing: The attributes that it does not have though the dataset shows them.
      attributes: The attributes that the dataset does not show as they are, encoded.
    """

    def __init__(self, raw: RawEpisode) -> None:
        has_infos = INFOS in raw.empty or _has(raw.columns, INFOS)
        self.absent: list[str] = [] if has_infos else [INFOS]
        self.empty = [path for path in raw.empty if path != INFOS]
        self.shapes: dict[str, list[int]] = {}
        self.dtypes: dict[str, str] = {}
        self.missing: list[str] = []
        self.attributes: dict[str, Any] = {}

    def to_json(self) -> str:
        return json.dumps({name: value for name, value in vars(self).items() if value})


def restored_episode(
    columns: Mapping[str, Column],
    fields: Mapping[str, Any],
    transitions: int,
    *,
    same_dtypes: bool = False,
) -> RawEpisode:
    """Returns an episode as it was recorded.

    Args:
      columns: Its columns, as they are in the dataset.
      fields: The fields that `MinariSource` adds to an episode, texts as `str`.
      transitions: How many there are.
      same_dtypes: Whether dtypes stay those of the dataset, the same in all episodes.
    """
    irregular: dict[str, Any] = json.loads(fields[IRREGULAR])
    absent = irregular.get("absent", [])
    columns = {path: column for path, column in columns.items() if path not in absent}
    dtypes = {} if same_dtypes else irregular.get("dtypes", {})
    for path, dtype in dtypes.items():
        columns[path] = Column(columns[path].kind, columns[path].values.astype(dtype))
    for path, shape in irregular.get("shapes", {}).items():
        columns[path] = Column(columns[path].kind, columns[path].values.reshape(-1, *shape))
    attributes = restored_attributes(fields, transitions)
    for name in irregular.get("missing", []):
        del attributes[name]
    for name, encoded in irregular.get("attributes", {}).items():
        attributes[name] = _decode(encoded)
    empty = list(irregular.get("empty", []))
    if INFOS not in absent and not _has(columns, INFOS):
        empty.append(INFOS)
    return RawEpisode(columns, attributes, empty)


def restored_attributes(fields: Mapping[str, Any], transitions: int) -> dict[str, Any]:
    """Returns the attributes of an episode that the fields of `MinariSource` show."""
    attributes: dict[str, Any] = {_ID: int(fields[RECORDED_ID]), _TOTAL_STEPS: transitions}
    if fields[SEED_KNOWN]:
        attributes[_SEED] = int(fields[_SEED])
    if fields[OPTIONS_KNOWN]:
        attributes[_OPTIONS] = json.loads(fields[_OPTIONS])
    return {**attributes, **fields.get(ATTRIBUTES, {})}


def _encode(value: Any) -> Any:
    """Returns any attribute in the types of JSON, so that `_decode` gives back the same."""
    if isinstance(value, Mapping):
        return {"dict": {name: _encode(child) for name, child in value.items()}}
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        data = base64.b64encode(np.asarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": value.shape, "data": data}
    if isinstance(value, np.ndarray):
        return {"objects": [_encode(item) for item in value.flat], "shape": value.shape}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return {"json": value}


def _decode(encoded: Mapping[str, Any]) -> Any:
    if "dict" in encoded:
        return {name: _decode(child) for name, child in encoded["dict"].items()}
    if "dtype" in encoded:
        values = np.frombuffer(base64.b64decode(encoded["data"]), encoded["dtype"])
        return values.reshape(encoded["shape"])[()]
    if "objects" in encoded:
        items = np.empty(len(encoded["objects"]), object)
        items[:] = [_decode(item) for item in encoded["objects"]]
        return items.reshape(encoded["shape"])
    if "bytes" in encoded:
        return base64.b64decode(encoded["bytes"])
    return encoded["json"]


def _read_metadata(file: pathlib.Path) -> dict[str, Any]:
    try:
        metadata = json.loads(file.read_text())
    except ValueError as error:
        raise SourceError(f"no whole JSON file: {error}", file=file) from error
    for name in ("total_episodes", "total_steps"):
        value = metadata.get(name) if isinstance(metadata, dict) else None
        if not isinstance(value, int) or value < 0:
            raise SourceError(f"{value!r}, expected a number", file=file, field=name)
    return dict(metadata)


def _mismatch(leaf: Leaf, column: Column) -> str | None:
    """Says why a column does not hold the values of a space, if so."""
    if column.kind == "jpeg":
        return None
    dtype, shape = column.values.dtype, column.values.shape[1:]
    found = f"{column.kind if column.kind != 'numbers' else dtype} of shape {shape}"
    if leaf.dtype is None:
        is_right = column.kind == "text"
    elif column.kind != "numbers":
        is_right = False
    elif leaf.kind == "Box":  # Minari itself does no more than warn of another precision.
        is_right = np.can_cast(dtype, leaf.dtype, "same_kind")
    else:
        is_right = dtype.kind in "biu"
    if is_right and shape == leaf.shape:
        return None
    name = "text" if leaf.dtype is None else leaf.dtype.name
    return f"{found}, expected {name} of shape {leaf.shape}: the space is a {leaf.kind}"


def _merge(known: Column | None, column: Column) -> Column:
    """The column, without rows, that holds what two episodes have."""
    values = column.values[:0]
    dtype = values.dtype if column.kind == "numbers" else np.dtype(object)
    if known is None:
        return Column(column.kind, values.astype(dtype))
    if column.kind != "numbers" or known.kind != "numbers":
        return known
    return Column(known.kind, known.values.astype(np.result_type(known.values, values)))


def _common(
    known: dict[str, np.ndarray] | None, attributes: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The attributes that have one dtype and shape in all episodes so far."""
    arrays = {}
    for name, value in attributes.items():
        if name in _OWN_PLACE or "/" in name or isinstance(value, Mapping | list):
            continue
        array = np.asarray(value)
        if array.dtype.kind in "biuf" or (array.dtype.kind == "U" and not array.shape):
            arrays[name] = array
    if known is None:
        return arrays
    return {
        name: array
        for name, array in known.items()
        if name in arrays
        and arrays[name].shape == array.shape
        and (
            arrays[name].dtype == array.dtype or arrays[name].dtype.kind == array.dtype.kind == "U"
        )
    }


def _same(told: Any, value: Any) -> bool:
    """Whether an attribute that a writer is told is what is there, type and all."""
    if isinstance(told, Mapping) or isinstance(value, Mapping):
        return (
            isinstance(told, Mapping)
            and isinstance(value, Mapping)
            and told.keys() == value.keys()
            and all(_same(child, value[name]) for name, child in told.items())
        )
    if isinstance(value, list):  # Of JSON, as is what is told.
        return json.dumps(told) == json.dumps(value)
    if isinstance(told, str) or isinstance(value, str):
        return type(told) is type(value) and bool(told == value)
    one, other = np.asarray(told), np.asarray(value)
    return (
        one.dtype == other.dtype != object
        and one.shape == other.shape
        and one.tobytes() == other.tobytes()
    ) or (told is None and value is None)


def _integer(value: Any, dtype: type[np.integer[Any]]) -> np.integer[Any] | None:
    """Returns an integer in a dtype; None if it is no integer, or does not fit."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return None
    is_small_enough = np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max
    return dtype(value) if is_small_enough else None


def _equal(one: np.ndarray, other: np.ndarray) -> Any:
    is_nan = (one != one) & (other != other)
    return (one == other) | is_nan


def _stand_in(column: Column, rows: int) -> np.ndarray:
    """Zeros, or what comes next to them, in the place of values that are not there."""
    values = np.zeros((rows, *column.values.shape[1:]), column.values.dtype)
    if column.kind != "numbers":
        values[:] = "" if column.kind == "text" else b""
    return values


def _has(paths: Mapping[str, Any], path: str) -> bool:
    """Whether there is something at a path, or below it."""
    return path in paths or any(other.startswith(f"{path}/") for other in paths)


def _nest(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Dicts by the parts of paths."""
    nest: dict[str, Any] = {}
    for path, value in columns.items():
        *parents, name = path.split("/")
        target = nest
        for parent in parents:
            target = target.setdefault(parent, {})
        target[name] = value
    return nest


def _to_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{value!r} of type {type(value).__name__} is not known")
