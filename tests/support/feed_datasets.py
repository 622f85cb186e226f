"""Datasets of random episodes, in files of TFDS, for feeds."""

from typing import Any

import numpy as np

import tfds_files
from rlds.feeds import _core, _pure

hot, pure = _core, _pure  # The hot functions: compiled if possible, and in plain Python.


def _tensor(dtype: Any, *shape: int, encoding: str = "none") -> tfds_files.Tensor:
    return tfds_files.Tensor(dtype=np.dtype(dtype), shape=shape, encoding=encoding)


STEP = {
    "observation": tfds_files.Features(
        features={
            "state": _tensor(np.float32, 2),
            "text": _tensor(object),
            "exact": _tensor(np.float64, 3, encoding="bytes"),
            "packed": _tensor(np.int64, 2, encoding="zlib"),
        }
    ),
    "action": _tensor(np.float32, 3),
    "reward": _tensor(np.float32),
    "discount": _tensor(np.float32),
    "is_first": _tensor(bool),
    "is_last": _tensor(bool),
    "is_terminal": _tensor(bool),
    "button": _tensor(np.int64),
}


def steps_of(length: int, *, is_final_known: bool, terminal: bool, seed: int) -> dict[str, Any]:
    """The steps of an episode: numbers in all encodings, a text and flags."""
    rng = np.random.default_rng(seed)
    index = np.arange(length)
    is_last = index == length - 1
    discount = rng.choice([0.5, 0.9, 1.0], size=length).astype(np.float32)
    # The discount of the last action is in the step before the final observation, if there is one.
    discount[index == length - 1 - is_final_known] *= not terminal
    text = np.empty(length, object)
    text[:] = [b"step %d of %d" % (i, seed) for i in index]
    steps = {
        "observation": {
            "state": rng.normal(size=(length, 2)).astype(np.float32),
            "text": text,
            "exact": rng.normal(size=(length, 3)),
            "packed": rng.integers(-9, 9, size=(length, 2)),
        },
        "action": rng.normal(size=(length, 3)).astype(np.float32),
        "reward": rng.integers(-9, 9, size=length).astype(np.float32),
        "discount": discount,
        "is_first": index == 0,
        "is_last": is_last,
        "is_terminal": is_last & terminal,
        # Varints of one byte in some episodes, of two or ten in the remaining ones.
        "button": rng.integers(-1 if seed % 3 == 0 else 0, 300 if seed % 3 == 1 else 99, length),
    }
    steps["observation"] = dict(sorted(steps["observation"].items()))
    return dict(sorted(steps.items()))  # The order of TFDS.


def random_episodes(count: int, *, seed: int = 0, longest: int = 7) -> list[dict[str, Any]]:
    """Episodes of 0 to `longest` steps, with any end."""
    rng = np.random.default_rng(seed)
    episodes = []
    for index in range(count):
        is_final_known, terminal = bool(rng.integers(2)), bool(rng.integers(2))
        length = int(rng.integers(longest + 1)) if index else longest
        steps = steps_of(
            length, is_final_known=is_final_known, terminal=terminal, seed=seed + index
        )
        episodes.append({"steps": steps, "final_observation_known": is_final_known, "index": index})
    return episodes


def write(
    directory: Any, episodes: list[dict[str, Any]], step: dict[str, Any] = STEP, **options: Any
) -> str:
    """Writes such episodes; returns the directory."""
    features = tfds_files.Features(
        features={
            "steps": tfds_files.Dataset(feature=tfds_files.Features(features=step)),
            "final_observation_known": _tensor(bool),
            "index": _tensor(np.int64),
        }
    )
    options = {"max_examples_per_shard": 5, **options}
    with tfds_files.append_to(directory, features, "random", **options) as writer:
        for episode in episodes:
            writer.add(episode)
    return str(directory)
