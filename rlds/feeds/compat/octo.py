"""The datasets of Octo, for its scripts, without TensorFlow.

    from rlds.feeds.compat.octo import make_interleaved_dataset, make_single_dataset

Facts about Octo are those of its repository `octo-models/octo`, July 2024. What is different:

* Samples are shuffled over the whole dataset, in an order that a seed decides, and every one comes
  once before any comes again. `shuffle_buffer_size` and the numbers of threads change nothing.
* Each process of JAX or torchrun gets other samples.
* Errors are never left out: `ignore_errors` is refused.
* Functions for trajectories (`standardize_fn`, `filter_functions`) take NumPy arrays. Those that
  call TensorFlow work if it is installed. They can move images, and not see them.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlds.feeds import octo as _octo
from rlds.feeds.augmenting import change_images
from rlds.feeds.compat import loading
from rlds.feeds.compat.chains import Chain
from rlds.feeds.mixture import Mixture
from rlds.feeds.roles import ACTION
from rlds.feeds.samples import Columns, Samples

__all__ = ["make_interleaved_dataset", "make_oxe_dataset_kwargs_and_weights", "make_single_dataset"]

_ENCODINGS = ("EEF_POS", "JOINT_POS", "JOINT_POS_BIMANUAL", "JOINT_POS_BIMANUAL_NAV")
_KINDS = {"normal": "normal", "bounds": "bounds_q99"}


def make_single_dataset(
    dataset_kwargs: Mapping[str, Any],
    *,
    train: bool,
    traj_transform_kwargs: Mapping[str, Any] | None = None,
    frame_transform_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Chain:
    """Returns the episodes of a dataset; `unbatch` makes samples of them.

    Args:
      dataset_kwargs: What Octo's `make_dataset_from_rlds` takes.
      train: Whether to take the episodes to train with, and to change images at random.
      traj_transform_kwargs: What its `apply_trajectory_transforms` takes.
      frame_transform_kwargs: What its `apply_frame_transforms` takes.
      seed: Decides about all that is random.

    Raises:
      NotImplementedError: An argument asks for what is not supported here; says which.
      TypeError: There is no such argument.
    """
    samples, statistics, _ = _samples_of(
        dict(dataset_kwargs),
        train,
        dict(traj_transform_kwargs or {}),
        (frame_transform_kwargs or {}).get("resize_size") or {},
        seed,
    )
    transform = _frame_transform(dict(frame_transform_kwargs or {}), train)
    return Chain(samples, statistics, transform, seed=seed)


def make_interleaved_dataset(
    dataset_kwargs_list: Sequence[Mapping[str, Any]],
    sample_weights: Sequence[float] | None = None,
    *,
    train: bool,
    shuffle_buffer_size: int,
    traj_transform_kwargs: Mapping[str, Any] | None = None,
    frame_transform_kwargs: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    balance_weights: bool = False,
    traj_transform_threads: int | None = None,
    traj_read_threads: int | None = None,
    seed: int = 0,
) -> Chain:
    """Returns the samples of several datasets, mixed and without end, or batches of them.

    Args:
      dataset_kwargs_list: For each dataset, what Octo's `make_dataset_from_rlds` takes.
      sample_weights: How often each dataset comes; all the same if not given.
      train: Whether to take the episodes to train with, and to change images at random.
      shuffle_buffer_size: Not needed: there is no buffer.
      traj_transform_kwargs: What its `apply_trajectory_transforms` takes.
      frame_transform_kwargs: What its `apply_frame_transforms` takes.
      batch_size: How many samples make a batch in each process; None for samples.
      balance_weights: Whether weights are multiplied with the numbers of steps.
      traj_transform_threads: Not needed.
      traj_read_threads: Not needed.
      seed: Decides about all that is random.

    Raises:
      NotImplementedError: An argument asks for what is not supported here; says which.
      ValueError: A dataset is there twice, or the weights do not fit.
    """
    del shuffle_buffer_size, traj_transform_threads, traj_read_threads
    weights = np.array(sample_weights or [1.0] * len(dataset_kwargs_list), np.float64)
    if len(weights) != len(dataset_kwargs_list):
        raise ValueError(f"{len(dataset_kwargs_list)} datasets, and {len(weights)} sample_weights")
    size = (frame_transform_kwargs or {}).get("resize_size") or {}
    parts, statistics, counts = [], {}, []
    for given in dataset_kwargs_list:
        if given["name"] in statistics:
            raise ValueError(f"{given['name']} is there twice")
        part, found, count = _samples_of(
            dict(given), train, dict(traj_transform_kwargs or {}), size, seed
        )
        parts.append(part)
        statistics[given["name"]] = found
        counts.append(count)
    if balance_weights:
        weights = weights * np.array(counts)
    weights = weights / weights.sum()
    return Chain(
        Mixture(parts, weights.tolist()),
        statistics,
        _frame_transform(dict(frame_transform_kwargs or {}), train),
        sample_weights=weights,
        seed=seed,
        is_flat=True,
        is_shuffled=True,
        is_endless=True,
        batch_size=batch_size,
    )


def make_oxe_dataset_kwargs_and_weights(
    data_mix: str | Mapping[str, float] | Sequence[tuple[str, float]],
    data_dir: Any,
    load_camera_views: Sequence[str] = ("primary",),
    load_depth: bool = False,
    load_proprio: bool = False,
    load_language: bool = True,
    force_recompute_dataset_statistics: bool = False,
    action_proprio_normalization_type: Any = "normal",
) -> tuple[list[dict[str, Any]], list[float]]:
    """Returns what `make_interleaved_dataset` takes, of datasets that `rlds.robotics` knows.

    Args:
      data_mix: The name of a mixture of Octo, or the weights of datasets.
      data_dir: The folder that has a folder for each dataset.
      load_camera_views: Which cameras.
      load_depth: False.
      load_proprio: Whether to have the state of the robot.
      load_language: Whether to have the instruction.
      force_recompute_dataset_statistics: They are computed in any case.
      action_proprio_normalization_type: "normal" or "bounds".
    """
    del force_recompute_dataset_statistics
    if load_depth:
        raise NotImplementedError("load_depth: depth images are not supported here")
    found, weights = [], []
    for name, weight in loading.mixture("octo", data_mix):
        try:
            kwargs, _ = loading.oxe_kwargs(
                name,
                data_dir,
                load_camera_views,
                encodings=_ENCODINGS,
                has_state=load_proprio,
                has_language=load_language,
                normalization=action_proprio_normalization_type,
            )
        except ValueError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
            continue
        for key in kwargs.pop("state_obs_keys", ()):
            kwargs["proprio_obs_key"] = key
        found.append(kwargs)
        weights.append(weight)
    return found, weights


def _samples_of(
    dataset: dict[str, Any], train: bool, traj: dict[str, Any], size: Any, seed: int
) -> tuple[Samples, dict[str, Any], int]:
    """The samples of a dataset, its statistics as Octo has them, and how many steps it has."""
    for unneeded in ("shuffle", "num_parallel_reads", "num_parallel_calls"):
        dataset.pop(unneeded, None)
    dataset.pop("force_recompute_dataset_statistics", None)
    if dataset.pop("ignore_errors", False):
        raise NotImplementedError("ignore_errors: what cannot be read is an error here")
    kind = dataset.pop("action_proprio_normalization_type", "normal")
    kind = str(getattr(kind, "value", kind))
    if kind not in _KINDS:
        raise ValueError(f"action_proprio_normalization_type {kind!r} is none of {list(_KINDS)}")
    is_normalized = not dataset.pop("skip_norm", False)
    state = dataset.pop("proprio_obs_key", None)
    mask = dataset.get("action_normalization_mask")
    loaded = loading.load(**dataset, train=train, state_obs_keys=() if state is None else (state,))
    samples = _OctoTrajectories(traj).samples(
        loaded, train, seed, kind=_KINDS[kind], is_normalized=is_normalized, image_size=size
    )
    statistics = loading.to_arrays(_octo.statistics_to_json(loaded.statistics), mask)
    return samples, statistics, int(statistics["num_transitions"])


class _OctoTrajectories:
    """What `apply_trajectory_transforms` is told."""

    def __init__(self, given: dict[str, Any]) -> None:
        given.pop("num_parallel_calls", None)
        goals = given.pop("goal_relabeling_strategy", None)
        if goals not in (None, "uniform"):
            raise NotImplementedError(f"goal_relabeling_strategy={goals!r}: there is 'uniform'")
        self.has_goals = goals is not None
        self.goals = dict(given.pop("goal_relabeling_kwargs", {}))
        self.length = given.pop("subsample_length", None)
        self.needs_language = given.pop("skip_unlabeled", False)
        self.bounds = {name: given.pop(f"max_{name}", None) for name in (ACTION, "proprio")}
        augmentation = given.pop("task_augment_strategy", None)
        self.augmentation = dict(given.pop("task_augment_kwargs", {}))
        if augmentation not in (None, "delete_task_conditioning"):
            raise NotImplementedError(
                f"task_augment_strategy={augmentation!r}: there is 'delete_task_conditioning'"
            )
        if given.pop("post_chunk_transforms", ()):
            raise NotImplementedError("post_chunk_transforms: change batches instead")
        self.has_augmentation = augmentation is not None
        self.windows = given  # What else there is, the samples check.

    def samples(
        self,
        loaded: loading.Loaded,
        train: bool,
        seed: int,
        *,
        kind: str,
        is_normalized: bool,
        image_size: Any,
    ) -> Samples:
        """The samples of a dataset."""
        augmentation = self.augmentation if train and self.has_augmentation else {}
        samples = _octo.OctoSamples(
            loaded.table,
            loaded.roles,
            loaded.name,
            kind=kind,
            statistics=loaded.statistics if is_normalized else None,
            goal_seed=seed if self.has_goals else None,
            image_size=size_of(image_size),
            draw_seed=seed,
            **self.windows,
            **(self.goals if self.has_goals else {}),
            **augmentation,
        )
        samples = loading.keep_labelled(samples, self.needs_language)
        samples = _keep_within(samples, self.bounds)
        if train and self.length is not None:
            return samples.at_most(self.length, seed=seed)
        return samples


def size_of(given: Any) -> Any:
    """The size of images, or that by camera, as samples take it."""
    if isinstance(given, Mapping):
        return {camera: tuple(size) for camera, size in given.items()} or None
    return tuple(given)


def _keep_within(samples: Any, bounds: Mapping[str, float | None]) -> Any:
    """Leaves out episodes with larger values."""
    paths = {ACTION: ACTION, "proprio": "observation/proprio"}
    wanted = {paths[name]: bound for name, bound in bounds.items() if bound is not None}
    if not wanted:
        return samples

    def is_within(columns: Columns) -> bool:
        return all(
            bool((np.abs(columns[path]) <= bound).all())
            for path, bound in wanted.items()
            if path in columns
        )

    return samples.on(samples.table.filter_episodes(samples.keep_episodes(is_within)))


def _frame_transform(given: dict[str, Any], train: bool) -> Any:
    """What `apply_frame_transforms` does beyond resizing; None if that is nothing."""
    for unneeded in ("num_parallel_calls", "resize_size", "depth_resize_size"):
        given.pop(unneeded, None)
    augmentation = dict(given.pop("image_augment_kwargs", {}))
    share, keep = given.pop("image_dropout_prob", 0.0), given.pop("image_dropout_keep_key", None)
    if given:
        raise TypeError(f"frame_transform_kwargs: {sorted(given)}")
    if not train or not (augmentation or share):
        return None
    return functools.partial(change_images, augmentation, share, keep)
