"""Drop-in replacement of the datasets of OpenVLA and OpenVLA-OFT, without TensorFlow.

    from rlds.feeds.compat.openvla import RLDSBatchTransform, RLDSDataset, save_dataset_statistics

and for OpenVLA-OFT:

    from rlds.feeds.compat.openvla import OFTDataset as RLDSDataset

The references are `openvla/openvla` and `moojink/openvla-oft`, 2025. Differences:

* Samples are shuffled over the whole dataset by a seed, and an epoch has each sample once.
  `shuffle_buffer_size` is not used to shuffle.
* The ranks of torchrun, and any number of workers of a `DataLoader`, get different samples.
* `state_dict` and `load_state_dict` resume exactly.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlds.feeds import openvla as _openvla
from rlds.feeds.augmenting import augment_batch
from rlds.feeds.compat import loading
from rlds.feeds.compat.chains import Chain, Resumable
from rlds.feeds.mixture import Mixture
from rlds.feeds.samples import Samples
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.nests import map_named_leaves

# Without PyTorch, the base class is `object`.
_IterableDataset: Any = loading.class_of("torch.utils.data", "IterableDataset")

__all__ = [
    "EpisodicRLDSDataset",
    "OFTDataset",
    "RLDSBatchTransform",
    "RLDSDataset",
    "save_dataset_statistics",
]

_IGNORED_LABEL = -100
_AUGMENTATION_STEPS = {
    "random_resized_crop": {"scale": [0.9, 0.9], "ratio": [1.0, 1.0]},
    "random_brightness": [0.2],
    "random_contrast": [0.8, 1.2],
    "random_saturation": [0.8, 1.2],
    "random_hue": [0.05],
}
_AUGMENTATION = {**_AUGMENTATION_STEPS, "augment_order": list(_AUGMENTATION_STEPS)}
# Datasets with this weight determine the length of an epoch.
_PRIMARY_WEIGHT = 1.0


@dataclasses.dataclass
class RLDSBatchTransform:
    """Converts a sample to the inputs of OpenVLA's model; see `prismatic.vla.datasets`.

    Attributes:
      action_tokenizer: Converts actions to text.
      base_tokenizer: Converts text to token IDs.
      image_transform: Converts a PIL image to an input of the model.
      prompt_builder_fn: Builds a prompt.
      predict_stop_token: Whether the stop token is learned.
      use_wrist_image: Whether to include the images of wrist cameras (OpenVLA-OFT).
      use_proprio: Whether to include the state (OpenVLA-OFT).
    """

    action_tokenizer: Any
    base_tokenizer: Any
    image_transform: Callable[[Any], Any]
    prompt_builder_fn: Any
    predict_stop_token: bool = True
    use_wrist_image: bool = False
    use_proprio: bool = False

    def __call__(self, rlds_batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the image, the tokens and the labels of a sample."""
        torch, image = import_extra("torch"), import_extra("PIL.Image").fromarray
        observation, actions = rlds_batch["observation"], rlds_batch["action"]
        tokens = [self.action_tokenizer(action) for action in actions]
        text = rlds_batch["task"]["language_instruction"].decode().lower()
        prompt = self.prompt_builder_fn("openvla")
        prompt.add_turn("human", f"What action should the robot take to {text}?")
        prompt.add_turn("gpt", "".join(tokens))
        token_ids = self.base_tokenizer(prompt.get_prompt(), add_special_tokens=True).input_ids
        input_ids, labels = torch.tensor(token_ids), torch.tensor(list(token_ids))
        # Only the actions and the stop token are learned.
        num_learned = actions.shape[-1] if len(actions) == 1 else len("".join(tokens))
        labels[: -(num_learned + 1)] = _IGNORED_LABEL
        if not self.predict_stop_token:
            labels[-1] = _IGNORED_LABEL
        sample = {
            "pixel_values": self.image_transform(image(observation["image_primary"][0])),
            "input_ids": input_ids,
            "labels": labels,
            "dataset_name": rlds_batch["dataset_name"],
        }
        if len(actions) > 1:
            sample["actions"] = actions
        if self.use_wrist_image:
            wrists = [key for key in observation if "wrist" in key]
            inputs = [self.image_transform(image(observation[key][0])) for key in wrists]
            sample["pixel_values_wrist"] = torch.cat(inputs, dim=0)
        if self.use_proprio and "proprio" in observation:
            sample["proprio"] = observation["proprio"]
        return sample


