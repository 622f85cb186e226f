"""Loading of datasets by the arguments of `make_dataset_from_rlds` of Octo and OpenVLA."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import importlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from rlds.feeds.roles import ACTION, STATE, Roles, as_vector
from rlds.feeds.statistics_files import from_policy_json
from rlds.feeds.table import Table
from rlds.feeds.table import open as open_table
from rlds.feeds.trajectories import Trajectory, map_episodes
from rlds.robotics.registry import DatasetMeaning, find_meaning, meaning_of
from rlds.robotics.standard import standard_columns
from rlds.sources.episodes import Episodes
from rlds.statistics import FieldStatistics, Statistics
from rlds_ecosystem.model.nests import map_named_leaves, named_leaves, nest, suggest_fields

__all__ = [
    "EqualBounds",
    "Loaded",
    "Standardize",
    "class_of",
    "load",
    "mixture",
    "open_all",
    "oxe_kwargs",
    "split_indices",
    "to_arrays",
]

_OBSERVATION = "observation"
_CAMERAS = ("primary", "secondary", "wrist")
_STANDARD_STATE = "proprio"
_IGNORED_ARGUMENTS = {
    *("shuffle", "num_parallel_reads", "num_parallel_calls"),
    "force_recompute_dataset_statistics",
}


@functools.cache
def class_of(module: str, name: str, default: Any = object) -> Any:
    """Returns a class of an optional package, or `default` if it is not installed."""
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        return default


@functools.cache
def _read_mixtures() -> Mapping[str, Mapping[str, Any]]:
    mixtures: Mapping[str, Any] = json.loads(Path(__file__).with_name("mixtures.json").read_text())
    return mixtures


def mixture(project: str, mix: Any) -> list[tuple[str, float]]:
    """Returns the datasets of a mixture with their weights, each dataset once.

    Args:
      project: "octo" or "openvla".
      mix: The name of a mixture in the project, or of a dataset; or the weights of datasets, by
        name or as pairs.
    """
    if isinstance(mix, str):
        mix = _read_mixtures()[project].get(mix, [(mix, 1.0)])
    pairs = mix.items() if isinstance(mix, Mapping) else mix
    weights: dict[str, float] = {}
    for name, weight in pairs:
        weights.setdefault(name, float(weight))
    return list(weights.items())


@dataclasses.dataclass(frozen=True)
class Standardize:
    """Replaces the action and the state of a registered robot dataset by the standard fields.

    The state is `observation/proprio`.

    Attributes:
      meaning: The meaning of the fields of the dataset.
    """

    meaning: DatasetMeaning

    def __call__(self, trajectory: Trajectory) -> Trajectory:
        """Returns a trajectory with the standard action and state."""
        standard_fields = standard_columns(trajectory, self.meaning)
        leaves = dict(named_leaves({**trajectory, ACTION: standard_fields[ACTION]}))
        if "state" in standard_fields:
            leaves[f"{_OBSERVATION}/{_STANDARD_STATE}"] = standard_fields["state"]
        for path in self.meaning.language[:1]:
            leaves["language_instruction"] = leaves[path]
        return nest({path: column[slice(*self.meaning.kept)] for path, column in leaves.items()})


def oxe_kwargs(
    name: str,
    data_dir: Any,
    views: Sequence[str],
    *,
    encodings: Sequence[str],
    has_state: bool,
    has_language: bool,
    normalization: Any,
) -> tuple[dict[str, Any], DatasetMeaning]:
    """Returns arguments of `load` for a registered robot dataset, and its meaning.

    Raises:
      ValueError: The dataset is not registered, or the policy cannot be trained with it.
    """
    dataset_name = name.partition(":")[0]
    if find_meaning(dataset_name) is None:
        raise ValueError(
            f"{dataset_name}: this dataset is not registered. Describe its fields with "
            "rlds.robotics.register, or pass dataset_kwargs={name: {...}} with arguments of "
            "make_dataset_from_rlds, such as standardize_fn, image_obs_keys and language_key"
        )
    meaning = meaning_of(dataset_name)
    if meaning.action_encoding not in encodings or not meaning.standard_action:
        raise ValueError(
            f"{name}: its actions are {meaning.action_encoding or 'unknown'}, expected "
            f"{' or '.join(encodings)}"
        )
    if absent := [view for view in views if view not in (*_CAMERAS, *meaning.cameras)]:
        raise ValueError(f"{name}: no cameras {absent}; the dataset has {list(meaning.cameras)}")
    paths = {view: meaning.cameras.get(view) for view in views}
    kwargs: dict[str, Any] = {
        "name": name,
        "data_dir": str(data_dir),
        "image_obs_keys": {
            view: path and path.removeprefix(f"{_OBSERVATION}/") for view, path in paths.items()
        },
        "standardize_fn": Standardize(meaning),
        "action_normalization_mask": list(meaning.action_mask),
        "action_proprio_normalization_type": normalization,
    }
    if has_language and meaning.language:
        kwargs["language_key"] = "language_instruction"
    if has_state and meaning.standard_state:
        kwargs["state_obs_keys"] = [_STANDARD_STATE]
    return kwargs, meaning


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A loaded dataset for policy samples.

    Attributes:
      name: The name of the dataset.
      table: The training or the validation episodes.
      roles: The roles of the fields.
      statistics: The statistics of all episodes.
    """

    name: str
    table: Table
    roles: Roles
    statistics: Statistics


