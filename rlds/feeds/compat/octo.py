"""Drop-in replacement of Octo's dataset functions, for its training scripts, without TensorFlow.

    from rlds.feeds.compat.octo import make_interleaved_dataset, make_single_dataset

The reference is the repository `octo-models/octo`, July 2024. Differences:

* Samples are shuffled over the whole dataset by a seed, and an epoch has each sample once.
  `shuffle_buffer_size` and the numbers of threads are ignored.
* Each process of JAX or torchrun gets different samples.
* Errors are always raised: `ignore_errors` is not supported.
* Functions of trajectories (`standardize_fn`, `filter_functions`) take NumPy arrays. Functions that
  call TensorFlow work if it is installed. These functions can move images, but not read pixels.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.feeds import octo as _octo
from rlds.feeds.augmenting import augment_batch
from rlds.feeds.compat import loading
from rlds.feeds.compat.chains import Chain
from rlds.feeds.mixture import Mixture
from rlds.feeds.permutation import key_of, uniform_of
from rlds.feeds.roles import ACTION
from rlds.feeds.samples import SampleRows, Samples
from rlds.raw_files.restricted_pickle import loads
from rlds.raw_files.untrusted import source_errors
from rlds_ecosystem import import_extra

__all__ = ["make_interleaved_dataset", "make_oxe_dataset_kwargs_and_weights", "make_single_dataset"]

_ACTION_ENCODINGS = ("EEF_POS", "JOINT_POS", "JOINT_POS_BIMANUAL", "JOINT_POS_BIMANUAL_NAV")
_NORMALIZATION_KINDS = {"normal": "normal", "bounds": "bounds_q99"}


def make_single_dataset(
    dataset_kwargs: Mapping[str, Any],
    *,
    train: bool,
    traj_transform_kwargs: Mapping[str, Any] | None = None,
    frame_transform_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Chain:
    """Returns the episodes of a dataset; `unbatch` converts them to samples.

    Args:
      dataset_kwargs: Arguments of Octo's `make_dataset_from_rlds`.
      train: Whether to use the training episodes, and to augment images.
      traj_transform_kwargs: Arguments of Octo's `apply_trajectory_transforms`.
      frame_transform_kwargs: Arguments of Octo's `apply_frame_transforms`.
      seed: The seed of all random choices.

    Raises:
      NotImplementedError: An argument is not supported here; the message names it.
      TypeError: There is no such argument.
    """
    traj, frame = _as_dict(traj_transform_kwargs), _as_dict(frame_transform_kwargs)
    samples, statistics = _load_samples(_as_dict(dataset_kwargs), train, traj, frame, seed)
    return Chain(samples, statistics, _image_augmentation(train, **frame), seed=seed)


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
    """Returns an endless mixture of the samples of several datasets, or batches of it.

    Args:
      dataset_kwargs_list: Arguments of Octo's `make_dataset_from_rlds`, for each dataset.
      sample_weights: The weight of each dataset; all are equal by default.
      train: Whether to use the training episodes, and to augment images.
      shuffle_buffer_size: Ignored: there is no buffer.
      traj_transform_kwargs: Arguments of Octo's `apply_trajectory_transforms`.
      frame_transform_kwargs: Arguments of Octo's `apply_frame_transforms`.
      batch_size: The number of samples in a batch of each process; None for single samples.
      balance_weights: Whether weights are multiplied with the numbers of steps.
      traj_transform_threads: Ignored.
      traj_read_threads: Ignored.
      seed: The seed of all random choices.

    Raises:
      NotImplementedError: An argument is not supported here; the message names it.
      ValueError: A dataset occurs twice, or the number of weights is wrong.
    """
    del shuffle_buffer_size, traj_transform_threads, traj_read_threads
    weights = np.array(sample_weights or [1.0] * len(dataset_kwargs_list), np.float64)
    if len(weights) != len(dataset_kwargs_list):
        raise ValueError(f"{len(weights)} sample_weights for {len(dataset_kwargs_list)} datasets")
    traj, frame = _as_dict(traj_transform_kwargs), _as_dict(frame_transform_kwargs)
    datasets, statistics = [], {}
    for kwargs in map(_as_dict, dataset_kwargs_list):
        if (name := kwargs["name"]) in statistics:
            raise ValueError(f"{name} is listed twice")
        samples, statistics[name] = _load_samples(kwargs, train, traj, frame, seed)
        datasets.append(samples)
    if balance_weights:
        weights = weights * [float(entry["num_transitions"]) for entry in statistics.values()]
    weights = weights / weights.sum()
    chain = Chain(
        Mixture(datasets, weights.tolist()),
        statistics,
        _image_augmentation(train, **frame),
        sample_weights=weights,
        seed=seed,
        batch_size=batch_size,
    )
    return dataclasses.replace(chain, is_flat=True, is_shuffled=True, is_endless=True)


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
    """Returns arguments of `make_interleaved_dataset`, for datasets of `rlds.robotics`.

    Args:
      data_mix: The name of a mixture of Octo, or the weights of datasets.
      data_dir: The folder of the datasets.
      load_camera_views: The cameras to load.
      load_depth: Must be False: depth images are not supported.
      load_proprio: Whether to load the state of the robot.
      load_language: Whether to load the instruction.
      force_recompute_dataset_statistics: Ignored: statistics are always computed.
      action_proprio_normalization_type: "normal" or "bounds".
    """
    del force_recompute_dataset_statistics
    if load_depth:
        raise NotImplementedError("load_depth: depth images are not supported here")
    all_kwargs, weights = [], []
    for name, weight in loading.mixture("octo", data_mix):
        try:
            kwargs, _ = loading.oxe_kwargs(
                name,
                data_dir,
                load_camera_views,
                encodings=_ACTION_ENCODINGS,
                has_state=load_proprio,
                has_language=load_language,
                normalization=action_proprio_normalization_type,
            )
        except ValueError as error:
            warnings.warn(f"dataset skipped: {error}", stacklevel=2)
            continue
        for key in kwargs.pop("state_obs_keys", ()):
            kwargs["proprio_obs_key"] = key
        all_kwargs.append(kwargs)
        weights.append(weight)
    return all_kwargs, weights


def _as_dict(kwargs: Any) -> dict[str, Any]:
    """Returns arguments as a dict, also from a `ConfigDict`."""
    return dict(kwargs.to_dict() if hasattr(kwargs, "to_dict") else kwargs or {})


def _load_samples(
    dataset: dict[str, Any], train: bool, traj: dict[str, Any], frame: dict[str, Any], seed: int
) -> tuple[Samples, dict[str, Any]]:
    """Returns the samples of a dataset, and its statistics in the form of Octo."""
    loaded, kind, is_normalized = _load(train, **dataset)
    options: dict[str, Any] = {"kind": kind, "draw_seed": seed}
    options["statistics"] = loaded.statistics if is_normalized else None
    if kind == _NORMALIZATION_KINDS["bounds"]:
        options["revise"] = loading.EqualBounds(zero_constants=False)
    sizes = frame.get("resize_size") or {}
    if isinstance(sizes, Mapping):
        options["image_size"] = {camera: tuple(size) for camera, size in sizes.items()} or None
    else:
        options["image_size"] = tuple(sizes)
    samples = _transformed_samples(loaded, train, seed, options, **traj)
    mask = dataset.get("action_normalization_mask")
    return samples, loading.to_arrays(_octo.statistics_to_json(loaded.statistics), mask)


def _load(
    train: bool,
    *,
    proprio_obs_key: str | None = None,
    action_proprio_normalization_type: Any = "normal",
    skip_norm: bool = False,
    ignore_errors: bool = False,
    **dataset: Any,
) -> tuple[loading.Loaded, str, bool]:
    """Loads a dataset by arguments of `make_dataset_from_rlds`, with its normalization."""
    if ignore_errors:
        raise NotImplementedError("ignore_errors is not supported: unreadable data raises an error")
    normalization = action_proprio_normalization_type
    kind = _NORMALIZATION_KINDS.get(str(getattr(normalization, "value", normalization)))
    if kind is None:
        expected = f"got {normalization!r}, expected one of {list(_NORMALIZATION_KINDS)}"
        raise ValueError(f"action_proprio_normalization_type: {expected}")
    state = () if proprio_obs_key is None else (proprio_obs_key,)
    return loading.load(**dataset, train=train, state_obs_keys=state), kind, not skip_norm


def _transformed_samples(
    loaded: loading.Loaded,
    train: bool,
    seed: int,
    options: Mapping[str, Any],
    *,
    goal_relabeling_strategy: str | None = None,
    goal_relabeling_kwargs: Mapping[str, Any] | None = None,
    subsample_length: int | None = None,
    skip_unlabeled: bool = False,
    max_action: float | None = None,
    max_proprio: float | None = None,
    task_augment_strategy: str | None = None,
    task_augment_kwargs: Mapping[str, Any] | None = None,
    post_chunk_transforms: Sequence[Any] = (),
    num_parallel_calls: Any = None,
    **windows: Any,
) -> Samples:
    """Returns the samples of a dataset, by arguments of `apply_trajectory_transforms`."""
    del num_parallel_calls
    for strategy, supported in (
        (goal_relabeling_strategy, ("uniform",)),
        (task_augment_strategy, ("delete_task_conditioning", "delete_and_rephrase")),
    ):
        if strategy is not None and strategy not in supported:
            names = " and ".join(map(repr, supported))
            raise NotImplementedError(f"{strategy!r} is not supported, only {names}")
    if post_chunk_transforms:
        raise NotImplementedError("post_chunk_transforms are not supported: change the batches")
    if goal_relabeling_strategy is not None:
        windows |= {"goal_seed": seed, **(goal_relabeling_kwargs or {})}
    if train and task_augment_strategy is not None:
        windows |= task_augment_kwargs or {}
    samples_class: Any = _octo.OctoSamples
    if train and task_augment_strategy == "delete_and_rephrase":
        file = windows.pop("paraphrases_repo"), windows.pop("paraphrases_filename")
        paraphrases = _Paraphrases.read(*file)
        samples_class = functools.partial(_RephrasedSamples, paraphrases=paraphrases)
    samples = samples_class(loaded.table, loaded.roles, loaded.name, **options, **windows)
    samples = loading.keep_labelled(samples, skip_unlabeled)
    samples = _filter_by_bounds(samples, {ACTION: max_action, "observation/proprio": max_proprio})
    if not train or subsample_length is None:
        return samples
    return samples.at_most(subsample_length, seed=seed)


@dataclasses.dataclass(frozen=True)
class _Paraphrases:
    """The paraphrases of instructions: texts with sentences separated by dots."""

    texts: Mapping[bytes, bytes] = dataclasses.field(repr=False)
    digest: str

    @classmethod
    def read(cls, repo: str, filename: str) -> _Paraphrases:
        """Reads a file in a folder, or in a dataset of the Hugging Face Hub."""
        file = Path(repo) / filename
        if not file.exists():
            hub = import_extra("huggingface_hub")
            file = Path(hub.hf_hub_download(repo_id=repo, filename=filename, repo_type="dataset"))
        content = file.read_bytes()
        with source_errors(file):
            texts = {k.encode(): paraphrases.encode() for k, paraphrases in loads(content).items()}
        return cls(texts, hashlib.sha256(content).hexdigest())

    def sentences_of(self, text: bytes) -> list[bytes]:
        """Returns the sentences of an instruction and of its paraphrases, split as in Octo."""
        joined = b".".join([text, self.texts.get(text, b"")])
        return [sentence for sentence in joined.split(b".") if sentence] or [text]


@dataclasses.dataclass(eq=False, repr=False)
class _RephrasedSamples(_octo.OctoSamples):
    """Samples with random paraphrases of instructions in some episodes."""

    _: dataclasses.KW_ONLY
    paraphrases: _Paraphrases
    rephrase_prob: float

    @override
    def _instructions(self, batch: SampleRows) -> Iterator[np.ndarray]:
        _, episodes, steps, epoch = batch
        uniform = uniform_of(episodes, key_of("rephrase", self.draw_seed, epoch))
        choices = uniform_of((episodes << 32) + steps, key_of("paraphrase", self.draw_seed, epoch))
        for texts in super()._instructions(batch):
            texts = texts.copy()
            for row in np.flatnonzero((uniform < self.rephrase_prob) & (texts != b"")):
                paraphrases = self.paraphrases.sentences_of(texts[row])
                texts[row] = paraphrases[int(choices[row] * len(paraphrases))]
            yield texts


def _filter_by_bounds(samples: Any, bounds: Mapping[str, float | None]) -> Any:
    """Excludes episodes whose actions or states exceed a bound."""
    finite_bounds = {path: bound for path, bound in bounds.items() if bound is not None}
    if not finite_bounds:
        return samples
    is_kept = samples.keep_episodes(
        lambda columns: all(
            path not in columns or (np.abs(columns[path]) <= bound).all()
            for path, bound in finite_bounds.items()
        )
    )
    return samples.with_table(samples.table.filter_episodes(is_kept))


def _image_augmentation(
    train: bool,
    *,
    image_augment_kwargs: Mapping[str, Any] | None = None,
    image_dropout_prob: float = 0.0,
    image_dropout_keep_key: str | None = None,
    resize_size: Any = None,
    depth_resize_size: Any = None,
    num_parallel_calls: Any = None,
) -> Any:
    """Returns the image augmentation of `apply_frame_transforms`; None if there is none."""
    del image_dropout_keep_key, resize_size, depth_resize_size, num_parallel_calls
    if image_dropout_prob:
        raise NotImplementedError("image_dropout_prob is not supported: change the batches")
    if not train or not image_augment_kwargs:
        return None
    return functools.partial(augment_batch, image_augment_kwargs)