class RLDSDataset(Resumable, _IterableDataset):  # type: ignore[misc]
    """An endless dataset of the samples of a dataset or mixture, for a PyTorch `DataLoader`.

    Args:
      data_root_dir: The folder of the datasets.
      data_mix: The name of a mixture of OpenVLA, or of a dataset; or the weights of datasets, by
        their names.
      batch_transform: A function of each sample.
      resize_resolution: The height and the width of the images.
      shuffle_buffer_size: Without `train`, the number of samples; otherwise not used.
      train: Whether to use the training episodes.
      image_aug: Whether to augment images.
      seed: The seed of all random choices.
      dataset_kwargs: Arguments of OpenVLA's `make_dataset_from_rlds` by dataset, for datasets that
        are not registered in `rlds.robotics`: `standardize_fn`, `image_obs_keys`, `language_key`.
      goals: Whether samples have goal images, as in OpenVLA, which does not use them. Without goal
        images, half as many images are decoded.

    Attributes:
      dataset: The samples, or the episodes.
      dataset_length: The number of samples until each dataset of weight 1 has been passed once.
      dataset_statistics: Normalization statistics of the action, by the names of datasets.

    Raises:
      KeyError: A field is missing.
      ValueError: A dataset is not registered; the message has the remedy.
    """

    _views: Sequence[str] = ("primary",)
    _encodings: Sequence[str] = ("EEF_POS",)
    _horizon = 1
    _kind = "bounds_q99"
    _is_oft = False

    def __init__(
        self,
        data_root_dir: Any,
        data_mix: Any,
        batch_transform: Callable[[dict[str, Any]], Any],
        resize_resolution: tuple[int, int],
        shuffle_buffer_size: int = 256_000,
        train: bool = True,
        image_aug: bool = False,
        *,
        seed: int = 0,
        dataset_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
        goals: bool = True,
    ) -> None:
        self.data_root_dir, self.data_mix = data_root_dir, data_mix
        self.batch_transform = batch_transform
        datasets, weights, counts = [], [], []
        self.dataset_statistics: dict[str, Any] = {}
        mixture = loading.mixture("openvla", data_mix)
        for name, weight in mixture:
            try:
                kwargs = self._kwargs(name, (dataset_kwargs or {}).get(name))
            except ValueError as error:
                if len(mixture) == 1:
                    raise
                warnings.warn(f"dataset skipped: {error}", stacklevel=2)
                continue
            mask = kwargs.get("action_normalization_mask")
            samples, statistics = self._samples(kwargs, train, resize_resolution, seed, goals)
            plain = json.loads(_openvla.statistics_to_json(statistics))
            self.dataset_statistics[name] = loading.to_arrays(json.dumps(plain), mask)
            datasets.append(samples)
            weights.append(weight)
            counts.append(int(plain["num_transitions"]))
        is_augmented = image_aug and train
        augment = functools.partial(augment_batch, _AUGMENTATION) if is_augmented else None
        chain = Chain(datasets[0], self.dataset_statistics, augment, seed=seed)
        self.dataset, self.dataset_length = self._chain(datasets, weights, counts, chain)
        if not train and self.dataset.is_flat:
            self.dataset = self.dataset.take(shuffle_buffer_size)

    def _kwargs(self, name: str, custom: Mapping[str, Any] | None) -> dict[str, Any]:
        if custom is not None:
            return {"name": name, "data_dir": str(self.data_root_dir), **custom}
        kwargs, meaning = loading.oxe_kwargs(
            name,
            self.data_root_dir,
            self._views,
            encodings=self._encodings,
            has_state=self._is_oft,
            has_language=True,
            normalization=self._kind,
        )
        if self._is_oft:  # OFT has no zeros in the state.
            state = tuple(field for field in meaning.standard_state if field != "0")
            meaning = dataclasses.replace(meaning, standard_state=state, state_encoding="")
            kwargs["standardize_fn"] = loading.Standardize(meaning)
        kwargs["absolute_action_mask"] = list(meaning.absolute_action_mask)
        if "BIMANUAL" in meaning.action_encoding:
            kwargs["action_normalization_mask"] = [True] * len(meaning.action_mask)
        return kwargs

    def _samples(
        self, kwargs: dict[str, Any], train: bool, size: Any, seed: int, goals: bool
    ) -> tuple[Samples, Any]:
        normalization = kwargs.pop("action_proprio_normalization_type", self._kind)
        kind = str(getattr(normalization, "value", normalization))
        absolute = kwargs.pop("absolute_action_mask", None)
        loaded = loading.load(**kwargs, train=train, has_validation=not self._is_oft)
        samples = _openvla.OpenVLASamples(
            loaded.table,
            loaded.roles,
            loaded.name,
            future_action_window_size=self._horizon - 1,
            absolute_action_mask=absolute,
            only_whole=self._is_oft,
            statistics=loaded.statistics,
            kind=kind,
            revise=None if kind == "normal" else loading.EqualBounds(True, kind == "bounds_q99"),
            goal_seed=seed if goals else None,
            image_size=tuple(size),
            draw_seed=seed,
        )
        return loading.keep_labelled(samples, True), loaded.statistics

    def _chain(
        self, datasets: list[Any], weights: list[float], counts: list[int], chain: Chain
    ) -> tuple[Chain, int]:
        mixture_weights = np.array(weights) * np.array(counts)
        mixture_weights = mixture_weights / mixture_weights.sum()
        lengths = np.array(counts) / mixture_weights
        is_primary = np.array(weights) == _PRIMARY_WEIGHT
        chain = dataclasses.replace(
            chain,
            samples=Mixture(datasets, mixture_weights.tolist()),
            sample_weights=mixture_weights,
            is_flat=True,
            is_shuffled=True,
            is_endless=True,
        )
        return chain, int(lengths[is_primary].max() if is_primary.any() else lengths.max())

    def __iter__(self) -> Iterator[Any]:
        return map(self.batch_transform, self.iterate())

    def __len__(self) -> int:
        return self.dataset_length

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"items have no index (got {idx}): iterate over the dataset")


