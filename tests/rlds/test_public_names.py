"""The names that users of RLDS import, and what importing them costs."""

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import rlds
from rlds import transformations

MODULES = sorted(module.name for module in pkgutil.walk_packages(rlds.__path__, prefix="rlds."))


def loads_tensorflow(code: str) -> bool:
    run = subprocess.run(
        [sys.executable, "-c", f"import sys, rlds\n{code}\nprint('tensorflow' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(rlds.__file__).parents[1],
    )
    return run.stdout == "True\n"


def test_tensorflow_is_not_loaded_for_names() -> None:
    assert not loads_tensorflow(
        "rlds.build_step, rlds.metadata.INVALID, rlds.rlds_types.is_valid_rlds_dataset\n"
        "assert 'transformations' in dir(rlds)"
    )


@pytest.mark.parametrize("code", ["rlds.transformations", "from rlds import transformations"])
def test_tensorflow_is_loaded_for_transformations(code: str) -> None:
    assert loads_tensorflow(code)


def test_all_ways_to_import_are_the_same() -> None:
    import rlds.transformations
    from rlds import transformations as by_package
    from rlds.transformations import batch, flexible_batch

    assert rlds.transformations is by_package
    assert rlds.transformations.batch is batch is flexible_batch.batch


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rlds' has no attribute 'transformation'"):
        rlds.transformation  # noqa: B018


@pytest.mark.parametrize("name", ["rlds", *MODULES])
def test_every_module_lists_names_that_it_has(name: str) -> None:
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public)


def test_names_of_the_original() -> None:
    arguments = {
        "apply_nested_steps": "(episodes_dataset, transform_step_dataset)",
        "batch": "(dataset, size=-1, shift=None, stride=1, drop_remainder=False)",
        "episode_length": "(steps_dataset, optimization_batch_size=-1)",
        "final_step": "(steps_dataset)",
        "map_nested_steps": "(episodes_dataset, transform_step, optimization_batch_size=-1)",
        "map_steps": "(steps_dataset, transform_step, optimization_batch_size=-1)",
        "mean_and_std": "(episodes_dataset, get_step_fields, optimization_batch_size=-1)",
        "sar_fields_mask": "(step)",
        "sum_dataset": "(steps_dataset, data_to_sum, optimization_batch_size=-1)",
        "sum_nested_steps": "(episodes_dataset, data_to_sum, optimization_batch_size=-1)",
        "zero_dataset_like": "(ds)",
        "zeros_from_spec": "(spec)",
    }
    assert {*arguments, "BATCH_AUTO_TUNE"} == set(transformations.__all__)
    assert transformations.BATCH_AUTO_TUNE == -1
    for name, expected in arguments.items():
        function = getattr(transformations, name)
        signature = inspect.signature(function)
        plain = [
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in signature.parameters.values()
        ]
        assert str(inspect.Signature(plain)) == expected
        module = importlib.import_module(function.__module__)
        assert name in module.__all__


@pytest.mark.parametrize(
    ("name", "attempted"),
    [
        ("rlds.rlds_types", 8),
        ("rlds.transformations.dataset_stats", 6),
        ("rlds.transformations.flexible_batch", 10),
        ("rlds.transformations.nested_ops", 21),
        ("rlds.transformations.shape_ops", 7),
    ],
)
def test_examples_in_docstrings_run(name: str, attempted: int) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result == doctest.TestResults(failed=0, attempted=attempted)
