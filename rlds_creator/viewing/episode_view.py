"""An episode as the pages show it, in the types of JSON: outline, steps, pictures, curves."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

import rlds
from envlogger.converters.fields import Field
from rlds_creator.viewing import pictures
from rlds_creator.viewing.pictures import Layout, Scale
from rlds_creator.viewing.steps import Steps
from rlds_creator.viewing.values import as_json, number_or_none, parsed
from rlds_tools.cameras import evenly

__all__ = ["EpisodeView"]

_MOST_POINTS = 5_000
_MOST_POINTS_OF_ALL = 500_000
# A vector with more elements is an array: nobody tells so many curves apart.
_MOST_CURVES = 512
# Of so many pictures the range of values is looked at.
_SAMPLES = 5
# What says how many steps there are in a second, in the metadata of datasets and episodes.
_RATES = ("fps", "control_frequency", "control_freq", "control_hz", "control_rate", "frequency_hz")
# What recordings of `rlds create` keep with each step: the picture that the player saw, and the
# inputs that led to it.
_INPUTS = ("keys", "inputs")


class EpisodeView:
    """An episode.

    Args:
      steps: Its steps.
      title: What it is called.
      about: The metadata of the dataset that it is of, where its rate may be found.
      previous: The address of the page of the episode before it.
      next: That of the one after it.
      cache_seconds: How long browsers may keep its pictures.
    """

    def __init__(
        self,
        steps: Steps,
        *,
        title: str = "",
        about: Mapping[str, Any] | None = None,
        previous: str | None = None,
        next: str | None = None,
        cache_seconds: int = 31_536_000,
    ) -> None:
        self.steps, self.title = steps, title
        self.previous, self.next = previous, next
        self.cache_seconds = cache_seconds
        self._about = about or {}
        self._lock = threading.Lock()
        self._kinds: dict[str, str] | None = None
        self._layouts: dict[str, Layout] = {}
        self._scales: dict[str, Scale | None] = {}

    @property
    def num_steps(self) -> int:
        """How many steps it has."""
        return self.steps.num_steps

    def _kind_of(self, path: str) -> str:
        """What a field is: see `outline`. Raises a KeyError if there is none."""
        with self._lock:
            if self._kinds is None:
                first = self.steps.step(0, self.steps.fields) if self.num_steps else {}
                self._kinds = {
                    path: self._find_kind(path, field, first.get(path))
                    for path, field in self.steps.fields.items()
                }
        if path not in self._kinds:
            raise KeyError(f"There is no field {path!r}.")
        return self._kinds[path]

    def _find_kind(self, path: str, field: Any, value: Any) -> str:
        layout = pictures.layout_of(field)
        if layout is None and pictures.is_file(value):
            layout = Layout("yxc")
        if layout is not None:
            self._layouts[path] = layout
            return "picture"
        if not isinstance(field, Field):
            return "array"
        if field.is_text:
            return "array" if field.shape else "text"
        if field.column_dtype.kind not in "biuf":
            return "array"
        if field.shape in ((), (1,)):
            return "flag" if field.column_dtype.kind == "b" else "number"
        is_vector = len(field.shape) == 1 and 1 < (field.shape[0] or 0) <= _MOST_CURVES
        return "vector" if is_vector else "array"

    def outline(self) -> dict[str, Any]:
        """Returns what there is.

        "fields" has the path, kind, dtype, shape and names of each field. The kind is "picture",
        "number", "vector", "array", "text" or "flag". "rewards" has one for each step, None where
        there is none, and "times" the seconds since the first step, if they were recorded. "fps" is
        how many steps there are in a second, if that is known. "shown" is the path of the picture
        that a player saw, if there is one.
        """
        fields = [self._described(path, field) for path, field in self.steps.fields.items()]
        times, fps = self._times()
        shown = "image" if self._is_recording() and self._kind_of("image") == "picture" else None
        return {
            "title": self.title,
            "num_steps": self.num_steps,
            "fps": fps,
            "fields": fields,
            "rewards": self._rewards(),
            "times": times,
            "metadata": {str(k): as_json(parsed(v)) for k, v in self.steps.metadata.items()},
            "previous": self.previous,
            "next": self.next,
            "shown": shown,
        }

    def _is_recording(self) -> bool:
        return {"image", "keys"} <= set(self.steps.fields)

    def _described(self, path: str, field: Any) -> dict[str, Any]:
        kind = self._kind_of(path)
        described: dict[str, Any] = {"path": path, "kind": kind, "dtype": "", "shape": []}
        described["names"] = []
        if isinstance(field, Field):
            described["dtype"] = "string" if field.is_text else str(field.column_dtype)
            described["shape"] = list(field.shape)
            described["names"] = list(field.names or ())
            described |= {"unit": field.unit or "", "doc": field.doc}
        if kind == "picture" and (scale := self._scale_of(path)) is not None:
            # Numbers from 0 to 1, or to 255, are shown as they are.
            described["scaled"] = [scale.low, scale.high]
        return described

    def _rewards(self) -> list[float | None]:
        none: list[float | None] = [None] * self.num_steps
        if self.steps.fields.get(rlds.REWARD) is None or self._kind_of(rlds.REWARD) != "number":
            return none
        last = self.num_steps - (0 if self.steps.has_last_action else 1)
        rewards = self.steps.column(rlds.REWARD, range(max(last, 0)))
        return [_number(value) for value in rewards] + none[max(last, 0) :]

    def _times(self) -> tuple[list[float] | None, float | None]:
        times = None
        if self._has_number("time"):
            column = [_number(value) for value in self.steps.column("time", range(self.num_steps))]
            if column and None not in column:
                begin = column[0]
                times = [round(time - begin, 4) for time in column]  # type: ignore[operator]
        if self._has_number("fps") and self.num_steps:  # 0 where the player set the pace.
            values = self.steps.column("fps", evenly(self.num_steps, _SAMPLES))
            return times, max((rate for value in values if (rate := _number(value))), default=None)
        return times, _rate_in(self.steps.metadata) or _rate_in(self._about)

    def _has_number(self, path: str) -> bool:
        return path in self.steps.fields and self._kind_of(path) == "number"

    def step(self, step: int) -> dict[str, Any]:
        """Returns the values of a step by their paths: {"step", "values"}.

        Arrays that are large, and pictures, are summaries. Texts that are JSON come parsed.

        Raises:
          IndexError: There is no such step.
        """
        self._check(step)
        values = self.steps.step(step, self.steps.fields)
        if self._is_recording():
            # They stand beside the action that they made.
            values |= dict.fromkeys(_INPUTS)
            if step + 1 < self.num_steps:
                values |= self.steps.step(step + 1, _INPUTS)
        shown = {path: self._shown(path, value) for path, value in values.items()}
        return {"step": step, "values": shown}

    def _shown(self, path: str, value: Any) -> Any:
        if path in self.steps.fields and self._kind_of(path) == "picture":
            if isinstance(value, bytes):
                return {"bytes": len(value), "type": pictures.media_type_of(value) or ""}
            array = np.asarray(value)
            return {"shape": list(array.shape), "dtype": str(array.dtype)}
        return as_json(parsed(value))

    def picture(self, step: int, path: str, side: int | None = None) -> tuple[bytes, str]:
        """Returns a picture of a step as a file, and its media type.

        Args:
          step: The step.
          path: A field of pictures.
          side: The longer side has no more pixels than that.

        Raises:
          IndexError: There is no such step.
          KeyError: There is no such field, or it has no pictures.
          ValueError: The picture is damaged.
        """
        self._check(step)
        if self._kind_of(path) != "picture":
            raise KeyError(f"The field {path!r} has no pictures.")
        value = self.steps.step(step, [path]).get(path)
        if value is None:
            raise KeyError(f"Step {step} has no picture {path!r}.")
        return pictures.picture_file(value, self._layouts[path], self._scale_of(path), side)

    def _scale_of(self, path: str) -> Scale | None:
        """How brightness is made of the values, the same in all steps; None for bytes."""
        field = self.steps.fields[path]
        if field.is_text or field.encoding or field.column_dtype in (np.uint8, np.bool_):
            return None
        if path not in self._scales:
            steps = evenly(self.num_steps, _SAMPLES)
            samples = [np.asarray(value) for value in self.steps.column(path, steps)]
            self._scales[path] = pictures.scale_of(samples)
        return self._scales[path]

    def series(self, path: str) -> dict[str, Any]:
        """Returns the values of a field of numbers over the steps: {"names", "series", "steps"}.

        There are at most 5,000 points in a curve, evenly chosen; "steps" has their steps. Elements
        of a vector have a curve each.

        Raises:
          KeyError: There is no such field, or it has no numbers.
        """
        kind = self._kind_of(path)
        if kind not in ("number", "vector", "flag"):
            raise KeyError(f"The field {path!r} has no numbers.")
        field = self.steps.fields[path]
        size = math.prod(field.shape)
        most = min(_MOST_POINTS, _MOST_POINTS_OF_ALL // size)
        steps = evenly(self.num_steps, most)
        rows = self.steps.column(path, steps)
        missing = np.full(size, np.nan)
        matrix = np.array(
            [missing if row is None else np.asarray(row, np.float64).reshape(-1) for row in rows]
        ).reshape(-1, size)
        names = list(field.names or ()) if kind == "vector" else [path]
        names = names if len(names) == size else [str(number) for number in range(size)]
        curves = [[number_or_none(value) for value in curve] for curve in matrix.T]
        return {"names": names, "series": curves, "steps": steps}

    def _check(self, step: int) -> None:
        if not 0 <= step < self.num_steps:
            raise IndexError(f"There are {self.num_steps} steps, from 0 on, and no step {step}.")


def _number(value: Any) -> float | None:
    """A number, of which all digits are kept; None if there is none."""
    if value is None:
        return None
    number = float(np.asarray(value).reshape(-1)[0])
    return number if math.isfinite(number) else None


def _rate_in(metadata: Any, depth: int = 0) -> float | None:
    """A number of steps in a second that metadata speaks of."""
    if isinstance(metadata, str):
        metadata = parsed(metadata)
    if not isinstance(metadata, Mapping) or depth > 3:
        return None
    for name in _RATES:
        value = metadata.get(name)
        if isinstance(value, int | float | np.number) and 0 < value < 1e6:
            return float(value)
    found = (_rate_in(value, depth + 1) for value in metadata.values())
    return next((rate for rate in found if rate is not None), None)
