"""Transformations of datasets of steps and of episodes.

Every function takes an episode's steps in either layout, nested (a `tf.data.Dataset` of steps) or
batched (one dict of tensors with a leading time axis), gives the same values in both, and returns
the layout it was given. The same holds for the `steps` of a dataset of episodes.
"""

from rlds_ecosystem import missing_tensorflow as _missing_tensorflow

if _error := _missing_tensorflow(__name__):
    raise _error

from rlds.transformations import structured_writer
from rlds.transformations.absorbing import add_absorbing_states
from rlds.transformations.alignment import AlignmentType, add_alignment_to_step, shift_keys
from rlds.transformations.dataset_concat import concat_if_terminal, concatenate
from rlds.transformations.dataset_stats import mean_and_std, sar_fields_mask
from rlds.transformations.dataset_truncate import truncate_after_condition
from rlds.transformations.filters import (
    drop_idle_steps,
    has_length,
    has_return,
    is_successful,
    is_usable,
    subsample,
)
from rlds.transformations.flexible_batch import BATCH_AUTO_TUNE, batch
from rlds.transformations.goals import relabel_goals
from rlds.transformations.layouts import to_batched, to_nested
from rlds.transformations.mixtures import mix
from rlds.transformations.nested_ops import (
    apply_nested_steps,
    episode_length,
    final_step,
    map_nested_steps,
    map_steps,
    sum_dataset,
    sum_nested_steps,
)
from rlds.transformations.normalization import normalize, unnormalize
from rlds.transformations.pattern import pattern_map, pattern_map_from_transform, step_spec
from rlds.transformations.pattern_dataset import PatternDataset
from rlds.transformations.returns import episode_return, returns_to_go
from rlds.transformations.reverb_alias import install_reverb_alias
from rlds.transformations.sampling import shard_episodes, shuffle_steps
from rlds.transformations.shape_ops import uniform_from_spec, zero_dataset_like, zeros_from_spec
from rlds.transformations.statistics import FieldStatistics, Statistics, compute_statistics
from rlds.transformations.transition_ops import transitions
from rlds.transformations.window_ops import windows

__all__ = [
    "BATCH_AUTO_TUNE",
    "AlignmentType",
    "FieldStatistics",
    "PatternDataset",
    "Statistics",
    "add_absorbing_states",
    "add_alignment_to_step",
    "apply_nested_steps",
    "batch",
    "compute_statistics",
    "concat_if_terminal",
    "concatenate",
    "drop_idle_steps",
    "episode_length",
    "episode_return",
    "final_step",
    "has_length",
    "has_return",
    "install_reverb_alias",
    "is_successful",
    "is_usable",
    "map_nested_steps",
    "map_steps",
    "mean_and_std",
    "mix",
    "normalize",
    "pattern_map",
    "pattern_map_from_transform",
    "relabel_goals",
    "returns_to_go",
    "sar_fields_mask",
    "shard_episodes",
    "shift_keys",
    "shuffle_steps",
    "step_spec",
    "structured_writer",
    "subsample",
    "sum_dataset",
    "sum_nested_steps",
    "to_batched",
    "to_nested",
    "transitions",
    "truncate_after_condition",
    "uniform_from_spec",
    "unnormalize",
    "windows",
    "zero_dataset_like",
    "zeros_from_spec",
]