class EpisodicRLDSDataset(RLDSDataset):
    """The episodes of one dataset, each as a list of its samples; see `RLDSDataset`."""

    def _chain(
        self, datasets: list[Any], weights: list[float], counts: list[int], chain: Chain
    ) -> tuple[Chain, int]:
        del weights, counts
        if len(datasets) != 1:
            raise ValueError(f"episodes: expected one dataset, got {len(datasets)}")
        return chain, int(next(iter(self.dataset_statistics.values()))["num_trajectories"])

    def __iter__(self) -> Iterator[Any]:
        for episode in self.dataset:
            yield [self.batch_transform(row) for row in _openvla.rows_of(episode)]


class OFTDataset(RLDSDataset):
    """The `RLDSDataset` of OpenVLA-OFT: with action chunks, the state, and wrist cameras.

    The length of the chunks and their normalization come from `prismatic.vla.constants`, which
    derives them from the training command.
    """

    _encodings = ("EEF_POS", "JOINT_POS_BIMANUAL")
    _is_oft = True

    def __init__(self, data_root_dir: Any, data_mix: Any, *args: Any, **kwargs: Any) -> None:
        constants = importlib.import_module("prismatic.vla.constants")
        self._horizon = int(constants.NUM_ACTIONS_CHUNK)
        self._kind = str(constants.ACTION_PROPRIO_NORMALIZATION_TYPE.value)
        is_bimanual = "aloha" in str(data_mix)
        self._views = ("primary", *(("left_wrist", "right_wrist") if is_bimanual else ("wrist",)))
        super().__init__(data_root_dir, data_mix, *args, **kwargs)


def save_dataset_statistics(dataset_statistics: Mapping[str, Any], run_dir: Any) -> None:
    """Writes `dataset_statistics.json`, which OpenVLA needs next to a checkpoint.

    Args:
      dataset_statistics: The statistics of the `RLDSDataset`.
      run_dir: The folder.
    """
    plain = map_named_leaves(lambda _, value: np.asarray(value).tolist(), dict(dataset_statistics))
    (Path(run_dir) / "dataset_statistics.json").write_text(json.dumps(plain, indent=2))
