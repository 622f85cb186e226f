"""Episodes of any source as Minari keeps them."""

from __future__ import annotations

import dataclasses
import json
import string
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

import rlds
from rlds.formats.minari.recorded_export import (
    MinariEpisodes,
    as_column,
    features_of,
    is_text,
    spaces_of,
)
from rlds.formats.minari.source import field_path
from rlds.formats.minari.spaces import SMALLEST_IMAGE, box, tuple_name
from rlds.formats.minari.storage import (
    ACTIONS,
    INFOS,
    OBSERVATIONS,
    REWARDS,
    TERMINATIONS,
    TRUNCATIONS,
    Column,
    RawEpisode,
)
from rlds.formats.tfds.source import FolderSource
from rlds.sources.aside import Aside
from rlds.sources.episode_fields import fields_of
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import Placement, kept_aside, without_transitions
from rlds.sources.source import Outline, SourceEpisode
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import at, is_in, leaves_at, nest, put, root_of

__all__ = ["RldsEpisodes"]

# The version of Minari whose files are written: the first that says whether images are JPEG.
_MINARI_VERSION = "0.5.4"
_EXAMPLE_KEY = "rlds"
# HDF5 has no place for attributes that are larger.
_ATTRIBUTE_BYTES = 60_000


class RldsEpisodes(MinariEpisodes):
    """Episodes of any source."""

    _GROUPS: ClassVar[dict[str, str]] = {rlds.OBSERVATION: OBSERVATIONS, rlds.ACTION: ACTIONS}

    def __init__(
        self,
        episodes: Episodes,
        fields: Collection[str] | None,
        episode_fields: Collection[str] | None,
        *,
        drop: bool,
    ) -> None:
        self.recorded = {}
        self._source, self._drop = episodes.source, drop
        self.is_exact = fields is None and episode_fields is None
        spec = episodes.spec
        steps = spec.pop(rlds.STEPS)
        if isinstance(self._source, FolderSource):  # Which may not say all that is known of others.
            spec = {
                name: field for name, field in spec.items() if name in self._source.folder.features
            }
        self._steps = _chosen(steps, None if fields is None else [*fields, *rlds.STEP_FLAGS])
        self._others = _chosen(spec, episode_fields)
        features = features_of(episodes.source)
        self._classes = {path: it.num_classes for path, it in features.items() if it.num_classes}
        self._are_texts = {path for path, it in features.items() if is_text(it)}
        self._texts: dict[str, _Texts] = {}
        self._check_fields()
        self._paths = self._minari_paths()
        self._keeps_jpeg = self._can_keep_jpeg()
        self.spaces = spaces_of(self._spaces_in_json(steps))
        if self.is_exact:
            self.aside = self._made_aside(episodes)

    def _made_aside(self, episodes: Episodes) -> Aside:
        """What comes back from Minari is taken from there; it has no row for final actions."""
        places = {path: field_path(there) for path, there in self._paths.items()}
        if rlds.REWARD in self._steps:
            places[rlds.REWARD] = rlds.REWARD
        whole = [
            path for path, there in self._paths.items() if root_of(there) in (OBSERVATIONS, INFOS)
        ]
        return Aside.of(episodes, places, whole, cuts_last=self._drop)

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        places = {f"{rlds.STEPS}/{path}": there for path, there in self._paths.items()}
        if rlds.REWARD in self._steps:
            places[f"{rlds.STEPS}/{rlds.REWARD}"] = REWARDS
        attributes = f"attributes of the episode, {_EXAMPLE_KEY}"
        places |= {path: attributes for path in self._others if self._is_attribute(path)}
        if self.aside is None:  # Of what was not chosen, there is nothing to say.
            return [Placement(path, place, "exact") for path, place in places.items()]
        why = {path: f"Minari has no place for {field}" for path, field in self._unfit.items()}
        if self._drop:
            cut = "the last transition is aside where no final observation is known"
            why |= {path: cut for path in self.aside.places if path not in self.aside.whole}
        found = [
            dataclasses.replace(place, place=places.get(place.field, ""))
            for place in kept_aside(self.aside, why)
        ]
        if rlds.REWARD not in self._steps:
            no_reward = "there are no rewards; Minari gets zeros"
            found.append(Placement(f"{rlds.STEPS}/{rlds.REWARD}", REWARDS, "aside", no_reward))
        return found

    def _is_attribute(self, path: str) -> bool:
        """Whether a field of an episode is an attribute; images and lists of texts can be aside."""
        field = self._others[path]
        is_plain = not field.encoding and (not field.is_text or field.shape == ())
        return is_plain or not self.is_exact

    def _check_fields(self) -> None:
        self._unfit = {path: it for path, it in self._steps.items() if not _fits(path, it)}
        if self.is_exact:  # They are kept aside.
            for path in self._unfit:
                others = self._steps.keys() - self._unfit.keys()
                if root_of(path) not in self._GROUPS or root_of(path) in map(root_of, others):
                    del self._steps[path]
        for name in (rlds.OBSERVATION, rlds.ACTION):
            if not any(is_in(path, name) for path in self._steps):
                raise ValueError(f"the steps have no {name!r}, without which Minari has no episode")
        reward = self._steps.get(rlds.REWARD)
        has_parts = any(is_in(path, rlds.REWARD) for path in self._steps) and reward is None
        if has_parts or (reward is not None and _shape_of(reward) != ()):
            raise ValueError(f"the reward is {reward or 'in parts'}, expected a number")
        for path in self._steps.keys() & self._unfit.keys():
            raise ValueError(
                f"steps/{path}: Minari cannot hold {self._unfit[path]}; leave it out with `fields`"
            )
        for path, field in self._others.items():
            if not isinstance(field, Field) or (field.encoding and not self.is_exact):
                raise ValueError(
                    f"{path}: Minari cannot hold {field} as an attribute of an episode; leave "
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
            field
            for path, field in self._steps.items()
            if root_of(path) in self._GROUPS and _is_image(field)
        ]
        return bool(images) and all(
            field.encoding == "jpeg" and field.shape[2:] == (3,) for field in images
        )

    def _spaces_in_json(self, steps: Mapping[str, Any]) -> dict[str, str]:
        steps = nest(dict(leaves_at(steps, None)))  # Names of spaces have no slashes.
        return {
            f"{name}_space": json.dumps(self._space(steps[name], name))
            for name in (rlds.OBSERVATION, rlds.ACTION)
        }

    def _space(self, field: Any, path: str) -> dict[str, Any]:
        if isinstance(field, Mapping):
            children = {
                name: self._space(child, f"{path}/{name}")
                for name, child in field.items()
                if any(is_in(leaf, f"{path}/{name}") for leaf in self._steps)
            }
            names = [tuple_name(index) for index in range(len(children))]
            if names and sorted(children) == sorted(names):
                return {"type": "Tuple", "subspaces": [children[name] for name in names]}
            return {"type": "Dict", "subspaces": children}
        if path in self._classes:
            return {"type": "Discrete", "dtype": "int64", "start": 0, "n": self._classes[path]}
        field = self._steps.get(path, field)  # A source may declare nothing but a dtype.
        if field.is_text and not field.encoding and field.shape == ():
            return self._texts.setdefault(path, _Texts()).space()
        return box(field.column_dtype, field.shape)

    def objection(self, outline: Outline) -> str:
        """See `Export`."""
        if not outline.final_observation_known and not self._drop:
            return (
                "the final observation is not known; Minari needs it. Leave out the last "
                "transition of such episodes with unknown_final_observation='drop_last_transition' "
                "(--to-option on the command line)"
            )
        return without_transitions(outline.num_steps - 1, "Minari")

    def episode(self, episode: SourceEpisode, number: int) -> tuple[int, RawEpisode]:
        """See `MinariEpisodes`."""
        steps, transitions = episode.steps, episode.num_steps - 1
        is_known = episode.final_observation_known
        terminations = np.array(steps[rlds.IS_TERMINAL][1:])
        terminations[-1] &= is_known
        truncations = np.zeros(transitions, bool)
        truncations[-1] = not terminations[-1]
        columns = {}
        for path, minari_path in self._paths.items():
            in_space = root_of(path) in self._GROUPS
            try:
                column = as_column(
                    at(steps, path),
                    self._steps[path],
                    is_text=path in self._texts or path in self._are_texts,
                    keeps_jpeg=self._keeps_jpeg and in_space and _is_image(self._steps[path]),
                )
            except ValueError as error:
                raise ValueError(f"episode {number}, steps/{path}: {error}") from error
            if root_of(minari_path) == ACTIONS:
                column = Column(column.kind, column.values[:-1])
            if path in self._texts:
                self._texts[path].add(column.values)
            columns[minari_path] = column
        rewards = steps.get(rlds.REWARD, np.zeros(transitions + 1, np.float32))
        columns[REWARDS] = Column("numbers", rewards[:-1])
        columns[TERMINATIONS] = Column("numbers", terminations)
        columns[TRUNCATIONS] = Column("numbers", truncations)
        attributes = {"id": number, "total_steps": transitions, **self._attributes(episode)}
        empty = [] if any(path.startswith(f"{INFOS}/") for path in columns) else [INFOS]
        return number, RawEpisode(columns, attributes, empty)

    def _attributes(self, episode: SourceEpisode) -> dict[str, Any]:
        fields, attributes = fields_of(episode), dict[str, Any]()
        for path in filter(self._is_attribute, self._others):
            value = at(fields, path)
            try:
                value = value.decode() if isinstance(value, bytes) else value
            except UnicodeDecodeError as error:
                if self.aside is None:
                    raise ValueError(
                        f"{path}: no text; leave it out with `episode_fields`"
                    ) from error
                continue
            if self.aside is None or np.asarray(value).nbytes <= _ATTRIBUTE_BYTES:
                put(attributes, path, value)
        return {_EXAMPLE_KEY: attributes} if attributes else {}

    def metadata(self) -> dict[str, Any]:
        """See `MinariEpisodes`."""
        described = {
            "jpeg_encoding": self._keeps_jpeg,
            **self._spaces_in_json(self._source.step_fields()),
            "minari_version": _MINARI_VERSION,
            "description": self._source.description,
        }
        if metadata := self._source.metadata():
            described[_EXAMPLE_KEY] = dict(metadata)
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


def _chosen(fields: Mapping[str, Any], wanted: Collection[str] | None) -> dict[str, Any]:
    """The fields at some paths, or below them."""
    return {
        path: field
        for path, field in leaves_at(fields, None)
        if wanted is None or any(is_in(path, name) for name in wanted)
    }


def _fits(path: str, field: Any) -> bool:
    """Whether Minari has a place for a field of steps: a space has numbers, or a text."""
    if not isinstance(field, Field) or None in field.shape:
        return False
    in_space = root_of(path) in (rlds.OBSERVATION, rlds.ACTION)
    is_text = field.is_text and not field.encoding
    return not in_space or (field.shape == () if is_text else field.column_dtype.kind in "biuf")


def _shape_of(field: Any) -> tuple[int | None, ...] | None:
    """The shape of values; None if they are not arrays of one shape."""
    return field.shape if isinstance(field, Field) and None not in field.shape else None


def _is_image(field: Field) -> bool:
    """Whether Minari takes values for images, when their space is a `Box` of all of uint8."""
    shape = field.shape
    if field.column_dtype != np.uint8 or len(shape) not in (2, 3) or None in shape:
        return False
    return min(size or 0 for size in shape[:2]) >= SMALLEST_IMAGE
