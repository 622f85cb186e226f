"""Writes Minari datasets: what was converted from Minari as it was, and any other RLDS dataset."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import string
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow_datasets as tfds

import rlds
from rlds.tfds import load
from tfds_builders.jpeg_images import jpeg_shape
from tfds_builders.minari.source import (
    ACTIONS,
    ATTRIBUTES,
    COLUMNS_KEY,
    INFOS,
    IRREGULAR,
    METADATA_KEY,
    OBSERVATIONS,
    REWARDS,
    TERMINATIONS,
    TRUNCATIONS,
    datasets_root,
    restored_episode,
)
from tfds_builders.minari.spaces import SMALLEST_IMAGE, Leaf, Spaces, box, parse_space, tuple_name
from tfds_builders.minari.storage import FORMATS, TABLES, Column, RawEpisode, open_writer

__all__ = ["export_minari"]

# The version of Minari whose files are written: the first that says whether images are JPEG.
_MINARI_VERSION = "0.5.4"
_DATASET_ID = re.compile(r"(?:[-_\w][-_\w/]*[-_\w]+/)?[-_\w]+-v\d+")
_NAMESPACE_FILE = "namespace_metadata.json"
_EXAMPLE_KEY = "rlds"
_TUPLE = re.compile(rf"{tuple_name('')}\d+")
_DROP = "drop_last_transition"


def export_minari(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder,
    target: str | os.PathLike[str],
    *,
    data_format: str | None = None,
    split: str = "train",
    fields: Collection[str] | None = None,
    episode_fields: Collection[str] | None = None,
    unknown_final_observation: Literal["error", "drop_last_transition"] = "error",
    metadata: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes the episodes of an RLDS dataset as a Minari dataset.

    If the dataset was converted from Minari (see `MinariSource`), the same comes out: every array,
    with its dtype, every attribute, and metadata.json, but for what is different then: the format,
    the size of the files, the identifier, and, if not all episodes are written, their numbers. Raw
    images, which Minari itself can read no more from datasets older than 0.5.3, are declared
    (`jpeg_encoding`), so that it can; and where HDF5 becomes a table, columns have the same dtypes
    in all episodes, for the same reason.

    For other datasets, the spaces are made from the features: a `Box` without bounds other than
    those of the dtype, `Discrete` for a `ClassLabel`, `Text`, and a `Dict` for a dict. Images stay
    JPEG files if that is what all images of observations and actions are that Minari takes for
    images; otherwise the arrays are written. The discount and all other fields of steps become
    infos; episode metadata becomes attributes below `rlds`.

    Args:
      dataset: The directory of a dataset that TFDS has written, or a builder.
      target: Where to: the identifier of a dataset (a `str` such as "mujoco/hopper/medium-v0"),
        below the directory that Minari looks in; or a path (a `pathlib.Path`, or a `str` that is
        absolute or begins with "./") that ends with `<name>-v<number>`.
      data_format: "hdf5", "arrow" or "parquet"; if None, what it was, or "hdf5".
      split: The split, or a part of it, such as "train[:10]".
      fields: The fields of a step to write, as for `rlds.tfds.load`. Not for a dataset that was
        converted from Minari.
      episode_fields: The fields of an episode to write, likewise.
      unknown_final_observation: What to do with an episode whose final observation is not known,
        which Minari cannot hold: an error, or to leave out its last transition.
      metadata: More fields for metadata.json, or others, such as `author` or `env_spec`.

    Returns:
      The directory of the Minari dataset.

    Raises:
      FileExistsError: There is something at this place. It is left as it is.
      ImportError: The library for the format is not installed.
      ValueError: Minari cannot hold the dataset, or an argument is wrong. Nothing is left behind.
    """
    if data_format not in (None, *FORMATS):
        raise ValueError(f"data_format: {data_format!r}, expected one of {FORMATS}")
    if unknown_final_observation not in ("error", _DROP):
        raise ValueError(
            f"unknown_final_observation: {unknown_final_observation!r}, expected 'error' or "
            f"{_DROP!r}"
        )
    builder = dataset
    if not isinstance(builder, tfds.core.DatasetBuilder):
        builder = tfds.builder_from_directory(os.fspath(builder))
    num_episodes = builder.info.splits[split].num_examples
    is_converted = METADATA_KEY in (builder.info.metadata or {})
    if is_converted and IRREGULAR in builder.info.features:
        if fields is not None or episode_fields is not None:
            raise ValueError("fields: a dataset that was converted from Minari is exported whole")
        episodes: _Episodes = _MinariEpisodes(builder.info, num_episodes, data_format)
    else:
        drop = unknown_final_observation == _DROP
        episodes = _RldsEpisodes(builder.info, fields, episode_fields, drop=drop)
    data_format = data_format or episodes.recorded.get("data_format", "hdf5")
    directory, dataset_id = _place(target, episodes.recorded.get("dataset_id", ""))
    given = dict(metadata or {})
    computed = {"total_episodes", "total_steps", "data_format", "dataset_id", "dataset_size"}
    for name in sorted(given.keys() & (computed | {"observation_space", "action_space"})):
        raise ValueError(f"metadata: {name!r} is told by the dataset")
    if directory.exists():
        raise FileExistsError(f"{directory} exists and is not overwritten")
    with _draft(directory) as draft:
        data = draft / "data"
        data.mkdir()
        total_steps = 0
        with open_writer(data_format, data, episodes.spaces) as writer:
            for number, example in enumerate(episodes.examples(builder, split)):
                index, episode = episodes.episode(example, number)
                try:
                    writer.add(index, episode)
                except ValueError as error:
                    raise ValueError(f"episode {index}: {error}") from error
                total_steps += len(episode.columns[REWARDS].values)
        described = {
            **episodes.metadata(),
            "total_episodes": num_episodes,
            "total_steps": total_steps,
            "data_format": data_format,
            "dataset_id": dataset_id,
            **given,
        }
        described["dataset_size"] = _size_in_megabytes(data)
        (data / "metadata.json").write_text(json.dumps(described))
    _make_namespaces(directory)
    return directory


