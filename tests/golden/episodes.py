"""The steps of the golden files; needs NumPy, dm_env and an `envlogger`.

Runs with the published envlogger, which writes the golden files (see `make_envlogger.py`), and with
that of this project, which reads them.
"""

import dm_env
import numpy as np
from dm_env import specs

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float64]
NUMERIC_DTYPES = [*INTEGERS, *FLOATS, np.bool_]

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
    for dtype in NUMERIC_DTYPES:
        name = np.dtype(dtype).name
        cube = ((np.arange(24).reshape(2, 3, 4) + i) % 5).astype(dtype)
        arrays[name] = {"cube": cube, "row": cube[0, 0], "point": cube[0, 0, i % 4].reshape(())}
    arrays["str"] = np.array([["ä", ""], [str(i), "漢"]])
    arrays["bytes"] = np.array([b"\xff", b"a" * i])
    return arrays


def observation(i):
    """An observation with all types of a step."""
    return {
        "scalars": _scalars(i),
        "arrays": _arrays(i),
        "nested": ({"list": [np.float32(i), np.float32(-i)]}, (i, (f"{i}",)), [[i], [i + 1]]),
        "by number": {1: "eins", 2: "zwei", i + 10: "mehr"},
    }


class Specs(dm_env.Environment):
    """An environment that has only specs."""

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


# For each episode: the number of steps, whether it is finished, and its metadata.
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


def read_form(value):
    """Returns the form in which a recorded value is read."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        return value.astype(object)
    if isinstance(value, dict):
        return {key: read_form(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(read_form(item) for item in value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, float):
        return np.float64(value)
    return value


def check_equal(expected, actual, path="value"):
    """Checks that values are equal in types, dtypes, shapes and NaNs."""
    assert type(actual) is type(expected), f"{path}: {type(actual)} is not {type(expected)}"
    if isinstance(expected, dict):
        assert set(actual) == set(expected), f"{path}: {set(actual)} != {set(expected)}"
        for key in expected:
            check_equal(expected[key], actual[key], f"{path}[{key!r}]")
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected), f"{path}: {len(actual)} != {len(expected)} items"
        for i, (a, b) in enumerate(zip(expected, actual)):
            check_equal(a, b, f"{path}[{i}]")
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype, f"{path}: {actual.dtype} is not {expected.dtype}"
        assert actual.shape == expected.shape, f"{path}: {actual.shape} is not {expected.shape}"
        if expected.dtype == object:
            assert actual.tolist() == expected.tolist(), path
        else:
            assert actual.tobytes() == expected.tobytes(), path
    elif isinstance(expected, np.generic):
        assert actual.tobytes() == expected.tobytes(), f"{path}: {actual!r} is not {expected!r}"
    else:
        assert actual == expected, f"{path}: {actual!r} is not {expected!r}"


def check_step(expected, actual, path):
    """Compares two steps, also first steps of episodes."""
    for field in ("observation", "reward", "discount"):
        expected_value = read_form(getattr(expected.timestep, field))
        check_equal(expected_value, getattr(actual.timestep, field), f"{path}.{field}")
    assert actual.timestep.step_type is expected.timestep.step_type, f"{path}.step_type"
    check_equal(read_form(expected.action), actual.action, f"{path}.action")
    check_equal(read_form(expected.custom_data), actual.custom_data, f"{path}.custom_data")


def check_recording(reader, step_data_class):
    """Compares the content of a reader with the recording of `record`."""
    expected = steps(step_data_class)
    assert len(reader.episodes) == len(expected)
    assert len(reader.steps) == sum(map(len, expected))
    for e, episode in enumerate(expected):
        actual = list(reader.episodes[e])
        assert len(actual) == len(episode), f"episode {e}: {len(actual)} != {len(episode)} steps"
        for t, step in enumerate(episode):
            check_step(step, actual[t], f"episode {e}, step {t}")
    for e, (_, _, metadata) in enumerate(EPISODES):
        check_equal(read_form(metadata), reader.episode_metadata()[e], f"metadata of episode {e}")
    for key, value in METADATA.items():
        check_equal(read_form(value), reader.metadata()[key], f"metadata[{key!r}]")
    env = Specs()
    for name in ("observation_spec", "action_spec", "reward_spec", "discount_spec"):
        expected_value, actual = getattr(env, name)(), getattr(reader, name)()
        assert actual == expected_value, f"{name}: {actual} is not {expected_value}"