def load(
    name: str,
    data_dir: Any,
    *,
    train: bool,
    has_validation: bool = True,
    standardize_fn: Any = None,
    image_obs_keys: Mapping[str, str | None] | None = None,
    depth_obs_keys: Mapping[str, str | None] | None = None,
    state_obs_keys: Sequence[str | None] = (),
    language_key: str | None = None,
    dataset_statistics: Any = None,
    action_normalization_mask: Sequence[bool] | None = None,
    filter_functions: Sequence[Any] = (),
    **unneeded: Any,
) -> Loaded:
    """Opens a dataset, standardizes its episodes, and computes its statistics.

    Args:
      name: The folder of the dataset, optionally with `:version`.
      data_dir: The parent folder.
      train: Whether to use the training episodes: the split "train", without the last 5 % if there
        is no split "val". If False, the validation episodes.
      has_validation: Whether to hold out validation episodes if there is no split "val".
      standardize_fn: A function of a trajectory, see `rlds.feeds.map_episodes`, that returns a
        trajectory with an "observation" and an "action"; or a ModuleSpec of Octo.
      image_obs_keys: The images of the observation, by camera; None for a missing camera.
      depth_obs_keys: Must be None: depth images are not supported.
      state_obs_keys: The fields of the observation that form the state; None for a zero.
      language_key: The field of the instruction, or a pattern of several fields.
      dataset_statistics: Statistics for the normalization, or the path of their file.
      action_normalization_mask: A mask of the elements of the action to normalize.
      filter_functions: Functions of the stored trajectory, true to keep it.
      **unneeded: Reading options, which do not affect samples.

    Raises:
      KeyError: There is no such field.
      NotImplementedError: Depth images are requested.
      ValueError: A function failed, or there are no episodes.
    """
    if unknown := sorted(unneeded.keys() - _IGNORED_ARGUMENTS):
        raise TypeError(f"{name}: there is no argument {unknown[0]!r}")
    if depth_obs_keys and any(depth_obs_keys.values()):
        raise NotImplementedError("depth_obs_keys: depth images are not supported here")
    table = open_all(epath.Path(data_dir) / name.replace(":", "/"))
    indices = split_indices(table.episodes, train, has_validation)
    filters = [_as_function(spec) for spec in filter_functions]
    if standardize_fn is not None or filters:
        function = _as_function(standardize_fn)
        version = ", ".join(map(_name_function, filter(None, (function, *filters))))
        standardize = _FilterAndStandardize(function, tuple(filters))
        table = map_episodes(table, standardize, version=version)
    fields = table.storage.fields
    text_paths = [path for path in sorted(fields) if fnmatch.fnmatch(path, language_key or "")]
    if language_key is not None and not text_paths:
        hint = suggest_fields(language_key, fields)
        raise KeyError(f"{name}: no field {language_key!r}; {hint}")
    roles = Roles(
        {camera: key and f"{_OBSERVATION}/{key}" for camera, key in (image_obs_keys or {}).items()},
        [key and f"{_OBSERVATION}/{key}" for key in state_obs_keys],
        language=text_paths or None,
    )
    if missing := [path for path in roles.fields if path not in fields]:
        raise KeyError(
            f"{name}: no field {missing[0]!r}; {suggest_fields(missing[0], fields)}. Pass a "
            "standardize_fn that returns it"
        )
    has_steps = table.summaries.num_steps > 0
    masks = None if action_normalization_mask is None else {ACTION: action_normalization_mask}
    if dataset_statistics is None:
        non_empty = table.filter_episodes(has_steps)
        statistics = roles.statistics_of(non_empty, masks=masks)
        statistics = _replace_quantiles(statistics, roles, non_empty)
    else:
        statistics = _read_statistics(dataset_statistics, masks)
    return Loaded(name, table.filter_episodes(indices[has_steps[indices]]), roles, statistics)


def open_all(path: Any) -> Table:
    """Opens the episodes of all splits of a dataset, with the pixels of TensorFlow if possible."""
    try:
        return open_table(path, "all", jpeg="tf")
    except ImportError as error:
        warnings.warn(
            f"pixels of JPEG files differ a little from TensorFlow's: {error}", stacklevel=3
        )
        return open_table(path, "all")


def split_indices(episodes: Episodes, train: bool, has_validation: bool) -> np.ndarray:
    """Returns the indices of the training or validation episodes, in the episodes of all splits."""
    splits = list(episodes.splits)
    name = "train" if "train" in splits else splits[0]
    if "val" in splits:
        name = name if train else "val"
    elif has_validation:
        name = f"{name}[:95%]" if train else f"{name}[95%:]"
    offsets, count = {}, 0
    for split, begin, end in episodes.ranges:
        offsets[split] = count - begin
        count += end - begin
    ranges = Episodes(episodes.source, name).ranges
    return np.concatenate([offsets[s] + np.arange(begin, end) for s, begin, end in ranges])


