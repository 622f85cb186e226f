"""What a worker adds to a step of an environment: pictures that are there already are played.

    python benchmarks/creator_steps.py CASE NUM_STEPS

Prints JSON: for each part the milliseconds of each step. The whole worker runs here, on an
environment that costs nothing, at 100 steps a second. The step is timed in parts: what makes files
of pictures, what records, what hands over. All is what a step takes without what the environment
takes for its step and its picture.
"""

import collections
import contextlib
import functools
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

import rlds_creator.environments as environments
from rlds_creator.environments import Family, Inputs, Playable
from rlds_creator.worker import player
from rlds_creator.worker.link import HEADER_SIZE, Link, decode_header, decode_payload, encode
from rlds_creator.worker.pictures import PictureEncoder
from rlds_creator.worker.recording import Recording

FPS = 100.0
NUM_PICTURES = 64

# The environment whose pictures are taken; whether the picture is the observation, too.
CASES: dict[str, tuple[str, str, bool]] = {
    "Atari, 160 x 210, the observation is the picture": ("atari", "ALE/Breakout-v5", True),
    "160 x 210, the observation is four numbers": ("atari", "ALE/Breakout-v5", False),
    "CartPole, 600 x 400": ("gymnasium", "CartPole-v1", False),
    "CarRacing, 600 x 400, the observation is 96 x 96 pixels": (
        *("gymnasium", "CarRacing-v3"),
        False,
    ),
}


class _Same(dm_env.Environment):  # type: ignore[misc]  # dm_env is untyped.
    """Has observations that are there already."""

    def __init__(self, observations: list[np.ndarray]) -> None:
        self.observations = observations
        self.step_number = 0

    def reset(self) -> dm_env.TimeStep:
        self.step_number = 0
        return dm_env.restart(self.observations[0])

    def step(self, action: Any) -> dm_env.TimeStep:
        self.step_number += 1
        number = self.step_number % len(self.observations)
        return dm_env.transition(1.0, self.observations[number], 1.0)

    def observation_spec(self) -> specs.Array:
        return specs.Array(self.observations[0].shape, self.observations[0].dtype)

    def action_spec(self) -> specs.Array:
        return specs.DiscreteArray(4)


class SamePlayable(Playable):
    """Has pictures that are there already."""

    idle_action = 0

    def __init__(self, pictures: list[np.ndarray], observations: list[np.ndarray]) -> None:
        self.environment = _Same(observations)
        self._pictures = pictures

    def action(self, inputs: Inputs) -> Any:
        """See `Playable`."""
        return 0

    def describe(self, action: Any) -> str:
        """See `Playable`."""
        return "left"  # As of games; most have names for their actions.

    def render(self, camera: int = 0, *, is_draft: bool = False) -> np.ndarray:
        """See `Playable`."""
        return self._pictures[self.environment.step_number % len(self._pictures)]


class SameFamily(Family):
    """Makes it of what another environment has shown."""

    def identifiers(self) -> list[str]:
        """See `Family`."""
        return [*CASES]

    def make(self, *, id: str, keys: Any) -> SamePlayable:
        """See `Family`."""
        family, identifier, is_picture = CASES[id]
        made = environments.make(family, {"id": identifier})
        made.seed(0)
        timestep = made.environment.reset()
        pictures, observations = [], []
        chance = np.random.default_rng(0)
        for _ in range(NUM_PICTURES):
            pictures.append(np.array(made.render()))
            seen = timestep.observation
            if identifier.startswith("ALE/") and not is_picture:
                seen = np.zeros(4, np.float32)
            observations.append(np.array(seen))
            spec = made.environment.action_spec()
            if isinstance(spec, specs.DiscreteArray):
                action: Any = int(chance.integers(spec.num_values))
            else:
                action = chance.uniform(spec.minimum, spec.maximum).astype(spec.dtype)
            timestep = made.environment.step(action)
            if timestep.last():
                timestep = made.environment.reset()
        made.close()
        return SamePlayable(pictures, observations)


def timed(name: str, function: Callable[..., Any], spent: dict[str, float]) -> Callable[..., Any]:
    """Returns a function that notes how long it takes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[name] += time.perf_counter() - begin

    return call


@contextlib.contextmanager
def watched() -> Iterator[dict[str, list[float]]]:
    """Times the parts of each step of a worker that runs in this process."""
    spent: dict[str, float] = collections.defaultdict(float)
    found: dict[str, list[float]] = collections.defaultdict(list)
    step = player.Player._step

    def _step(self: Any, *args: Any) -> None:
        spent.clear()
        cpu, begin = time.thread_time(), time.perf_counter()
        step(self, *args)
        whole, cpu = time.perf_counter() - begin, time.thread_time() - cpu
        of_environment = spent["environment"]
        parts = {name: spent[name] for name in ("encode", "record", "hand over")}
        parts |= {"all": whole - of_environment, "processor": cpu}
        for name, seconds in parts.items():
            found[name].append(1000 * seconds)

    player.Player._step = _step  # type: ignore[method-assign]
    for name, owner, method in (
        ("encode", PictureEncoder, "encode"),
        ("record", Recording, "add"),
        ("hand over", Link, "send"),
        ("environment", _Same, "step"),
        ("environment", SamePlayable, "render"),
    ):
        setattr(owner, method, timed(name, getattr(owner, method), spent))
    yield found


def receive(connection: socket.socket, num_steps: int) -> None:
    """Is the server: asks for steps, and for the end after so many pictures."""
    file = connection.makefile("rb")
    pictures = 0
    while len(header := file.read(HEADER_SIZE)) == HEADER_SIZE:
        kind, size = decode_header(header)
        message = decode_payload(kind, file.read(size))
        if not isinstance(message, bytes):
            if message["op"] == "state" and message["state"] == "ready":
                connection.sendall(encode({"op": "control", "do": "resume"}))
        else:
            pictures += 1
            if pictures == num_steps:
                connection.sendall(encode({"op": "stop"}))


def main() -> None:
    """Plays a case."""
    case, num_steps = sys.argv[1], int(sys.argv[2])
    environments.families()["same"] = f"{__name__}:SameFamily"
    ours, theirs = socket.socketpair()
    if os.fork() == 0:  # The server is a process of its own, as always.
        theirs.close()
        receive(ours, num_steps)
        os._exit(0)
    ours.close()
    assert threading.active_count() == 1
    with tempfile.TemporaryDirectory() as directory, watched() as found:
        environment = {"name": case, "family": "same", "options": {"id": case}, "fps": FPS}
        start = {"op": "start", "environment": {**environment, "mode": "async"}}
        start |= {"directory": directory, "agent_id": "a", "study_id": "s", "env_id": "e"}
        link = Link(theirs)
        link._received.put({**start, "next_seed": 1, "limits": {}, "expiry": {"idle": 1e6}})
        status = player.serve(link)
    os.wait()
    if status:
        raise SystemExit(status)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
