"""The data of an episode for its page: summary, steps, pictures, curves and video."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import rlds
import tfds_files
from rlds.sources.cameras import evenly
from rlds.sources.rates import rate_in
from rlds.sources.texts import is_instruction
from rlds.video.encoding import BrowserVideoWriter
from rlds_creator.recorded import FPS, IMAGE, INPUTS, KEYS, TIME
from rlds_creator.viewing import pictures
from rlds_creator.viewing.pictures import Scale
from rlds_creator.viewing.steps import EpisodeSteps, num_curves
from rlds_creator.viewing.values import as_json, finite_or_none
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.json_values import parsed
from rlds_ecosystem.model.nests import leaves_at

__all__ = ["ViewedEpisode"]

# The maximum total number of points of the curves of a vector.
_MAX_TOTAL_POINTS = 500_000
# The number of pictures from which the range of values is estimated.
_NUM_SAMPLES = 5
# The time in seconds for which a summary waits for rewards; long logs take longer.
_REWARDS_TIMEOUT_S = 0.3
# The fields of the inputs of a step in recordings of `rlds create`.
_INPUT_FIELDS = (KEYS, INPUTS)
# The longer side of a thumbnail, and of a picture in a video.
_THUMBNAIL_SIDE, _FRAME_SIDE = 160, 1024
# The height of pictures side by side.
_STRIP_HEIGHT = 72
# The minimum height of videos: small pictures lose their colors in H.264.
_MIN_HEIGHT = 240
# The maximum number of frames of a video, as the server encodes one video at a time.
_MAX_FRAMES = 36_000
# The field of the time of a step, in recordings of robots.
_TIMESTAMP = "timestamp"
# The assumed steps per second if unknown, as on the page.
_DEFAULT_RATE = 15.0


@dataclasses.dataclass(eq=False)
class ViewedEpisode:
    """The view of an episode.

    Attributes:
      steps: The steps.
      title: The title of the page.
      dataset_metadata: The metadata of the dataset, which may have the frame rate.
      base_url: The URL of the data, which changes with the data; None for the URL of the summary.
      cache_seconds: The time for which browsers may cache pictures.
    """

    steps: EpisodeSteps
    title: str = ""
    dataset_metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    base_url: str | None = None
    cache_seconds: int = 31_536_000

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, str] | None = None
        self._layouts: dict[str, str] = {}
        self._scales: dict[str, Scale | None] = {}

    @property
    def num_steps(self) -> int:
        """The number of steps."""
        return self.steps.num_steps

    def _kind_of(self, path: str) -> str:
        """Returns the kind of a field, see `summary`. Raises a KeyError for an unknown field."""
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
        is_ragged = isinstance(value, tfds_files.RaggedColumn)
        layout = None if is_ragged else pictures.layout_of(field)
        if layout is None and pictures.media_type_of(value):
            layout = "yxc"
        if layout is not None:
            self._layouts[path] = layout
            return "picture"
        if not isinstance(field, Field):
            return "array"
        if field.is_text:
            return "array" if field.shape else "text"
        curves = num_curves(field)
        if curves != 1:
            return "vector" if curves else "array"
        return "flag" if field.column_dtype.kind == "b" else "number"

    def summary(self, seconds: float = _REWARDS_TIMEOUT_S) -> dict[str, Any]:
        """Returns the metadata and the fields of the episode.

        "base" is the URL of the data; None for the URL of the summary. "fields" has the path, kind,
        dtype, shape and names of each field. The kind is "picture", "number", "vector", "array",
        "text" or "flag". "rewards" has the reward of each step or None, and "times" the recorded
        seconds since the first step. "fps" is the number of steps per second, or None. "shown" is
        the path of the picture that the player saw, or None. "instruction" is the text of the task,
        and "instruction_path" the field of the steps that has it, or None.

        The rewards of a long log are read in several calls. Until then, "is_complete" is false, and
        only some evenly spaced steps have rewards.

        Args:
          seconds: The time limit for rewards.
        """
        fields = [self._describe_field(path) for path in self._sorted_paths()]
        rewards, is_complete = self._read_rewards(seconds)
        return {
            "title": self.title,
            "base": self.base_url,
            "num_steps": self.num_steps,
            "fps": self._find_fps(),
            "fields": fields,
            "rewards": rewards,
            "is_complete": is_complete,
            "times": self._read_times(),
            "metadata": {str(k): as_json(parsed(v)) for k, v in self.steps.metadata.items()},
            "shown": IMAGE if self._shows_image() else None,
            **self._find_instruction(),
        }

    def _find_instruction(self) -> dict[str, str | None]:
        texts = dict(leaves_at(self.steps.metadata, None))
        candidates: list[tuple[str | None, Any]]
        candidates = [(None, texts[path]) for path in texts if is_instruction(path)]
        for field in self._sorted_paths():
            if is_instruction(field) and self.num_steps and self._kind_of(field) == "text":
                candidates.append((field, self.steps.step(0, [field]).get(field)))
        for path, value in candidates:
            text = as_json(value)
            if isinstance(text, str) and text.strip():
                return {"instruction": text, "instruction_path": path}
        return {"instruction": None, "instruction_path": None}

    def _shows_image(self) -> bool:
        return self._is_recording() and self._kind_of(IMAGE) == "picture"

    def _is_recording(self) -> bool:
        return {IMAGE, KEYS} <= set(self.steps.fields)

    def _sorted_paths(self) -> list[str]:
        """Returns the paths of all fields: observation, action and reward first, flags last."""
        return sorted(self.steps.fields, key=_field_order)

    def _describe_field(self, path: str) -> dict[str, Any]:
        field, kind = self.steps.fields[path], self._kind_of(path)
        description: dict[str, Any] = {"path": path, "kind": kind, "dtype": ""}
        description |= {"shape": [], "names": []}
        if isinstance(field, Field):
            description["dtype"] = "string" if field.is_text else str(field.column_dtype)
            description |= {"shape": list(field.shape), "names": list(field.names or ())}
            description |= {"unit": field.unit or "", "doc": field.doc}
        if kind == "picture" and (scale := self._scale_of(path)) is not None:
            description["scaled"] = [scale.low, scale.high]
        return description

    def _read_rewards(self, seconds: float) -> tuple[list[float | None], bool]:
        if not self._has_number(rlds.REWARD):
            return [None] * self.num_steps, True
        rewards, is_complete = self.steps.scalars(rlds.REWARD, seconds)
        if not self.steps.has_last_action:
            rewards[-1:] = np.nan
        return [finite_or_none(reward) for reward in rewards.tolist()], is_complete

    def _read_times(self) -> list[float] | None:
        timestamp, path, units_per_second = self.steps.fields.get(_TIMESTAMP), TIME, 1.0
        if isinstance(timestamp, Field) and timestamp.unit == "ns" and not self._has_number(TIME):
            path, units_per_second = _TIMESTAMP, 1e9
        if not self._has_number(path):
            return None
        times = self.steps.scalars(path, 0)[0] / units_per_second
        timed_steps = np.flatnonzero(np.isfinite(times))
        if not len(timed_steps) or timed_steps[0] != 0:
            return None
        times = np.interp(np.arange(len(times)), timed_steps, times[timed_steps] - times[0])
        return [round(seconds, 4) for seconds in times.tolist()]

    def _find_fps(self) -> float | None:
        if self._has_number(FPS):  # A rate of 0 means no real time.
            rates = map(float, self.steps.samples(FPS, _NUM_SAMPLES))
            return max((rate for rate in rates if 0 < rate < math.inf), default=None)
        return rate_in(self.steps.metadata) or rate_in(self.dataset_metadata)

    def _has_number(self, path: str) -> bool:
        """True if the field at a path is numeric."""
        return self.num_steps > 0 and path in self.steps.fields and self._kind_of(path) == "number"

    def step(self, step: int) -> dict[str, Any]:
        """Returns the values of a step by their paths: {"step", "values"}.

        Large arrays and pictures become summaries. JSON texts are parsed.

        Raises:
          IndexError: The step does not exist.
        """
        self._check_step(step)
        values = self.steps.step(step, self.steps.fields)
        values = {path: values[path] for path in self._sorted_paths() if path in values}
        if self._is_recording():
            # Inputs are recorded with the next step, but shown with their action.
            values |= dict.fromkeys(_INPUT_FIELDS)
            if step + 1 < self.num_steps:
                values |= self.steps.step(step + 1, _INPUT_FIELDS)
        descriptions = {path: self._describe_value(path, value) for path, value in values.items()}
        return {"step": step, "values": descriptions}

    def _describe_value(self, path: str, value: Any) -> Any:
        if path in self.steps.fields and self._kind_of(path) == "picture":
            if isinstance(value, bytes):
                return {"bytes": len(value), "type": pictures.media_type_of(value) or ""}
            if value is None:
                return None
            array = np.asarray(value)
            return {"shape": list(array.shape), "dtype": str(array.dtype)}
        return as_json(parsed(value))

    def picture(self, step: int, path: str, side: int | None = None) -> tuple[bytes, str]:
        """Returns a picture of a step as a file, and its media type.

        Args:
          step: The step.
          path: The path of a picture field.
          side: The maximum number of pixels of the longer side.

        Raises:
          IndexError: The step does not exist.
          KeyError: The field does not exist, or has no pictures.
          ValueError: The picture is damaged.
        """
        value = self._picture(step, path)
        return pictures.picture_file(value, self._layouts[path], self._scale_of(path), side)

    def _picture(self, step: int, path: str) -> Any:
        self._check_step(step)
        if self._kind_of(path) != "picture":
            raise KeyError(f"The field {path!r} has no pictures.")
        value = self.steps.step(step, [path]).get(path)
        if value is None:
            raise KeyError(f"Step {step} has no picture {path!r}.")
        return value

    def thumbnail(self, frames: int = 1) -> tuple[bytes, str] | None:
        """Returns a small picture of the episode and its media type; None without pictures.

        Args:
          frames: The number of evenly spaced steps side by side; 1 for the middle step.

        Raises:
          ValueError: The picture is damaged.
        """
        cameras = [path for path in self._sorted_paths() if self._kind_of(path) == "picture"]
        if not self.num_steps or not cameras:
            return None
        # Color pictures are preferred to depth maps.
        path = IMAGE if self._shows_image() else min(cameras, key=self._is_scaled)
        if frames == 1:
            return self.picture(self.num_steps // 2, path, _THUMBNAIL_SIDE)
        steps = evenly(self.num_steps, frames)
        images = [self._load_image(step, path, _THUMBNAIL_SIDE) for step in steps]
        width, height = images[0].size
        size = min(max(1, round(_STRIP_HEIGHT * width / height)), 2 * _STRIP_HEIGHT), _STRIP_HEIGHT
        strip = np.concatenate([_resize(image, size) for image in images], axis=1)
        return pictures.picture_file(strip, "yxc")

    def video(self, paths: Sequence[str], target: str, rate: float | None = None) -> None:
        """Writes the pictures of all steps as a video.

        Args:
          paths: The paths of picture fields, side by side in the video.
          target: The path of the file.
          rate: The number of steps per second; by default the rate of the data, or 15.

        Raises:
          ImportError: PyAV is not installed.
          KeyError: The field does not exist, or has no pictures.
          ValueError: A picture is damaged, or the episode is too long.
        """
        if not paths:
            raise KeyError("There are no pictures for a video.")
        if self.num_steps > _MAX_FRAMES:
            problem = f"{self.num_steps} steps are too many for a video: at most {_MAX_FRAMES}"
            raise ValueError(f"{problem}; see `rlds.video` for longer ones")
        sizes: list[tuple[int, int]] = []
        rate = rate or self._find_fps() or self._mean_rate() or _DEFAULT_RATE
        with BrowserVideoWriter(target, rate) as writer:
            for step in range(self.num_steps):
                images = [self._load_image(step, path) for path in paths]
                sizes = sizes or _sizes_side_by_side([image.size for image in images])
                resized = [_resize(image, size) for image, size in zip(images, sizes)]
                writer.add(np.concatenate(resized, axis=1))

    def _mean_rate(self) -> float | None:
        times = self._read_times()
        return (len(times) - 1) / times[-1] if times and times[-1] > 0 else None

    def _load_image(self, step: int, path: str, side: int = _FRAME_SIDE) -> Any:
        value = self._picture(step, path)
        scale = self._scale_of(path)
        return pictures.picture_image(value, self._layouts[path], scale, side).convert("RGB")

    def _is_scaled(self, path: str) -> bool:
        field = self.steps.fields[path]
        is_file = field.is_text or field.encoding
        return not is_file and field.column_dtype not in (np.uint8, np.bool_)

    def _scale_of(self, path: str) -> Scale | None:
        """Returns the brightness scale of a field, the same in all steps; None if not needed."""
        if not self._is_scaled(path):
            return None
        if path not in self._scales:
            samples = [np.asarray(value) for value in self.steps.samples(path, _NUM_SAMPLES)]
            self._scales[path] = pictures.scale_of(samples)
        return self._scales[path]

    def series(self, path: str) -> dict[str, Any]:
        """Returns the curves of a numeric field: {"names", "series", "steps"}.

        "series" has a curve for each element of a vector, of at most 5,000 evenly spaced points;
        "steps" has their steps.

        Raises:
          KeyError: The field does not exist, or is not numeric.
        """
        kind = self._kind_of(path)
        if kind not in ("number", "vector", "flag"):
            raise KeyError(f"The field {path!r} has no numbers.")
        field = self.steps.fields[path]
        size = num_curves(field)
        steps = evenly(self.num_steps, self.steps.max_points)
        max_points = _MAX_TOTAL_POINTS // size
        steps = [steps[row] for row in evenly(len(steps), max_points)]
        matrix = self.steps.curves(path, steps) if steps else np.zeros((0, size))
        names = list(field.names or ([path] if kind != "vector" else ()))
        names = names if len(names) == size else [str(index) for index in range(size)]
        curves = [[finite_or_none(value) for value in curve] for curve in matrix.T.tolist()]
        return {"names": names, "series": curves, "steps": steps}

    def _check_step(self, step: int) -> None:
        if not 0 <= step < self.num_steps:
            raise IndexError(f"There are {self.num_steps} steps, from 0 on, and no step {step}.")


def _field_order(path: str) -> int:
    roots = [rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.DISCOUNT]
    root = path.partition("/")[0]
    return roots.index(root) if root in roots else len(roots) + (root in rlds.STEP_FLAGS)


def _sizes_side_by_side(sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the sizes of pictures side by side, of equal height.

    >>> _sizes_side_by_side([(320, 240), (100, 120)]), _sizes_side_by_side([(84, 84)])
    ([(320, 240), (200, 240)], [(252, 252)])
    """
    height = max(h for _, h in sizes)
    height *= -(-_MIN_HEIGHT // height)
    return [(max(1, round(w * height / h)), height) for w, h in sizes]


def _resize(image: Any, size: tuple[int, int]) -> np.ndarray:
    from PIL import Image

    kind = Image.Resampling.NEAREST if image.height < _MIN_HEIGHT else Image.Resampling.BILINEAR
    return np.asarray(image.resize(size, kind))
