"""Public names of RLDS, and the modules that importing them loads."""

import importlib
import inspect
import subprocess
import sys

import pytest

import rlds
from rlds import transformations


def test_tensorflow_is_loaded_only_for_transformations() -> None:
    code = """if True:
        import sys
        sys.modules["tensorflow"] = None  # Importing it fails.
        import rlds
        rlds.build_step, rlds.metadata.INVALID, rlds.rlds_types.is_valid_rlds_dataset
        assert "transformations" in dir(rlds)
        try:
            rlds.transformations
        except ModuleNotFoundError as e:
            print(e.name)
        try:
            from rlds import transformations
        except ModuleNotFoundError as e:
            print(e.name)
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "tensorflow\ntensorflow\n"


def test_all_ways_to_import_give_the_same_module() -> None:
    import rlds.transformations
    from rlds import transformations as by_package
    from rlds.transformations import batch, flexible_batch

    assert rlds.transformations is by_package
    assert rlds.transformations.batch is batch is flexible_batch.batch


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rlds' has no attribute 'transformation'"):
        rlds.transformation  # noqa: B018


# Signatures of upstream.
UPSTREAM_SIGNATURES = {
    "add_alignment_to_step": "(step, alignment)",
    "apply_nested_steps": "(episodes_dataset, transform_step_dataset)",
    "batch": "(dataset, size=-1, shift=None, stride=1, drop_remainder=False)",
    "concat_if_terminal": "(steps, make_extra_steps)",
    "concatenate": "(steps1, steps2)",
    "episode_length": "(steps_dataset, optimization_batch_size=-1)",
    "final_step": "(steps_dataset)",
    "map_nested_steps": "(episodes_dataset, transform_step, optimization_batch_size=-1)",
    "map_steps": "(steps_dataset, transform_step, optimization_batch_size=-1)",
    "mean_and_std": "(episodes_dataset, get_step_fields, optimization_batch_size=-1)",
    "pattern_map": "(episodes_dataset, configs, respect_episode_boundaries=True)",
    "pattern_map_from_transform": (
        "(episodes_dataset, transform_fn, conditions=None, respect_episode_boundaries=True)"
    ),
    "sar_fields_mask": "(step)",
    "shift_keys": "(steps, keys, shift, batch_size=-1)",
    "step_spec": "(episodes_dataset)",
    "sum_dataset": "(steps_dataset, data_to_sum, optimization_batch_size=-1)",
    "sum_nested_steps": "(episodes_dataset, data_to_sum, optimization_batch_size=-1)",
    "truncate_after_condition": "(steps_dataset, truncate_condition)",
    "uniform_from_spec": "(spec, minval, maxval, seed)",
    "zero_dataset_like": "(ds)",
    "zeros_from_spec": "(spec)",
}
ADDED_NAMES = {
    *("FieldStatistics", "PatternDataset", "Statistics", "add_absorbing_states"),
    *("compute_statistics", "drop_idle_steps", "episode_return", "has_length", "has_return"),
    "install_reverb_alias",
    *("is_successful", "is_usable", "mix", "normalize", "relabel_goals", "returns_to_go"),
    *("shard_episodes", "shuffle_steps", "structured_writer", "subsample", "to_batched"),
    *("to_nested", "transitions", "unnormalize", "windows"),
}


def test_all_lists_names_of_upstream_and_added_names() -> None:
    upstream_names = {*UPSTREAM_SIGNATURES, "AlignmentType", "BATCH_AUTO_TUNE"}
    assert upstream_names | ADDED_NAMES == set(transformations.__all__)
    assert transformations.BATCH_AUTO_TUNE == -1


@pytest.mark.parametrize("name", UPSTREAM_SIGNATURES)
def test_positional_arguments_equal_those_of_upstream(name: str) -> None:
    function = getattr(transformations, name)
    positional = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    assert str(inspect.Signature(positional)) == UPSTREAM_SIGNATURES[name]
    assert name in importlib.import_module(function.__module__).__all__
