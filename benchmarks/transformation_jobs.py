"""Contenders that transform steps: this project or rlds 0.1.8, whichever `rlds` is there.

Steps are read in batches of 256, and by TensorFlow, because calls from Python for each step would
hide what is measured. Here they are nested or batched; the original knows nested steps only.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from worker import Work

BATCH_SIZE = 256
SHAPES = {"floats": (17,), "images": (64, 64, 3)}
LENGTHS = {"floats": 1000, "images": 200}


def _import_rlds() -> Any:
    sys.modules["reverb"] = mock.MagicMock()  # The original imports it; nothing here needs it.
    import rlds

    return rlds


def _episodes(size: int, layout: str, kind: str) -> Any:
    """Makes episodes in memory, of so many steps in all."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    length = LENGTHS[kind]
    shape = (size // length, length)
    if kind == "images":
        observation: Any = rng.integers(256, size=(*shape, *SHAPES[kind]), dtype=np.uint8)
    else:
        observation = rng.random((*shape, *SHAPES[kind]), np.float32)
    step = np.broadcast_to(np.arange(length), shape)
    steps = {
        "observation": observation,
        "action": rng.random((*shape, 6), np.float32),
        "reward": rng.random(shape, np.float32),
        "discount": np.ones(shape, np.float32),
        "is_first": step == 0,
        "is_last": step == length - 1,
        "is_terminal": step == length - 1,
    }
    batched = tf.data.Dataset.from_tensor_slices({"steps": steps})
    if layout == "batched":
        return batched
    return batched.map(lambda e: {"steps": tf.data.Dataset.from_tensor_slices(e["steps"])})


def _drained(batches: Any) -> Work:
    """Counts what is in batches, in TensorFlow."""
    import tensorflow as tf

    def count(so_far: Any, batch: Any) -> Any:
        return so_far + tf.shape(tf.nest.flatten(batch)[0])[0]

    return lambda _: int(batches.reduce(0, count))


def _of_each_episode(
    size: int, layout: str, kind: str, transform: Callable[[Any, Any], Any]
) -> Work:
    rlds = _import_rlds()

    def transformed(episode: Any) -> Any:
        return transform(rlds.transformations, episode["steps"])

    episodes = _episodes(size, layout, kind)
    if layout == "batched":
        return _drained(episodes.map(transformed).rebatch(BATCH_SIZE))
    return _drained(episodes.flat_map(transformed).batch(BATCH_SIZE))


def pairs(data: Path, size: int, *, layout: str, kind: str) -> Work:
    """Pairs of consecutive steps."""
    return _of_each_episode(
        *(size, layout, kind),
        lambda rlds, steps: rlds.batch(steps, size=2, shift=1, drop_remainder=True),
    )


def scale(data: Path, size: int, *, layout: str) -> Work:
    """Steps with another observation."""

    def scaled(step: dict[str, Any]) -> dict[str, Any]:
        return {**step, "observation": (step["observation"] - 0.5) * 2.0}

    return _of_each_episode(
        size, layout, "floats", lambda rlds, steps: rlds.map_steps(steps, scaled)
    )


def shuffle(data: Path, size: int, *, layout: str) -> Work:
    """Transitions in random order, from any episode."""
    from rlds.transformations.sampling import shuffle_steps
    from rlds.transformations.transition_ops import transitions

    episodes = transitions(_episodes(size, layout, "floats"))
    return _drained(shuffle_steps(episodes, batch_size=BATCH_SIZE, seed=0))


def shuffle_by_original(data: Path, size: int) -> Work:
    """The same as the documentation of the original has it: 50,000 in a buffer."""
    rlds = _import_rlds()

    def to_transition(pair: dict[str, Any]) -> dict[str, Any]:
        now = ("observation", "action", "reward", "discount", "is_first")
        following = ("observation", "is_terminal", "is_last")
        return {
            **{name: pair[name][0] for name in now},
            **{f"next_{name}": pair[name][1] for name in following},
        }

    def to_transitions(episode: Any) -> Any:
        pairs = rlds.transformations.batch(episode["steps"], size=2, shift=1, drop_remainder=True)
        return rlds.transformations.map_steps(pairs, to_transition)

    episodes = _episodes(size, "nested", "floats").shuffle(1000)
    steps = episodes.interleave(to_transitions, cycle_length=100)
    return _drained(steps.shuffle(50_000).batch(BATCH_SIZE))


def describe(data: Path, size: int, *, layout: str) -> Work:
    """Mean and standard deviation of two fields, prepared anew each time, as users do."""
    from rlds.transformations.statistics import compute_statistics

    episodes = _episodes(size, layout, "floats")

    def work(_: Path) -> int:
        compute_statistics(episodes, ["observation", "action"], quantiles=())
        return size

    return work


def describe_by_original(data: Path, size: int) -> Work:
    """The same as the documentation of the original has it."""
    rlds = _import_rlds()

    def fields(step: dict[str, Any]) -> Any:
        values = {"observation": step["observation"], "action": step["action"]}
        return values, {"observation": True, "action": ~step["is_last"]}

    episodes = _episodes(size, "nested", "floats")

    def work(_: Path) -> int:
        rlds.transformations.mean_and_std(episodes, fields)
        return size

    return work