@dataclasses.dataclass(frozen=True)
class _FilterAndStandardize:
    """Applies the filters, and standardizes the remaining episodes."""

    standardize: Callable[[Trajectory], Any] | None
    filters: tuple[Callable[[Trajectory], Any], ...]

    def __call__(self, trajectory: Trajectory) -> Any:
        if not all(bool(keep(trajectory)) for keep in self.filters):
            return nest({path: column[:0] for path, column in named_leaves(trajectory)})
        return trajectory if self.standardize is None else self.standardize(trajectory)


def _name_function(function: Any) -> str:
    """Returns the name of a function, equal in all processes."""
    if isinstance(function, functools.partial):
        return f"{_name_function(function.func)}{function.args}{function.keywords}"
    return str(getattr(function, "__qualname__", function))


def _as_function(spec: Any) -> Any:
    """Returns a function unchanged, or the function of a ModuleSpec of Octo."""
    if not isinstance(spec, Mapping):
        return spec
    module = __import__(spec["module"], fromlist=[spec["name"]])
    return functools.partial(getattr(module, spec["name"]), *spec["args"], **spec["kwargs"])


def _replace_quantiles(statistics: Statistics, roles: Roles, table: Table) -> Statistics:
    """Replaces the approximate quantiles of statistics by exact quantiles, as in the projects."""
    fields = {}
    for role, paths in ((ACTION, roles.action), (STATE, roles.state)):
        field_paths = [path for path in paths if path is not None]
        if role in statistics and field_paths:
            blocks = [columns for _, columns in table.blocks(field_paths)]
            vectors = [as_vector(paths, block, block[field_paths[0]].shape[:1]) for block in blocks]
            values = np.concatenate(vectors).astype(np.float32)
            field = statistics[role]
            quantiles = {q: np.quantile(values, q, axis=0) for q in field.quantiles}
            fields[role] = dataclasses.replace(field, quantiles=quantiles, quantile_error=0.0)
    return dataclasses.replace(statistics, fields={**statistics.fields, **fields})


def _read_statistics(stats: Any, masks: Mapping[str, Any] | None) -> Statistics:
    """Reads statistics from the path of a file, or from arrays nested in dicts."""
    if isinstance(stats, str | os.PathLike):
        text = epath.Path(stats).read_text()
    else:
        text = json.dumps(map_named_leaves(lambda _, value: np.asarray(value).tolist(), stats))
    statistics = from_policy_json(text, None)
    if masks is None:
        return statistics
    action = statistics[ACTION]
    mask = np.array(masks[ACTION], np.bool_)
    if mask.shape != action.mean.shape:
        raise ValueError(f"action_normalization_mask: {mask.shape}, expected {action.mean.shape}")
    action = dataclasses.replace(action, mask=mask)
    return dataclasses.replace(statistics, fields={**statistics.fields, ACTION: action})


@dataclasses.dataclass(frozen=True)
class EqualBounds:
    """The normalization of elements with equal bounds, as in Octo and OpenVLA.

    Attributes:
      zero_constants: Whether constant elements are 0, even if the mask excludes them, as in
        OpenVLA. If False, elements with equal quantiles are -1, and 1 above the bound, by the
        formula of both projects.
      has_quantiles: Whether the bounds are quantiles.
    """

    zero_constants: bool
    has_quantiles: bool = True

    def __call__(
        self, values: np.ndarray, normalized: np.ndarray, statistics: FieldStatistics
    ) -> np.ndarray:
        """Returns the normalized values with corrected elements of equal bounds."""
        if self.has_quantiles:
            low, high = (statistics.quantiles[q].astype(np.float32) for q in (0.01, 0.99))
            sides = np.where(values > low, np.float32(1), np.float32(-1))
            normalized = np.where(statistics.mask & (low == high), sides, normalized)
        if self.zero_constants:
            is_constant = statistics.min.astype(np.float32) == statistics.max.astype(np.float32)
            normalized = np.where(is_constant, np.float32(0), normalized)
        return normalized


def keep_labelled(samples: Any, is_needed: bool) -> Any:
    """Excludes episodes without an instruction.

    Raises:
      ValueError: There are no instructions.
    """
    if not is_needed:
        return samples
    texts = "task/language_instruction"
    if samples.roles.language is None:
        raise ValueError(f"{samples.dataset_name}: skip_unlabeled=True needs a language_key")
    is_kept = samples.keep_episodes(lambda columns: any(map(len, columns[texts])))
    return samples.with_table(samples.table.filter_episodes(is_kept))


def to_arrays(text: str, mask: Sequence[bool] | None = None) -> dict[str, Any]:
    """Converts statistics from JSON to the in-memory form of Octo and OpenVLA.

    Args:
      text: The JSON.
      mask: The mask of the normalized elements of the action to return.
    """
    values: dict[str, Any] = map_named_leaves(lambda _, value: np.array(value), json.loads(text))
    if mask is not None:
        values[ACTION]["mask"] = np.array(mask)
    return values
