"""Replay buffers as Stable-Baselines3 pickles them, of classes with the same names."""

import pickle
import sys
import types
from unittest import mock

import numpy as np

_PACKAGE = "stable_baselines3.common.buffers"


def buffer(steps=9, size=6, *, envs=2, done=(3,), timeout=(), dicts=False, optimize=False, seed=0):
    """Returns the attributes of a buffer, and the added transitions of each environment.

    Args:
      steps: The number of steps of all environments.
      size: The steps that the ring holds.
      envs: The number of environments.
      done: The steps at which the first environment is done.
      timeout: The steps of these that are timeouts.
      dicts: Whether observations are dicts.
      optimize: Whether next observations are missing.
      seed: The seed of the values.
    """
    rng = np.random.default_rng(seed)
    rows = {
        "observations": np.zeros((size, envs, 3), np.float32),
        "next_observations": np.zeros((size, envs, 3), np.float32),
        "actions": np.zeros((size, envs, 1), np.int64),
        **{name: np.zeros((size, envs), np.float32) for name in ("rewards", "dones", "timeouts")},
    }
    added = [[] for _ in range(envs)]
    current = rng.normal(size=(envs, 3)).astype(np.float32)
    for time in range(steps):
        row = time % size
        following = rng.normal(size=(envs, 3)).astype(np.float32)
        dones = np.array([time in done, *[False] * (envs - 1)])
        values = {
            "observations": current,
            "next_observations": following,
            "actions": rng.integers(0, 4, (envs, 1)),
            "rewards": rng.random(envs, np.float32),
            "dones": dones.astype(np.float32),
            "timeouts": (dones & (time in timeout)).astype(np.float32),
        }
        for name, value in values.items():
            rows[name][row] = value
        if optimize:
            rows["observations"][(row + 1) % size] = following
        for env in range(envs):
            added[env].append({name: value[env] for name, value in values.items()})
        reset = rng.normal(size=(envs, 3)).astype(np.float32)
        current = np.where(dones[:, None], reset, following)
    if dicts:
        for name in ("observations", "next_observations"):
            rows[name] = {"x": rows[name][..., :2].copy(), "y": rows[name][..., 2:].copy()}
    if optimize:
        del rows["next_observations"]
    state = {
        "buffer_size": size,
        "pos": steps % size,
        "full": steps >= size,
        "n_envs": envs,
        "optimize_memory_usage": optimize,
        "handle_timeout_termination": True,
        "device": _class_named("torch", "device")("cpu"),
        **rows,
    }
    return state, added


def _class_named(module, name):
    """A class with the name of another."""
    return type(name, (), {"__module__": module, "__init__": lambda self, *arguments: None})


def write(path, state=None, *, name="ReplayBuffer", package=_PACKAGE):
    """Writes a pickle of the attributes of a buffer; returns its path."""
    cls = _class_named(package, name)
    instance = cls()
    vars(instance).update(buffer()[0] if state is None else state)
    members = {"torch": {"device": type(instance.device)}, package: {name: cls}}
    parents = {package.split(".")[0]: {}, package.rpartition(".")[0]: {}}
    modules = {each: types.ModuleType(each) for each in (*parents, *members)}
    for each, attributes in members.items():
        vars(modules[each]).update(attributes)
    with mock.patch.dict(sys.modules, modules):
        content = pickle.dumps(instance)
    path.write_bytes(content)
    return path
