"""The fields of steps and episodes."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import rlds
from rlds import rlds_types
from rlds.rlds_types import is_valid_rlds_dataset

FLAGS = {"is_first": [True, False, False], "is_last": [False, False, True]}


def test_build_step_omits_missing_values() -> None:
    step = rlds.build_step(None, None, None, None, None, True, False)
    assert step == {"is_first": True, "is_last": False}


def test_build_step_stores_values_unchanged() -> None:
    observation = np.zeros(3)
    step = rlds.build_step(observation, 1, 0.0, 1.0, False, True, False, {"alignment": 2})
    assert step["observation"] is observation
    assert step == {
        "observation": observation,
        "action": 1,
        "reward": 0.0,
        "discount": 1.0,
        "is_terminal": False,
        "is_first": True,
        "is_last": False,
        "alignment": 2,
    }


@pytest.mark.parametrize("field", sorted(rlds.CORE_STEP_FIELDS))
def test_step_metadata_may_not_have_the_name_of_a_step_field(field: str) -> None:
    with pytest.raises(ValueError, match=rf"Invalid Step Metadata: .*\['{field}'\]"):
        rlds.build_step(None, None, None, None, None, True, False, metadata={field: 5})


def test_build_episode_joins_steps_and_metadata() -> None:
    steps = [rlds.build_step(0, 0, 0, 0, False, True, True)]
    assert rlds.build_episode(steps, {"episode_id": "a"}) == {"steps": steps, "episode_id": "a"}
    with pytest.raises(ValueError, match=r"Invalid Episode Metadata: .*'steps'"):
        rlds.build_episode(steps, {"steps": 1})


def dataset_of(*all_steps: Any, nested: bool) -> tf.data.Dataset:
    dataset = None
    for steps in all_steps:
        steps = tf.nest.map_structure(np.asarray, steps)
        nested_steps = tf.data.Dataset.from_tensor_slices(steps) if nested else steps
        episode = tf.data.Dataset.from_tensors({"steps": nested_steps, "number": 1})
        dataset = episode if dataset is None else dataset.concatenate(episode)
    return dataset


def columns(**flags: list[Any]) -> dict[str, Any]:
    lists = {**FLAGS, **flags}
    return {name: np.array(values) for name, values in lists.items() if values is not None}


def make_flags(n: int) -> dict[str, Any]:
    return columns(is_first=np.arange(n) == 0, is_last=np.arange(n) == n - 1)


@pytest.mark.parametrize("nested", [True, False])
class TestIsValidRldsDataset:
    def test_datasets_with_correct_flags_are_valid(self, nested: bool) -> None:
        assert is_valid_rlds_dataset(dataset_of(columns(), nested=nested))
        assert is_valid_rlds_dataset(dataset_of(make_flags(1), nested=nested))
        long = make_flags(10_000)
        assert is_valid_rlds_dataset(dataset_of(make_flags(2), long, nested=nested))
        for is_terminal in ([False, False, True], [False, False, False]):
            dataset = dataset_of(columns(is_terminal=is_terminal, reward=[1, 2, 3]), nested=nested)
            assert is_valid_rlds_dataset(dataset)

    @pytest.mark.parametrize(
        "flags",
        [
            {"is_first": [False, False, False]},
            {"is_first": [True, True, False]},
            {"is_last": [False, False, False]},
            {"is_last": [False, True, True]},
            {"is_terminal": [False, True, False]},
        ],
    )
    def test_any_wrong_flags_are_invalid(self, nested: bool, flags: dict[str, list[bool]]) -> None:
        valid = columns(is_terminal=[False, False, True])
        invalid = columns(**{"is_terminal": [False, False, False], **flags})
        assert not is_valid_rlds_dataset(dataset_of(valid, valid, invalid, nested=nested))

    def test_datasets_without_flags_or_steps_are_invalid(self, nested: bool) -> None:
        assert not is_valid_rlds_dataset(dataset_of(columns(is_last=None), nested=nested))
        assert not is_valid_rlds_dataset(dataset_of(columns(is_first=None), nested=nested))
        assert not is_valid_rlds_dataset(dataset_of(columns(is_last=[0, 0, 1]), nested=nested))
        assert not is_valid_rlds_dataset(
            dataset_of(columns(is_last=[[False], [False], [True]]), nested=nested)
        )
        assert not is_valid_rlds_dataset(dataset_of(np.arange(3), nested=nested))
        renamed = dataset_of(columns(), nested=nested).map(lambda e: {"mysteps": e["steps"]})
        assert not is_valid_rlds_dataset(renamed)

    def test_an_empty_dataset_is_valid_and_an_empty_episode_is_not(self, nested: bool) -> None:
        assert is_valid_rlds_dataset(dataset_of(columns(), nested=nested).take(0))
        assert not is_valid_rlds_dataset(dataset_of(columns(), make_flags(0), nested=nested))


@pytest.mark.slow
def test_other_fields_may_vary_in_shape() -> None:
    steps = tf.data.Dataset.range(3).map(
        lambda i: {"is_first": i == 0, "is_last": i == 2, "observation": tf.range(i)}
    )
    assert is_valid_rlds_dataset(tf.data.Dataset.from_tensors({"steps": steps}))


def test_dataset_of_numbers_is_invalid() -> None:
    assert not is_valid_rlds_dataset(tf.data.Dataset.range(3))


def test_constants_hold_the_field_names_of_rlds() -> None:
    for name in ("observation", "action", "reward", "discount", "is_first", "is_last"):
        assert getattr(rlds_types, name.upper()) == name
    assert sorted(rlds_types.CORE_STEP_FIELDS) == [
        *("action", "discount", "is_first", "is_last", "is_terminal", "observation", "reward")
    ]
    assert (rlds.STEPS, rlds.ALIGNMENT, rlds.IS_TERMINAL) == ("steps", "alignment", "is_terminal")