class _Episodes(abc.ABC):
    """The episodes of a dataset, as Minari keeps them.

    Attributes:
      recorded: What metadata.json said, if there was one.
      spaces: The spaces of observations and actions.
    """

    recorded: Mapping[str, Any]
    spaces: Spaces

    @abc.abstractmethod
    def examples(self, builder: Any, split: str) -> Iterator[dict[str, Any]]:
        """Yields the examples of a split; images that stay files are not decoded."""

    @abc.abstractmethod
    def episode(self, example: Mapping[str, Any], number: int) -> tuple[int, RawEpisode]:
        """Returns an example as an episode with its index; `number` counts the examples."""

    @abc.abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Returns metadata.json, when all episodes are written."""


class _MinariEpisodes(_Episodes):
    """Episodes that were converted from Minari."""

    _FIELDS: ClassVar[dict[str, str]] = {
        OBSERVATIONS: rlds.OBSERVATION,
        ACTIONS: rlds.ACTION,
        REWARDS: rlds.REWARD,
    }

    def __init__(self, info: Any, num_episodes: int, data_format: str | None) -> None:
        self.recorded = dict(info.metadata[METADATA_KEY])
        # Minari cannot read tables of which some have other types than others.
        was_table = self.recorded.get("data_format", "hdf5") in TABLES
        self._same_dtypes = data_format in TABLES and not was_table
        self.spaces = _spaces_of(self.recorded)
        self._keeps_indices = num_episodes == self.recorded["total_episodes"]
        features = dict(_leaves(info.features[rlds.STEPS].feature))
        self._paths = {path: self._path(path) for path in info.metadata[COLUMNS_KEY]}
        self._features = {path: features[path] for path in self._paths.values()}

    def _path(self, minari_path: str) -> str:
        """The path of a column in a step."""
        group, *names = minari_path.split("/")
        return "/".join([self._FIELDS.get(group, group), *names])

    def examples(self, builder: Any, split: str) -> Iterator[dict[str, Any]]:
        """See `_Episodes`."""
        decoded = [path for path, feature in self._features.items() if not _is_jpeg(feature)]
        dataset = load(builder, split, decode=[*decoded, rlds.IS_FIRST])
        yield from dataset.as_numpy_iterator()

    def episode(self, example: Mapping[str, Any], number: int) -> tuple[int, RawEpisode]:
        """See `_Episodes`."""
        steps, columns = example[rlds.STEPS], {}
        transitions = len(steps[rlds.IS_FIRST]) - 1
        for minari_path, path in self._paths.items():
            column = _column(_at(steps, path), self._features[path])
            if minari_path.split("/")[0] not in (OBSERVATIONS, INFOS):
                column = Column(column.kind, column.values[:transitions])
            columns[minari_path] = column
        fields = {**example, IRREGULAR: example[IRREGULAR].decode()}
        fields["options"] = example["options"].decode()
        fields[ATTRIBUTES] = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in example.get(ATTRIBUTES, {}).items()
        }
        episode = restored_episode(columns, fields, transitions, same_dtypes=self._same_dtypes)
        if self._keeps_indices:
            key = example[rlds.metadata.EPISODE_ID].decode()
            return int(key.removeprefix("episode_")), episode
        attributes = {**episode.attributes, "id": number}
        return number, dataclasses.replace(episode, attributes=attributes)

    def metadata(self) -> dict[str, Any]:
        """See `_Episodes`."""
        for path, leaf in self.spaces.leaves.items():
            is_raw = leaf.is_image and not _is_jpeg(self._features[self._path(path)])
            if is_raw and self.recorded.get("jpeg_encoding", True):
                return {**self.recorded, "jpeg_encoding": False}
        return dict(self.recorded)


class _RldsEpisodes(_Episodes):
    """Episodes of any RLDS dataset."""

    _FLAGS = (rlds.IS_FIRST, rlds.IS_LAST, rlds.IS_TERMINAL)
    _GROUPS: ClassVar[dict[str, str]] = {rlds.OBSERVATION: OBSERVATIONS, rlds.ACTION: ACTIONS}

    def __init__(
        self,
        info: Any,
        fields: Collection[str] | None,
        episode_fields: Collection[str] | None,
        *,
        drop: bool,
    ) -> None:
        self.recorded = {}
        self._info, self._drop = info, drop
        features = info.features
        self._fields = fields if fields is None else [*fields, *self._FLAGS]
        self._episode_fields = episode_fields
        if episode_fields is not None and rlds.FINAL_OBSERVATION_KNOWN in features:
            self._episode_fields = [*episode_fields, rlds.FINAL_OBSERVATION_KNOWN]
        self._steps = {
            path: feature
            for path, feature in _leaves(features[rlds.STEPS].feature)
            if _is_chosen(path, self._fields)
        }
        self._others = {
            path: feature
            for path, feature in _leaves(features)
            if path != rlds.STEPS and _is_chosen(path, self._episode_fields)
        }
        self._texts: dict[str, _Texts] = {}
        self._check_features()
        self._paths = self._minari_paths()
        self._keeps_jpeg = self._can_keep_jpeg()
        self.spaces = _spaces_of(self._spaces_in_json())

    def _check_features(self) -> None:
        for name in (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.IS_TERMINAL):
            if not any(_is_chosen(path, [name]) for path in self._steps):
                raise ValueError(f"the steps have no {name!r}, without which Minari has no episode")
        if _shape_of(self._steps.get(rlds.REWARD)) != ():
            raise ValueError(f"the reward is {self._steps.get(rlds.REWARD)}, expected a number")
        for path, feature in self._steps.items():
            if not _is_array(feature):
                raise ValueError(
                    f"steps/{path}: Minari cannot hold {feature}; leave it out with `fields`"
                )
        for path, feature in self._others.items():
            if not _is_array(feature) or isinstance(feature, tfds.features.Image):
                raise ValueError(
                    f"{path}: Minari cannot hold {feature} as an attribute of an episode; leave "
                    "it out with `episode_fields`"
                )

    def _minari_paths(self) -> dict[str, str]:
        """The paths of the fields of a step in Minari."""
        paths = {}
        for path in self._steps:
            field, *names = path.split("/")
            if field in self._GROUPS:
                paths[path] = "/".join([self._GROUPS[field], *names])
            elif field == INFOS and names:  # As in D4RL.
                paths[path] = path
            elif field not in (rlds.REWARD, *self._FLAGS):
                paths[path] = f"{INFOS}/{path}"
        doubled = sorted(path for path in paths.values() if list(paths.values()).count(path) > 1)
        if doubled:
            raise ValueError(f"two fields of a step become {doubled[0]!r}; choose some of `fields`")
        return paths

    def _can_keep_jpeg(self) -> bool:
        """Whether all that Minari takes for images is JPEG with colours, which it decodes alike."""
        images = [
            feature
            for path, feature in self._steps.items()
            if path.split("/")[0] in self._GROUPS and _is_image(feature)
        ]
        return bool(images) and all(
            _is_jpeg(feature) and feature.shape[2] == 3 for feature in images
        )

    def _keeps(self, path: str) -> bool:
        """Whether a field holds images that stay files."""
        in_space = path.split("/")[0] in self._GROUPS
        return self._keeps_jpeg and in_space and _is_image(self._steps[path])

    def _spaces_in_json(self) -> dict[str, str]:
        steps = self._info.features[rlds.STEPS].feature
        return {
            f"{name}_space": json.dumps(self._space(steps[name], name))
            for name in (rlds.OBSERVATION, rlds.ACTION)
        }

    def _space(self, feature: Any, path: str) -> dict[str, Any]:
        if isinstance(feature, tfds.features.FeaturesDict):
            children = {
                name: self._space(child, f"{path}/{name}")
                for name, child in feature.items()
                if any(_is_chosen(leaf, [f"{path}/{name}"]) for leaf in self._steps)
            }
            names = [tuple_name(index) for index in range(len(children))]
            if names and sorted(children) == sorted(names):
                return {"type": "Tuple", "subspaces": [children[name] for name in names]}
            return {"type": "Dict", "subspaces": children}
        shape, dtype = _shape_of(feature), np.dtype(feature.np_dtype)
        if isinstance(feature, tfds.features.ClassLabel) and feature.num_classes:
            return {"type": "Discrete", "dtype": "int64", "start": 0, "n": feature.num_classes}
        if dtype.kind == "O" and shape == ():
            return self._texts.setdefault(path, _Texts()).space()
        if dtype.kind not in "biuf" or None in shape:
            raise ValueError(f"steps/{path}: Gymnasium has no space for {feature}")
        return box(dtype, shape)

    def examples(self, builder: Any, split: str) -> Iterator[dict[str, Any]]:
        """See `_Episodes`."""
        dataset = load(
            builder,
            split,
            fields=self._fields,
            episode_fields=self._episode_fields,
            decode=[path for path in self._steps if not self._keeps(path)],
        )
        yield from dataset.as_numpy_iterator()

    def episode(self, example: Mapping[str, Any], number: int) -> tuple[int, RawEpisode]:
        """See `_Episodes`."""
        steps = example[rlds.STEPS]
        transitions = len(steps[rlds.IS_FIRST]) - 1
        is_known = bool(example.get(rlds.FINAL_OBSERVATION_KNOWN, True))
        if not is_known and not self._drop:
            raise ValueError(
                f"episode {number}: the final observation is not known; Minari needs it. Leave out "
                f"the last transition of such episodes with unknown_final_observation={_DROP!r}"
            )
        if transitions < 1:
            raise ValueError(f"episode {number}: it has no transition that Minari could hold")
        terminations = np.array(steps[rlds.IS_TERMINAL][1:])
        terminations[-1] &= is_known
        truncations = np.zeros(transitions, bool)
        truncations[-1] = not terminations[-1]
        columns = {}
        for path, minari_path in self._paths.items():
            try:
                column = _column(_at(steps, path), self._steps[path], is_text=path in self._texts)
            except ValueError as error:
                raise ValueError(f"episode {number}, steps/{path}: {error}") from error
            if minari_path.split("/")[0] == ACTIONS:
                column = Column(column.kind, column.values[:-1])
            if path in self._texts:
                self._texts[path].add(column.values)
            columns[minari_path] = column
        columns[REWARDS] = Column("numbers", steps[rlds.REWARD][:-1])
        columns[TERMINATIONS] = Column("numbers", terminations)
        columns[TRUNCATIONS] = Column("numbers", truncations)
        attributes = {"id": number, "total_steps": transitions, **self._attributes(example)}
        empty = [] if any(path.startswith(f"{INFOS}/") for path in columns) else [INFOS]
        return number, RawEpisode(columns, attributes, empty)

    def _attributes(self, example: Mapping[str, Any]) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for path in self._others:
            *parents, name = path.split("/")
            target = attributes
            for parent in parents:
                target = target.setdefault(parent, {})
            target[name] = _text(_at(example, path))
        return {_EXAMPLE_KEY: attributes} if attributes else {}

    def metadata(self) -> dict[str, Any]:
        """See `_Episodes`."""
        described = {
            "jpeg_encoding": self._keeps_jpeg,
            **self._spaces_in_json(),
            "minari_version": _MINARI_VERSION,
            "description": self._info.description or "",
        }
        if self._info.metadata:
            described[_EXAMPLE_KEY] = dict(self._info.metadata)
        return described


class _Texts:
    """What the texts of a field have in common: their alphabet, and their longest."""

    def __init__(self) -> None:
        self._characters: set[str] = set()
        self._longest = 1

    def add(self, texts: np.ndarray) -> None:
        for text in texts:
            self._characters.update(text)
            self._longest = max(self._longest, len(text))

    def space(self) -> dict[str, Any]:
        """Returns the space that holds all of them."""
        return {
            "type": "Text",
            "max_length": self._longest,
            "min_length": 0,
            "charset": "".join(sorted(self._characters)) or string.ascii_letters,
        }


def _column(values: np.ndarray, feature: Any, *, is_text: bool = False) -> Column:
    """Returns a column of the dataset as one of Minari.

    Args:
      values: The values; images that stay files as they are.
      feature: The feature of one of them.
      is_text: Whether strings are text, even if the feature does not say so.

    Raises:
      ValueError: An image is not what the feature says; a text is not in UTF-8.
    """
    if values.dtype.kind != "O":
        return Column("numbers", values)
    if isinstance(feature, tfds.features.Image):
        for row, image in enumerate(values):
            shape = jpeg_shape(image)
            if shape != feature.shape[: len(shape)]:
                raise ValueError(f"step {row}: a JPEG image of shape {shape}, not {feature.shape}")
        return Column("jpeg", values)
    if isinstance(feature, tfds.features.Text) or is_text:
        texts = np.empty(len(values), object)
        texts[:] = [value.decode() for value in values]
        return Column("text", texts)
    return Column("bytes", values)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _spaces_of(metadata: Mapping[str, Any]) -> Spaces:
    leaves: dict[str, Leaf] = {}
    tuples: frozenset[str] = frozenset()
    for name, path in (("observation_space", OBSERVATIONS), ("action_space", ACTIONS)):
        if name in metadata:
            spaces = parse_space(metadata[name], path)
            leaves.update(spaces.leaves)
            tuples |= spaces.tuples
    return Spaces(leaves, tuples)


def _leaves(features: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, feature in features.items():
        here = f"{path}/{name}" if path else name
        if isinstance(feature, tfds.features.FeaturesDict):
            yield from _leaves(feature, here)
        else:
            yield here, feature


def _at(nest: Any, path: str) -> Any:
    for name in path.split("/"):
        nest = nest[name]
    return nest


def _is_chosen(path: str, wanted: Collection[str] | None) -> bool:
    return wanted is None or any(path == name or path.startswith(f"{name}/") for name in wanted)


def _is_array(feature: Any) -> bool:
    """Whether the values of a feature are arrays of one rank."""
    return not isinstance(feature, tfds.features.Sequence | tfds.features.Dataset) and isinstance(
        feature.get_tensor_info(), tfds.features.TensorInfo
    )


def _shape_of(feature: Any) -> Any:
    return None if feature is None or not _is_array(feature) else feature.shape


def _is_image(feature: Any) -> bool:
    """Whether Minari takes values for images, when their space is a `Box` of all of uint8."""
    shape = feature.shape
    return (
        np.dtype(feature.np_dtype) == np.uint8
        and len(shape) in (2, 3)
        and None not in shape
        and min(shape[:2]) >= SMALLEST_IMAGE
    )


def _is_jpeg(feature: Any) -> bool:
    return isinstance(feature, tfds.features.Image) and feature.encoding_format == "jpeg"


# --- Where it is written -------------------------------------------------------------------------


def _place(target: str | os.PathLike[str], recorded_id: str) -> tuple[pathlib.Path, str]:
    """Returns the directory of a dataset, and its identifier."""
    root, name = datasets_root(), os.fspath(target)
    if isinstance(target, str) and not name.startswith((".", "/")) and not os.path.isabs(name):
        if not _DATASET_ID.fullmatch(name):
            raise ValueError(
                f"{name!r} is no identifier of a dataset: <namespace>/<name>-v<number>"
            )
        return root / name, name
    directory = pathlib.Path(name).absolute()
    if not _DATASET_ID.fullmatch(directory.name):
        raise ValueError(f"{name!r} does not end with <name>-v<number>, as Minari needs it")
    if directory.is_relative_to(root.absolute()):
        return directory, directory.relative_to(root.absolute()).as_posix()
    is_recorded = directory.as_posix().endswith(f"/{recorded_id}") and recorded_id
    return directory, recorded_id if is_recorded else directory.name


@contextlib.contextmanager
def _draft(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory that takes the name of another one when it is complete, or goes away."""
    # A hidden name, so that Minari does not see it.
    draft = directory.with_name(f".{directory.name}.incomplete-{os.getpid()}")
    new_parents = [parent for parent in directory.parents if not parent.exists()]
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.rename(directory)
    except BaseException:
        shutil.rmtree(draft)
        with contextlib.suppress(OSError):  # Somebody else writes there by now.
            for parent in new_parents:
                parent.rmdir()
        raise


def _make_namespaces(directory: pathlib.Path) -> None:
    """Makes namespaces of the directories between Minari's root and a dataset, as it does."""
    root = datasets_root().absolute()
    if not directory.absolute().is_relative_to(root):
        return
    for parent in directory.absolute().parents:
        if parent == root:
            return
        file = parent / _NAMESPACE_FILE
        if not file.exists():
            file.write_text("{}")


def _size_in_megabytes(data: pathlib.Path) -> float:
    size = sum(path.stat().st_size for path in data.rglob("*"))
    return round(size / 1_000_000, 1)
