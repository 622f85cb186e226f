"""Unification of robot datasets for a mixture: common fields, image sizes and frame rates."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

import rlds
from rlds.feeds.resizing import resize
from rlds.feeds.roles import ACTION, STATE, Roles, as_vector, pad_vector
from rlds.feeds.table import Table
from rlds.feeds.views import ViewStorage
from rlds.robotics.registry import meaning_of
from rlds.sources.source import Fields, Lengths, Source
from rlds.sources.standardization import name_of
from rlds.sources.view import RowContext, View
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import nest, suggest_fields

__all__ = ["UniformFields", "unify"]

_STEPS = f"{rlds.STEPS}/"
_Path: TypeAlias = str | Sequence[str | None] | None
_IMAGE_RANK = 3
_MASK_SUFFIX = "_mask"


def unify(
    table: Table,
    like: Mapping[str, Any],
    fields: Mapping[str, _Path] | None = None,
    *,
    hz: float | None = None,
    to_hz: float | None = None,
    relative: Mapping[str, Sequence[bool]] | None = None,
) -> Table:
    """Returns a table with common fields, so that several datasets can be mixed.

    Vectors are padded with zeros, and images are resized; a field that the dataset lacks is zero,
    black or empty. `<field>_mask` is false for padding: it has a bool for each element of a vector,
    or one bool for another field.

    Args:
      table: The steps.
      like: The common fields, with their dtype and shape, such as `("float32", (14,))`; `bytes`
        for text.
      fields: The source fields of each common field: a path, or several paths, which are joined to
        a vector, with None for a zero element. None for a missing field. By default, the roles in
        `rlds.robotics`, by the last name of a path: a camera, "state", "action" or an instruction.
      hz: The frame rate in steps per second; if None, the rate in `rlds.robotics`.
      to_hz: The new frame rate: each new step is the old step that is nearest in time.
      relative: Masks of the relative elements of a field, which are changes until the next step. At
        another rate, these elements are summed, or divided among steps.

    Raises:
      KeyError: A field is missing, or the dataset is not registered.
      ValueError: A vector is too long, a field has another type, or the rate is unknown.

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
    targets = {path: _as_field(spec) for path, spec in like.items()}
    if fields is None or (to_hz is not None and hz is None):
        meaning = meaning_of(name_of(table.episodes.source), table.episodes.metadata)
        hz = meaning.control_hz if hz is None else hz
        fields = _fields_by_role(targets, Roles.of_dataset(meaning)) if fields is None else fields
    if to_hz is not None and hz is None:
        raise ValueError("hz: the rate of the dataset is unknown; pass its steps per second")
    ratio = 1.0 if to_hz is None or hz is None else hz / to_hz
    base_fields, lengths = table.storage.fields, table.storage.summaries
    view = UniformFields(table.source, base_fields, lengths, targets, fields, ratio, relative or {})
    storage = ViewStorage.over(view, view.columns, table.storage, view.value_options)
    uniform_table = table._with(storage=storage, fields=view.columns)
    no_rows = np.zeros(0, np.int64)
    uniform_table.take(no_rows, no_rows, list(view.columns))  # Raises if the fields do not fit.
    return uniform_table


def _as_field(spec: Any) -> Field:
    return Field(spec) if spec in (bytes, str) else Field(np.dtype(spec[0]), tuple(spec[1]))


def _fields_by_role(targets: Mapping[str, Field], roles: Roles) -> dict[str, Any]:
    sources: dict[str, Any] = {}
    for path, field in targets.items():
        name = path.rpartition("/")[2]
        role_fields = {**roles.images, STATE: roles.state or None, ACTION: roles.action}
        sources[path] = roles.language if field.is_text else role_fields.get(name)
    return sources


