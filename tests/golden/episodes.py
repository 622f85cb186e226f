"""The steps that the golden files hold, made from nothing: needs NumPy, dm_env and an `envlogger`.

Runs with the published envlogger (which makes the golden files, see `make_envlogger.py`) and with
this project's (which reads them): nothing here depends on which one it is.
"""

import dm_env
import numpy as np
from dm_env import specs

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float64]
NUMBERS = [*INTEGERS, *FLOATS, np.bool_]

METADATA = {"agent_id": "golden", "seed": 7, "weights": np.array([0.5, -0.0, np.nan])}


def _scalars(i):
    """One value of each scalar type, extremes among them."""
    values = {
        "bool": bool(i % 2),
        "int": (-1) ** i * 300**i,
        "float": float(i) / 3,
        "str": f"Schritt {i} ↦ \0 漢字",
        "bytes": bytes([0, 255, i]),
        "nothing": None,
    }
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        values[np.dtype(dtype).name] = dtype(info.min if i % 2 else info.max)
    for dtype in FLOATS:
        values[np.dtype(dtype).name] = dtype([np.pi, np.nan, -np.inf, 0.0][i % 4])
    values["bool_"] = np.bool_(i % 2)
    return values


def _arrays(i):
    """Arrays of each dtype, with no, one and three dimensions."""
    arrays = {}
    for dtype in NUMBERS:
        name = np.dtype(dtype).name
        cube = ((np.arange(24).reshape(2, 3, 4) + i) % 5).astype(dtype)
        arrays[name] = {"cube": cube, "row": cube[0, 0], "point": cube[0, 0, i % 4].reshape(())}
    arrays["str"] = np.array([["ä", ""], [str(i), "漢"]])
    arrays["bytes"] = np.array([b"\xff", b"a" * i])
    return arrays


def observation(i):
    """An observation with all that a step can hold."""
    return {
        "scalars": _scalars(i),
        "arrays": _arrays(i),
        "nested": ({"list": [np.float32(i), np.float32(-i)]}, (i, (f"{i}",)), [[i], [i + 1]]),
        "by number": {1: "eins", 2: "zwei", i + 10: "mehr"},
    }


class Specs(dm_env.Environment):
    """An environment that is only asked for its specs."""

    def reset(self):
        raise NotImplementedError

    def step(self, action):
        raise NotImplementedError

    def observation_spec(self):
        return {
            "position": specs.Array((3,), np.float64, name="position"),
            "image": specs.BoundedArray((4, 4, 3), np.uint8, 0, 255, name="image"),
            "nested": (specs.DiscreteArray(5, name="choice"), [specs.Array((), np.bool_)]),
        }

    def action_spec(self):
        return specs.BoundedArray((2,), np.float32, [-1.0, -np.inf], [1.0, 2.0], name="action")


# For each episode its number of steps, whether it was played to its end, and its metadata.
EPISODES = [
    (5, True, {"success": True, "name": "première"}),
    (1, False, None),
    (7, False, [np.arange(3, dtype=np.int16)]),
    (3, True, None),
    (4, True, "letzte"),
]


def steps(step_data_class):
    """The steps of all episodes: lists of `step_data_class(timestep, action, custom_data)`."""
    i = 0
    episodes = []
    for length, finished, _ in EPISODES:
        episode = []
        for t in range(length):
            action = np.array([i, t], np.float32)
            if t == 0:
                timestep, action = dm_env.restart(observation(i)), None
            elif t == length - 1 and finished:
                timestep = dm_env.termination(reward=float(i), observation=observation(i))
            else:
                timestep = dm_env.transition(float(i), observation(i), discount=0.5)
            custom = {"time": 1e9 + i, "note": "ü"} if i % 3 else None
            episode.append(step_data_class(timestep, action, custom))
            i += 1
        episodes.append(episode)
    return episodes


def record(writer, step_data_class):
    """Records all episodes with a backend writer, and closes it."""
    for episode, (_, _, metadata) in zip(steps(step_data_class), EPISODES):
        for t, step in enumerate(episode):
            writer.record_step(step, is_new_episode=t == 0)
        if metadata is not None:
            writer.set_episode_metadata(metadata)
    writer.close()


def as_read(value):
    """The value that is read back for a recorded value."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        return value.astype(object)
    if isinstance(value, dict):
        return {key: as_read(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(as_read(item) for item in value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, float):
        return np.float64(value)
    return value


def same(expected, got, path="value"):
    """Raises an AssertionError unless both are equal: types, dtypes, shapes, NaNs and all."""
    assert type(got) is type(expected), f"{path}: {type(got)} is not {type(expected)}"
    if isinstance(expected, dict):
        assert set(got) == set(expected), f"{path}: {set(got)} != {set(expected)}"
        for key in expected:
            same(expected[key], got[key], f"{path}[{key!r}]")
    elif isinstance(expected, (tuple, list)):
        assert len(got) == len(expected), f"{path}: {len(got)} != {len(expected)} items"
        for i, (a, b) in enumerate(zip(expected, got)):
            same(a, b, f"{path}[{i}]")
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype, f"{path}: {got.dtype} is not {expected.dtype}"
        assert got.shape == expected.shape, f"{path}: {got.shape} is not {expected.shape}"
        if expected.dtype == object:
            assert got.tolist() == expected.tolist(), path
        else:
            assert got.tobytes() == expected.tobytes(), path
    elif isinstance(expected, np.generic):
        assert got.tobytes() == expected.tobytes(), f"{path}: {got!r} is not {expected!r}"
    else:
        assert got == expected, f"{path}: {got!r} is not {expected!r}"


def same_step(expected, got, path):
    """Compares two steps, the first step of an episode among them."""
    for field in ("observation", "reward", "discount"):
        want = as_read(getattr(expected.timestep, field))
        same(want, getattr(got.timestep, field), f"{path}.{field}")
    assert got.timestep.step_type is expected.timestep.step_type, f"{path}.step_type"
    same(as_read(expected.action), got.action, f"{path}.action")
    same(as_read(expected.custom_data), got.custom_data, f"{path}.custom_data")


def same_recording(reader, step_data_class):
    """Compares all that a reader gives with what `record` recorded; specs if it has them."""
    expected = steps(step_data_class)
    assert len(reader.episodes) == len(expected)
    assert len(reader.steps) == sum(map(len, expected))
    for e, episode in enumerate(expected):
        got = list(reader.episodes[e])
        assert len(got) == len(episode), f"episode {e}: {len(got)} != {len(episode)} steps"
        for t, step in enumerate(episode):
            same_step(step, got[t], f"episode {e}, step {t}")
    for e, (_, _, metadata) in enumerate(EPISODES):
        same(as_read(metadata), reader.episode_metadata()[e], f"metadata of episode {e}")
    for key, value in METADATA.items():
        same(as_read(value), reader.metadata()[key], f"metadata[{key!r}]")
    env = Specs()
    for name in ("observation_spec", "action_spec", "reward_spec", "discount_spec"):
        want, got = getattr(env, name)(), getattr(reader, name)()
        assert got == want, f"{name}: {got} is not {want}"
