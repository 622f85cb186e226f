"""Reader of the policies of Deep-OPE (https://github.com/google-research/deep_ope).

Policies for D4RL are pickles of a dict of arrays for `rlds.evaluation.mlp_policy`. Policies for RL
Unplugged are SavedModels. A JSON index has the return of each policy in its task:

    policy_path                       the path below the root folder
    task.task_names, task.task_name   the datasets for the evaluation, or the task
    agent_name                        the training algorithm
    return_mean                       the mean return of episodes, without discounts
    "return_std:", return_std         the standard deviation of the returns; with the colon for D4RL

The index of RL Unplugged also has settings of the training, NaN or null if unset. The entry
`is_recurrent` does not define the signature of a policy: see `SavedModel`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlds.raw_files.restricted_pickle import loads
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.sources.source import require_files
from rlds_ecosystem.files.stores import as_path

__all__ = ["DeepOpePolicy", "read_deep_ope", "read_deep_ope_index"]

_PATH_KEY, _AGENT_KEY, _RETURN_MEAN_KEY = "policy_path", "agent_name", "return_mean"
_TASK_KEYS = ("task.task_names", "task.task_name")
_RETURN_STD_KEYS = ("return_std:", "return_std")


@dataclasses.dataclass(frozen=True)
class DeepOpePolicy:
    """An entry of the Deep-OPE index: a policy, its tasks and its return.

    Attributes:
      name: The name of the policy, such as "ant/ant_online_0".
      path: The path of the file.
      tasks: The D4RL datasets for its evaluation, or the task of the control suite.
      agent: The training algorithm.
      return_mean: The mean undiscounted return of episodes. Compare estimates with gamma below 1
        by rank only.
      return_std: The standard deviation of the returns of episodes. The README calls it a standard
        error, but in AntMaze, with returns of 0 or 1, it is the deviation implied by the mean.
      settings: Further settings of the training.
    """

    name: str
    path: str
    tasks: tuple[str, ...]
    agent: str
    return_mean: float
    return_std: float
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)


def read_deep_ope_index(
    path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None
) -> list[DeepOpePolicy]:
    """Reads a Deep-OPE index of policies.

    Args:
      path: `d4rl_policies.json` or `rlunplugged_policies.json`.
      folder: The folder of the policies, such as "gs://gresearch/deep-ope/d4rl"; by default the
        folder of the index.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is not an index; the message has the record.
    """
    (file,) = require_files(path)
    root = as_path(file.parent if folder is None else folder)
    with source_errors(file):
        records = json.loads(file.read_bytes())
    if not isinstance(records, list):
        raise SourceError(f"got a {type(records).__name__}, expected a list of policies", file=file)
    policies = []
    for row, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise SourceError(f"got a {type(record).__name__}, expected a dict", file=file, row=row)
        with source_errors(file, row=row):
            policies.append(_read_policy(record, root))
    return policies


def _read_policy(record: Mapping[str, Any], root: Any) -> DeepOpePolicy:
    path, agent = _read_text(record, _PATH_KEY), _read_text(record, _AGENT_KEY)
    if "\\" in path or not all(name.strip(".") for name in path.split("/")):
        raise ValueError(f"{_PATH_KEY} is {path!r:.100}, expected a path below the folder")
    name, tasks = _read_first_value(record, *_TASK_KEYS)
    tasks = tasks if isinstance(tasks, list) else [tasks]
    if not tasks or not all(isinstance(task, str) for task in tasks):
        raise ValueError(f"{name} is {tasks!r:.100}, expected the names of tasks")
    read_keys = {_PATH_KEY, _AGENT_KEY, _RETURN_MEAN_KEY, *_TASK_KEYS, *_RETURN_STD_KEYS}
    other_settings = {name: value for name, value in record.items() if name not in read_keys}
    return DeepOpePolicy(
        name=path.removesuffix(".pkl"),
        path=os.fspath(root / path),
        tasks=tuple(tasks),
        agent=agent,
        return_mean=_parse_float(record, _RETURN_MEAN_KEY),
        return_std=_parse_float(record, *_RETURN_STD_KEYS),
        settings={name: value for name, value in other_settings.items() if _is_set(value)},
    )


def _read_first_value(record: Mapping[str, Any], *names: str) -> tuple[str, Any]:
    """Returns the first key that is in an index record, with its value."""
    for name in names:
        if name in record:
            return name, record[name]
    raise ValueError(f"{names[0]} is missing; the record has {', '.join(record)}")


def _read_text(record: Mapping[str, Any], name: str) -> str:
    _, value = _read_first_value(record, name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r:.100}, expected a text")
    return value


def _parse_float(record: Mapping[str, Any], *names: str) -> float:
    name, value = _read_first_value(record, *names)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r:.100}, expected a number")
    return float(value)


def _is_set(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def read_deep_ope(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the weights of a Deep-OPE policy for D4RL from a pickle, without executing code.

    Returns:
      An argument of `rlds.evaluation.mlp_policy`: arrays by name, and two texts.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is no pickle of arrays, or damaged.
    """
    (file,) = require_files(path)
    with source_errors(file):
        arrays = loads(file.read_bytes())
    if not isinstance(arrays, Mapping):
        raise SourceError(f"a pickle of {type(arrays).__name__}, expected a dict", file=file)
    for name, value in arrays.items():
        is_array = isinstance(value, np.ndarray) and not value.dtype.hasobject
        if not isinstance(name, str) or not (is_array or isinstance(value, str | bytes)):
            raise SourceError(
                f"{type(value).__name__}, expected an array of numbers, or a text",
                file=file,
                field=f"{name!s:.100}",
            )
    return dict(arrays)
