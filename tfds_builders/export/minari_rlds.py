"""Episodes of any RLDS dataset as Minari keeps them."""

from __future__ import annotations

import json
import string
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

import rlds
from rlds.sources.minari.spaces import SMALLEST_IMAGE, box, tuple_name
from rlds.sources.minari.storage import (
    ACTIONS,
    INFOS,
    OBSERVATIONS,
    REWARDS,
    TERMINATIONS,
    TRUNCATIONS,
    Column,
    RawEpisode,
)
from rlds.sources.nests import at
from rlds.tfds import load
from tfds_builders.export.minari_recorded import Episodes, as_column, is_jpeg, leaves, spaces_of

__all__ = ["DROP", "RldsEpisodes"]

# The version of Minari whose files are written: the first that says whether images are JPEG.
_MINARI_VERSION = "0.5.4"
_EXAMPLE_KEY = "rlds"
# The argument of export_minari that leaves out transitions without a next observation.
DROP = "drop_last_transition"


class RldsEpisodes(Episodes):
    """Episodes of any RLDS dataset."""

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
        self._fields = fields if fields is None else [*fields, *rlds.STEP_FLAGS]
        self._episode_fields = episode_fields
        if episode_fields is not None and rlds.FINAL_OBSERVATION_KNOWN in features:
            self._episode_fields = [*episode_fields, rlds.FINAL_OBSERVATION_KNOWN]
        self._steps = {
            path: feature
            for path, feature in leaves(features[rlds.STEPS].feature)
            if _is_chosen(path, self._fields)
        }
        self._others = {
            path: feature
            for path, feature in leaves(features)
            if path != rlds.STEPS and _is_chosen(path, self._episode_fields)
        }
        self._texts: dict[str, _Texts] = {}
        self._check_features()
        self._paths = self._minari_paths()
        self._keeps_jpeg = self._can_keep_jpeg()
        self.spaces = spaces_of(self._spaces_in_json())

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
            elif field not in (rlds.REWARD, *rlds.STEP_FLAGS):
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
            is_jpeg(feature) and feature.shape[2] == 3 for feature in images
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
        """See `Episodes`."""
        dataset = load(
            builder,
            split,
            fields=self._fields,
            episode_fields=self._episode_fields,
            decode=[path for path in self._steps if not self._keeps(path)],
        )
        yield from dataset.as_numpy_iterator()

    def episode(self, example: Mapping[str, Any], number: int) -> tuple[int, RawEpisode]:
        """See `Episodes`."""
        steps = example[rlds.STEPS]
        transitions = len(steps[rlds.IS_FIRST]) - 1
        is_known = bool(example.get(rlds.FINAL_OBSERVATION_KNOWN, True))
        if not is_known and not self._drop:
            raise ValueError(
                f"episode {number}: the final observation is not known; Minari needs it. Leave out "
                f"the last transition of such episodes with unknown_final_observation={DROP!r}"
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
                column = as_column(at(steps, path), self._steps[path], is_text=path in self._texts)
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
            target[name] = _text(at(example, path))
        return {_EXAMPLE_KEY: attributes} if attributes else {}

    def metadata(self) -> dict[str, Any]:
        """See `Episodes`."""
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


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


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