class UniformFields(View):
    """A view of the episodes of a dataset with common fields, at another frame rate.

    Args:
      base: The episodes, in one split.
      stored: The step fields of the base, by path, including those in memory.
      summaries: The numbers of steps and transitions of each episode.
      targets: The common fields of a step, by path.
      sources: The source fields of each common field, see `unify`.
      ratio: The number of base steps per step.
      relative: See `unify`.

    Attributes:
      columns: The fields of a step with their masks, by path.
      value_options: The options that determine the values, for the fingerprint.
    """

    def __init__(
        self,
        base: Source,
        base_fields: Mapping[str, Field],
        summaries: Lengths,
        targets: Mapping[str, Field],
        sources: Mapping[str, _Path],
        ratio: float,
        relative: Mapping[str, Sequence[bool]],
    ) -> None:
        super().__init__(base)
        self._base_fields, self._summaries = base_fields, summaries
        self._targets, self._ratio = targets, ratio
        self._sources = {
            path: [names] if isinstance(names, str) else list(names or [])
            for path, names in sources.items()
        }
        self._relative = {path: np.array(mask, np.bool_) for path, mask in relative.items()}
        for path in [p for names in self._sources.values() for p in names if p is not None]:
            if path not in base_fields:
                raise KeyError(f"no field {path!r}; {suggest_fields(path, base_fields)}")
        # Masks are constant over steps, except for texts.
        self._masks = {f"{path}{_MASK_SUFFIX}": self._mask(path) for path in targets}
        masks = {path: Field(np.bool_, mask.shape) for path, mask in self._masks.items()}
        self.columns: dict[str, Field] = {**targets, **masks}
        self.changed_paths = {_STEPS + path for path in self.columns}
        flags = {path: mask.tolist() for path, mask in self._relative.items()}
        self.value_options = self.columns, self._sources, ratio, flags
        self.decodes = [
            path
            for path, field in targets.items()
            if len(field.shape) == _IMAGE_RANK and self._sources.get(path)
        ]

    @property
    @override
    def fields(self) -> Fields:
        return super().fields.replace(steps=nest(self.columns), flags=())

    @property
    @override
    def base_paths(self) -> Mapping[str, str]:
        return {path: path for path in self.paths if not path.startswith(_STEPS)}

    def _find_nearest(self, steps: np.ndarray) -> np.ndarray:
        """Returns the base steps that are nearest in time."""
        return np.rint(steps * self._ratio).astype(np.int64)

    @override
    def base_steps(self, split: str, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        return np.minimum(self._find_nearest(steps), self._summaries.num_steps[episodes] - 1)

    @override
    def lengths(self, split: str, episodes: np.ndarray, lengths: Lengths) -> Lengths:
        base_steps, transitions, is_final_known = lengths
        length = np.floor((base_steps - 1) / self._ratio + 1e-9) + 1
        num_steps = np.where(base_steps > 0, length, 0).astype(np.int64)
        if not lengths.are_complete:
            return Lengths(num_steps)
        is_final = self._find_nearest(np.maximum(num_steps - 1, 0)) == base_steps - 1
        num_missing = base_steps - transitions
        return Lengths(num_steps, np.maximum(num_steps - num_missing, 0), is_final_known & is_final)

    def _mask(self, path: str) -> np.ndarray:
        """Returns the mask of the elements of a vector without padding, or of another field."""
        field, sources = self._targets[path], self._sources.get(path, [])
        if not _is_vector(field):
            return np.array(bool(sources))
        mask, has_value = np.zeros(int(field.shape[0] or 0), np.bool_), []
        for name in sources:
            size = 1 if name is None else math.prod(self._base_fields[name].shape)  # type: ignore[arg-type]
            has_value += [name is not None] * size
        mask[: len(has_value)] = has_value[: len(mask)]
        return mask

    @override
    def needs(self, fields: Collection[str]) -> set[str]:
        needed = {path for path in fields if not path.startswith(_STEPS)}
        for path in {path.removeprefix(_STEPS) for path in fields} & self._targets.keys():
            sources = self._sources.get(path, [])
            needed |= {_STEPS + name for name in sources if name is not None}
        return needed

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        new_values = {path: value for path, value in values.items() if not path.startswith(_STEPS)}
        for path in self.columns:
            if fields is None or _STEPS + path in fields:
                new_values[_STEPS + path] = self._column(path, values, rows)
        return new_values

    def _column(self, path: str, values: Mapping[str, Any], rows: RowContext) -> np.ndarray:
        """Returns the column of a field, or of a mask."""
        size = len(rows.steps)
        if path not in self._targets:
            field_path = path.removesuffix(_MASK_SUFFIX)
            if not self._targets[field_path].is_text:
                return np.repeat(self._masks[path][np.newaxis], size, axis=0)
            texts = rows.base_values(self.needs([_STEPS + field_path]), self.base_steps(*rows[:3]))
            text_column = self._column(field_path, texts, rows)
            return np.array([len(text) > 0 for text in text_column], np.bool_)
        field, sources = self._targets[path], self._sources.get(path)
        if field.is_text:
            return values[_STEPS + str(sources[0])] if sources else np.full(size, b"", object)
        if sources and not _is_vector(field):
            source = str(sources[0])
            return _resize_images(field, path, source, values[_STEPS + source])
        shape = tuple(int(n or 0) for n in field.shape)
        if not sources:
            return np.zeros((size, *shape), field.column_dtype)
        vectors = pad_vector(self._join_vectors(path, values, rows), shape[0], f"field {path!r}")
        return vectors.astype(field.column_dtype, copy=False)

    def _join_vectors(self, path: str, values: Mapping[str, Any], rows: RowContext) -> np.ndarray:
        """Returns a vector of joined fields; sums relative elements until the next step."""
        size, sources = len(rows.steps), self._sources[path]
        needed = [name for name in sources if name is not None]

        def join(values: Mapping[str, Any]) -> np.ndarray:
            columns = {name: values[_STEPS + name] for name in needed}
            vectors = as_vector(sources, columns, (size,))
            return vectors.reshape(size, math.prod(vectors.shape[1:]))

        vectors = join(values)
        mask = self._relative.get(path)
        if mask is None or self._ratio == 1.0:
            return vectors
        if mask.shape != vectors.shape[1:]:
            raise ValueError(
                f"relative: {path} has {vectors.shape[1]} elements, but its mask has {mask.size}"
            )
        if self._ratio < 1.0:
            return np.where(mask, vectors * self._ratio, vectors)
        step_starts, step_ends = self._find_nearest(rows.steps), self._find_nearest(rows.steps + 1)
        step_ends = np.minimum(step_ends, self._summaries.num_real_steps(rows.episodes))
        total = np.zeros(vectors.shape, np.float64)
        for offset in range(math.ceil(self._ratio) + 1):
            is_valid = step_starts + offset < step_ends
            steps = np.where(is_valid, step_starts + offset, step_starts)
            step_values = rows.base_values([_STEPS + name for name in needed], steps)
            total += join(step_values) * is_valid[:, np.newaxis]
        return np.where(mask, total, vectors)


def _resize_images(field: Field, path: str, source: str, images: np.ndarray) -> np.ndarray:
    """Resizes images to the shape of a field; other values of this shape stay unchanged.

    Raises:
      ValueError: The images have another shape or dtype.
    """
    shape = tuple(int(n or 0) for n in field.shape)
    if images.dtype == object:  # The images differ in size.
        resized = [resize(image, (shape[0], shape[1])) for image in images]
        images = np.stack(resized) if resized else np.zeros((0, *shape), field.column_dtype)
    elif len(shape) == _IMAGE_RANK and images.dtype == np.uint8:
        images = resize(images, (shape[0], shape[1]))
    if images.shape[1:] != shape or images.dtype != field.column_dtype:
        image_type = f"{images.dtype} of shape {images.shape[1:]}"
        raise ValueError(f"{path}: expected {field}, but {source} is {image_type}")
    return images


def _is_vector(field: Field) -> bool:
    return not field.is_text and len(field.shape) == 1
