"""Datasets with other fields, sizes and rates, as tables that can be mixed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from rlds.feeds.resizing import resize
from rlds.feeds.roles import ACTION, STATE, Roles, joined
from rlds.feeds.storage import Outlines, Rows, Storage, WrappedStorage, hash_of
from rlds.feeds.table import Table
from rlds.robotics.registry import meaning_of
from rlds.sources.standardized import name_of
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import fields_there_are

__all__ = ["unify"]

_Path: TypeAlias = str | Sequence[str | None] | None
_IMAGE_RANK = 3
_MASK = "_mask"


def unify(
    table: Table,
    like: Mapping[str, Any],
    fields: Mapping[str, _Path] | None = None,
    *,
    hz: float | None = None,
    to_hz: float | None = None,
    relative: Mapping[str, Sequence[bool]] | None = None,
) -> Table:
    """Returns a table with the fields that several datasets are to have, so that they can be mixed.

    Vectors get zeros at their end, and images their size; a field that the dataset does not have is
    zero, black or empty. `<field>_mask` is true where there is something: a bool for each element
    of a vector, and one for all else.

    Args:
      table: The steps.
      like: The fields, with the dtype and the shape of each, such as `("float32", (14,))`; `bytes`
        for text.
      fields: What they are made of: a field, or several that are joined to a vector, of which None
        is a zero. None for what the dataset does not have. Without it, what `rlds.robotics` knows:
        a field is a camera by the last part of its name, or "state", "action" or an instruction.
      hz: How many steps a second has; what `rlds.robotics` knows if None.
      to_hz: How many it shall have: each new step is the one that is nearest in time.
      relative: Which elements of a field say how something changes until the next step: they are
        added up, or divided among steps, if there are other steps.

    Raises:
      KeyError: A field is missing, or nothing is known of the dataset.
      ValueError: A vector is too long, a field has another kind, or the rate is not known.

    >>> import envlogger, tempfile, rlds.feeds
    >>> from envlogger.testing.catch_env import Catch
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> like = {"action": ("float32", (3,)), "text": bytes}
    >>> steps = unify(rlds.feeds.open(directory), like, {"action": "action"}, hz=10, to_hz=5)
    >>> {name: column[:2].tolist() for name, column in steps.read(0).items()}["action"]
    [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    >>> steps.num_steps, steps.read(0)["action_mask"][0].tolist(), steps.read(0)["text"][0]
    (5, [True, False, False], b'')
    """
    wanted = {path: _field(given) for path, given in like.items()}
    if fields is None or (to_hz is not None and hz is None):
        meaning = meaning_of(name_of(table.episodes.source), table.episodes.metadata)
        hz = meaning.control_hz if hz is None else hz
        fields = _known(wanted, Roles.of_dataset(meaning)) if fields is None else fields
    if to_hz is not None and hz is None:
        raise ValueError("hz: the rate of the dataset is unknown; pass its steps per second")
    ratio = 1.0 if to_hz is None or hz is None else hz / to_hz
    storage = _UnifiedStorage(table.storage, wanted, fields, ratio, relative or {})
    return table._with(storage=storage, fields=storage.fields)


def _field(given: Any) -> Field:
    return Field(given) if given in (bytes, str) else Field(np.dtype(given[0]), tuple(given[1]))


def _known(wanted: Mapping[str, Field], roles: Roles) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, field in wanted.items():
        name = path.rpartition("/")[2]
        of_robot = {**roles.images, STATE: roles.state or None, ACTION: roles.action}
        found[path] = roles.language if field.is_text else of_robot.get(name)
    return found


class _UnifiedStorage(WrappedStorage):
    """The fields of another storage under other names, in other sizes, at another rate."""

    def __init__(
        self,
        storage: Storage,
        wanted: Mapping[str, Field],
        made_of: Mapping[str, _Path],
        ratio: float,
        relative: Mapping[str, Sequence[bool]],
    ) -> None:
        super().__init__(storage)
        self.wanted, self.ratio = wanted, ratio
        self.parts = {
            path: [of] if isinstance(of, str) else list(of or []) for path, of in made_of.items()
        }
        self.relative = {path: np.array(mask, np.bool_) for path, mask in relative.items()}
        self.opening = _UnifiedStorage, (storage, wanted, made_of, ratio, relative)
        for path in [p for of in self.parts.values() for p in of if p is not None]:
            if path not in storage.fields:
                raise KeyError(f"no field {path!r}; {fields_there_are(path, storage.fields)}")
        self.fields = dict(wanted)
        for path, field in wanted.items():
            self.fields[f"{path}{_MASK}"] = Field(
                np.bool_, field.shape if _is_vector(field) else ()
            )
        self.outlines = self._outlines(storage.outlines)
        self.rows(np.zeros(0, np.int64), np.zeros(0, np.int64), list(self.fields)).take_all()

    def _outlines(self, before: Outlines) -> Outlines:
        lengths = np.where(
            before.num_steps > 0, np.floor((before.num_steps - 1) / self.ratio + 1e-9) + 1, 0
        ).astype(np.int64)
        missing = before.num_steps - before.num_transitions
        is_final = self.places(np.maximum(lengths - 1, 0)) == before.num_steps - 1
        known = before.final_observation_known & is_final
        return Outlines(lengths, np.maximum(lengths - missing, 0), known)

    def places(self, steps: np.ndarray) -> np.ndarray:
        """The steps of the other storage that are nearest in time."""
        return np.rint(steps * self.ratio).astype(np.int64)

    @override
    def __reduce__(self) -> Any:
        return self.opening

    @override
    def made_of(self, path: str) -> Sequence[str]:
        return [part for part in self.parts.get(path, ()) if part is not None]

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> _UnifiedRows:
        lasts = self.storage.outlines.num_steps[episodes] - 1
        places = np.minimum(self.places(steps), lasts)
        others = self.storage.rows(episodes, places, self.needed(paths))
        return _UnifiedRows(self, others, episodes, steps)

    @override
    def read_ahead(
        self, episodes: np.ndarray, firsts: np.ndarray, lasts: np.ndarray, paths: Sequence[str]
    ) -> None:
        ends = self.storage.outlines.num_steps[episodes] - 1
        begins, last = self.places(firsts), np.minimum(self.places(lasts), ends)
        super().read_ahead(episodes, begins, last, paths)

    @override
    def is_image(self, path: str) -> bool:
        return len(self.fields[path].shape) == _IMAGE_RANK and bool(self.parts.get(path))

    @override
    def fingerprint(self) -> str:
        relative = {path: mask.tolist() for path, mask in self.relative.items()}
        return hash_of(self.storage.fingerprint(), self.fields, self.parts, self.ratio, relative)


class _UnifiedRows(Rows):
    def __init__(
        self, storage: _UnifiedStorage, others: Rows, episodes: np.ndarray, steps: np.ndarray
    ) -> None:
        self._storage, self._others = storage, others
        self._episodes, self._steps = episodes, steps

    @override
    def at(self, steps: np.ndarray) -> Rows:
        lasts = self._storage.storage.outlines.num_steps[self._episodes] - 1
        others = self._others.at(np.minimum(self._storage.places(steps), lasts))
        return _UnifiedRows(self._storage, others, self._episodes, steps)

    def take_all(self) -> None:
        """Raises for what does not fit."""
        for path in self._storage.fields:
            self.take(path)

    @override
    def take(self, path: str) -> np.ndarray:
        made_of, size = self._storage.parts, len(self._steps)
        is_mask = path not in self._storage.wanted
        path = path.removesuffix(_MASK) if is_mask else path
        field, parts = self._storage.wanted[path], made_of.get(path, [])
        if field.is_text:
            if is_mask:
                return np.array([len(text) > 0 for text in self.take(path)], np.bool_)
            empty = np.empty(size, object)
            empty[:] = b""
            return self._others.take(str(parts[0])) if parts else empty
        if not _is_vector(field):
            if is_mask:
                return np.full(size, bool(parts))
            return self._image(path, parts, field)
        width = int(field.shape[0] or 0)
        if is_mask:
            there = [part is not None for part in parts for _ in range(self._width(part))]
            return np.tile(np.array([*there, *[False] * (width - len(there))], np.bool_), (size, 1))
        if not parts:
            return np.zeros((size, width), field.column_dtype)
        vectors = self._vectors(path, parts)
        if vectors.shape[1] > width:
            raise ValueError(
                f"{path} would have {vectors.shape[1]} elements, expected {width} at most"
            )
        made = np.zeros((size, width), field.column_dtype)
        made[:, : vectors.shape[1]] = vectors
        return made

    def _width(self, part: str | None) -> int:
        return 1 if part is None else math.prod(self._storage.storage.fields[part].shape)  # type: ignore[arg-type]

    def _vectors(self, path: str, parts: Sequence[str | None]) -> np.ndarray:
        """The parts of a vector, joined; what is relative, added up until the next step."""

        def taken(rows: Rows, size: int) -> np.ndarray:
            columns = {part: rows.take(part) for part in parts if part is not None}
            found = joined(parts, columns, (size,))
            return found.reshape(size, math.prod(found.shape[1:]))

        storage, size = self._storage, len(self._steps)
        vectors = taken(self._others, size)
        mask = storage.relative.get(path)
        if mask is None or storage.ratio == 1.0:
            return vectors
        if mask.shape != vectors.shape[1:]:
            raise ValueError(
                f"relative: {path} has {vectors.shape[1]} elements, but its mask has {mask.size}"
            )
        if storage.ratio < 1.0:
            return np.where(mask, vectors * storage.ratio, vectors)
        begins, ends = storage.places(self._steps), storage.places(self._steps + 1)
        ends = np.minimum(ends, storage.storage.outlines.num_real_steps(self._episodes))
        total = np.zeros(vectors.shape, np.float64)
        for ahead in range(math.ceil(storage.ratio) + 1):
            is_there = begins + ahead < ends
            places = np.where(is_there, begins + ahead, begins)
            total += taken(self._others.at(places), size) * is_there[:, np.newaxis]
        return np.where(mask, total, vectors)

    def _image(self, path: str, parts: Sequence[str | None], field: Field) -> np.ndarray:
        shape = tuple(int(n or 0) for n in field.shape)
        if not parts:
            return np.zeros((len(self._steps), *shape), field.column_dtype)
        images = self._others.take(str(parts[0]))
        if images.dtype == object:  # They differ in size.
            made = [resize(image, (shape[0], shape[1])) for image in images]
            images = np.stack(made) if made else np.zeros((0, *shape), field.column_dtype)
        elif len(shape) == _IMAGE_RANK and images.dtype == np.uint8:
            images = resize(images, (shape[0], shape[1]))
        if images.shape[1:] != shape or images.dtype != field.column_dtype:
            what = f"{images.dtype} of shape {images.shape[1:]}"
            raise ValueError(f"{path}: expected {field}, but {parts[0]} is {what}")
        return images


def _is_vector(field: Field) -> bool:
    return not field.is_text and len(field.shape) == 1
