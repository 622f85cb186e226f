"""An environment for tests: it draws which step it is in and which inputs led there.

The entry point in `drawn_family-1.dist-info` adds it as the family "drawn".
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dm_env
import numpy as np
from dm_env import specs
from PIL import Image, ImageDraw
from typing_extensions import override

from rlds_creator.environments.playable import Control, Family, Inputs, Playable

__all__ = ["MOVES", "Drawn", "DrawnFamily", "read_drawn"]

# The action of each key, and its name.
MOVES = {
    "ArrowLeft": (1, "left"),
    "ArrowRight": (2, "right"),
    "ArrowUp": (3, "up"),
    "ArrowDown": (4, "down"),
    "Space": (5, "jump"),
}
_DIRECTIONS = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)])

# The step and the action are drawn as rows of so many blocks, black for 0 and white for 1.
_NUM_BLOCKS = 16

Trouble = Literal["", "import", "raise", "exit", "die", "hang", "print fork"]
Shape = Literal["rgb", "grey", "chw", "float", "nan", "empty", "growing", "none", "huge"]


Reward = Literal["action", "none", "nan", "huge", "array"]

_REWARDS: dict[str, Any] = {
    "none": None,
    "nan": float("nan"),
    "huge": 1e308,
    "array": np.array([1.0, 2.0]),
}


class _Walk(dm_env.Environment):  # type: ignore[misc]  # dm_env is untyped.
    """Moves over a plane, with noise from the seed."""

    def __init__(
        self,
        id: str,
        num_steps: int,
        seconds: float,
        reward: str,
        trouble: str,
        trouble_step: int,
        camera: Sequence[int],
        gate: str,
    ) -> None:
        self._is_discrete = id == "discrete"
        self._gate = os.open(gate, os.O_RDWR) if gate else None
        self._num_steps = num_steps
        self._seconds = seconds
        self._reward = reward
        self._trouble = trouble
        self._trouble_step = trouble_step
        self.next_seed: int | None = None
        self.step_number = 0
        self._position = np.zeros(2)
        self._seen: dict[str, np.ndarray] = {
            "step": np.zeros((), np.int64),
            "position": np.zeros(2),
            "noise": np.zeros(3, np.float32),
        }
        if camera:
            self._seen["camera"] = np.zeros((*camera, 3), np.uint8)

    def reset(self) -> dm_env.TimeStep:
        self._random = np.random.default_rng(self.next_seed)
        self.next_seed = None
        self.step_number = 0
        self._position = np.zeros(2)
        return dm_env.restart(self._observation())

    def step(self, action: Any) -> dm_env.TimeStep:
        self.step_number += 1
        if self.step_number == self._trouble_step:
            _cause(self._trouble)
        time.sleep(self._seconds)
        if self._gate is not None:
            os.read(self._gate, 1)
        self._position += _DIRECTIONS[int(action)] if self._is_discrete else action
        reward = _REWARDS.get(self._reward, float(np.sum(action)))
        if self.step_number >= self._num_steps:
            return dm_env.termination(reward, self._observation())
        return dm_env.transition(reward, self._observation())

    def _observation(self) -> dict[str, np.ndarray]:
        # The arrays are the same in each step, as in NetHack.
        self._seen["step"][()] = self.step_number
        self._seen["position"][:] = self._position
        self._seen["noise"][:] = self._random.random(3, np.float32)
        if "camera" in self._seen:
            height, width, _ = self._seen["camera"].shape
            image = Image.new("RGB", (width, height), "navy")
            _draw_number(ImageDraw.Draw(image), self.step_number, 0, width // _NUM_BLOCKS)
            self._seen["camera"][:] = np.asarray(image)
        return self._seen

    def observation_spec(self) -> dict[str, specs.Array]:
        camera = self._seen.get("camera")
        return {
            **({} if camera is None else {"camera": specs.Array(camera.shape, camera.dtype)}),
            "step": specs.Array((), np.int64),
            "position": specs.Array((2,), np.float64),
            "noise": specs.BoundedArray((3,), np.float32, 0, 1),
        }

    def action_spec(self) -> specs.Array:
        if self._is_discrete:
            return specs.DiscreteArray(len(_DIRECTIONS))
        return specs.BoundedArray((2,), np.float32, -1, 1)


def _cause(trouble: str) -> None:
    if trouble == "raise":
        raise RuntimeError("the walk has come to /a/cliff")
    if trouble == "exit":
        sys.exit(3)
    if trouble == "die":
        os._exit(4)
    if trouble == "hang":
        while True:
            time.sleep(1)
    if trouble == "print fork":
        print("X" * 100_000)
        os.write(1, b"J\0\0\0" * 1000)
        os.fork()


class Drawn(Playable):
    """The environment."""

    cameras = ("near", "far")
    has_draft = True

    def __init__(
        self,
        id: str,
        num_steps: int,
        seconds_per_step: float,
        reward: Reward,
        trouble: Trouble,
        trouble_at: int,
        picture: Shape,
        size: int,
        repeats: bool,
        camera: Sequence[int],
        gate: str,
        keys: Mapping[str, Any],
    ) -> None:
        self.environment = _Walk(
            id, num_steps, seconds_per_step, reward, trouble, trouble_at, camera, gate
        )
        self.repeats = repeats
        self._is_discrete = id == "discrete"
        self._moves = {name: move for name, (move, _) in MOVES.items()} | dict(keys)
        self._shape = picture
        self._trouble_at = trouble_at
        self._size = size
        self._inputs = Inputs()
        action_names = dict(MOVES.values())
        self.controls = [
            Control([name], action_names.get(move, str(move))) for name, move in self._moves.items()
        ]
        if not self._is_discrete:
            self.controls += [Control(["Axis0"], "left, right"), Control(["Axis1"], "up, down")]
            self.controls.append(Control(["PointerX", "PointerY", "Pointer0"], "points"))
        self.idle_action = 0 if self._is_discrete else np.zeros(2, np.float32)

    @override
    def seed(self, seed: int) -> None:
        self.environment.next_seed = seed
        self._inputs = Inputs()

    @override
    def action(self, inputs: Inputs) -> Any:
        moves = [self._moves[n] for n in (*inputs.pressed, *inputs.held) if n in self._moves]
        if self._is_discrete:
            action: Any = moves[0] if moves else None
        else:
            vector = np.array([inputs.value("Axis0"), inputs.value("Axis1")], np.float32)
            for name in inputs.held:
                vector += _DIRECTIONS[self._moves.get(name, 0)].astype(np.float32)
            action = np.clip(vector, -1, 1) if moves or vector.any() else None
        if action is not None or not inputs.held:
            self._inputs = inputs
        return action

    @override
    def info(self) -> Mapping[str, Any]:
        return {"held": sorted(self._inputs.held), "text": self._inputs.text}

    @override
    def metadata(self) -> Mapping[str, Any]:
        return {"versions": {"drawn": "1"}}

    @override
    def render(self, camera: int = 0, *, is_draft: bool = False) -> Any:
        if self._shape == "none" and self.environment.step_number >= self._trouble_at:
            return None
        if self._shape == "empty":
            return np.zeros((0, 0, 3), np.uint8)
        if self._shape == "huge":
            return np.broadcast_to(np.uint8(7), (100_000, 100_000, 3))
        step = self.environment.step_number
        side = self._size + (step if self._shape == "growing" else 0)
        picture = self._draw(side, step, camera, is_draft)
        if self._shape == "grey":
            return picture[:, :, 0]
        if self._shape == "chw":
            return picture.transpose(2, 0, 1)
        if self._shape == "float":
            return picture / 255.0
        if self._shape == "nan":
            return np.full((side, side, 3), np.nan)
        return picture

    def _draw(self, side: int, step: int, camera: int, is_draft: bool) -> np.ndarray:
        image = Image.new("RGB", (side, side), ("navy", "darkgreen")[camera])
        pen = ImageDraw.Draw(image)
        block = side // _NUM_BLOCKS
        for row, bits in enumerate((step, _number_of(self._inputs))):
            _draw_number(pen, bits, row, block)
        if not is_draft:
            lines = [f"step {step}", *(f"{n} {v:.2f}" for n, v in self._inputs.held.items())]
            pen.text((block, 3 * block), "\n".join(lines), fill="white")
        return np.asarray(image)


def _draw_number(pen: ImageDraw.ImageDraw, bits: int, row: int, block: int) -> None:
    for bit in range(_NUM_BLOCKS):
        color = "white" if bits >> bit & 1 else "black"
        box = (bit * block, row * block, (bit + 1) * block - 1, (row + 1) * block - 1)
        pen.rectangle(box, fill=color)


def _number_of(inputs: Inputs) -> int:
    """The drawn number of inputs: a bit for each of the keys."""
    return sum(1 << bit for bit, name in enumerate(MOVES) if name in inputs.held)


def read_drawn(picture: np.ndarray) -> tuple[int, list[str]]:
    """Returns the step that a picture shows, of any size, and the keys that led to it."""
    block = picture.shape[1] / _NUM_BLOCKS
    step, keys = (
        sum(
            1 << bit
            for bit in range(_NUM_BLOCKS)
            if picture[int((row + 0.5) * block), int((bit + 0.5) * block)].mean() > 127
        )
        for row in range(2)
    )
    return step, [name for bit, name in enumerate(MOVES) if keys >> bit & 1]


class DrawnFamily(Family):
    """The family of `Drawn`."""

    title = "Drawn steps"

    @override
    def identifiers(self) -> Sequence[str]:
        return ("discrete", "box")

    @override
    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        num_steps: int = 1_000_000,
        seconds_per_step: float = 0.0,
        reward: Reward = "action",
        trouble: Trouble = "",
        trouble_at: int = 3,
        picture: Shape = "rgb",
        size: int = 160,
        repeats: bool = False,
        camera: Sequence[int] = (),
        gate: str = "",
    ) -> Drawn:
        """Makes the environment; each step waits for a byte of the pipe `gate`, if given."""
        if trouble == "import":
            from json import nothing_of_this_name  # type: ignore[attr-defined]  # noqa: F401
        return Drawn(
            id,
            num_steps,
            seconds_per_step,
            reward,
            trouble,
            trouble_at,
            picture,
            size,
            repeats,
            camera,
            gate,
            keys,
        )
