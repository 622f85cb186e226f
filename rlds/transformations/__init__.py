"""Transformations of datasets of steps and of episodes.

Every function takes an episode's steps in either layout, nested (a `tf.data.Dataset` of steps) or
batched (one dict of tensors with a leading time axis), gives the same values in both, and returns
the layout it was given. The same holds for the `steps` of a dataset of episodes.
"""

from rlds.transformations.dataset_stats import mean_and_std, sar_fields_mask
from rlds.transformations.flexible_batch import BATCH_AUTO_TUNE, batch
from rlds.transformations.nested_ops import (
    apply_nested_steps,
    episode_length,
    final_step,
    map_nested_steps,
    map_steps,
    sum_dataset,
    sum_nested_steps,
)
from rlds.transformations.shape_ops import zero_dataset_like, zeros_from_spec

__all__ = [
    "BATCH_AUTO_TUNE",
    "apply_nested_steps",
    "batch",
    "episode_length",
    "final_step",
    "map_nested_steps",
    "map_steps",
    "mean_and_std",
    "sar_fields_mask",
    "sum_dataset",
    "sum_nested_steps",
    "zero_dataset_like",
    "zeros_from_spec",
]
