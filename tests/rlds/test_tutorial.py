"""What the tutorial of the published package does with a dataset, on two small episodes.

The calls are as in its notebook; the numbers are easy to check by hand.
"""

import numpy as np
import pytest
import tensorflow as tf

import rlds
from rlds import transformations as rt

# What each transformation does is tested with it, and the notebook of it runs, too.
pytestmark = pytest.mark.slow

REWARDS = ([1.0, 6.0, 2.0, 0.0], [2.0, 3.0, 0.0])


def episode(rewards: list[float], *, is_terminal: bool) -> tf.data.Dataset:
    index = np.arange(len(rewards))
    is_last = index == len(rewards) - 1
    steps = {
        rlds.OBSERVATION: np.float32([index, 10 * index]).T,
        rlds.ACTION: np.float32([index] * 3).T,
        rlds.REWARD: np.float32(rewards),
        rlds.DISCOUNT: np.ones(len(rewards), np.float32),
        rlds.IS_FIRST: index == 0,
        rlds.IS_LAST: is_last,
        rlds.IS_TERMINAL: is_last & is_terminal,
    }
    return tf.data.Dataset.from_tensors({rlds.STEPS: steps, "episode_id": rewards[0]})


@pytest.fixture(scope="module")
def dataset() -> tf.data.Dataset:
    first, second = REWARDS
    both = episode(first, is_terminal=True).concatenate(episode(second, is_terminal=False))
    return both.map(lambda e: {**e, rlds.STEPS: tf.data.Dataset.from_tensor_slices(e[rlds.STEPS])})


def columns(dataset: tf.data.Dataset, field: str) -> list[list]:
    """The values of a field, in one list for each episode."""
    return [[step[field].tolist() for step in e[rlds.STEPS].as_numpy_iterator()] for e in dataset]


def with_steps(dataset: tf.data.Dataset, function) -> tf.data.Dataset:
    return dataset.map(lambda e: {**e, rlds.STEPS: function(e[rlds.STEPS])})


def test_episodes_are_cut_shifted_and_extended(dataset: tf.data.Dataset) -> None:
    spec = dataset.element_spec[rlds.STEPS]
    zero = rlds.build_episode(
        steps=rt.zero_dataset_like(spec),
        metadata=rt.zeros_from_spec({"episode_id": dataset.element_spec["episode_id"]}),
    )
    assert float(zero["episode_id"]) == 0.0
    assert len(list(zero[rlds.STEPS])) == 1

    shifted = with_steps(dataset, lambda s: rt.alignment.shift_keys(s, [rlds.OBSERVATION], -2))
    assert columns(shifted, rlds.OBSERVATION) == [[[0, 0], [1, 10]], [[0, 0]]]
    assert columns(shifted, rlds.REWARD) == [[2, 0], [0]]

    cut = with_steps(dataset, lambda s: rt.truncate_after_condition(s, lambda x: x["reward"] > 5.0))
    assert columns(cut, rlds.REWARD) == [[1, 6], [2, 3, 0]]
    taken = rt.apply_nested_steps(dataset, lambda steps: steps.take(2))
    assert columns(taken, rlds.REWARD) == [[1, 6], [2, 3]]

    padding = tf.data.Dataset.from_tensors({"is_padding": [True]})
    padded = with_steps(dataset, lambda s: rt.concatenate(s, padding))
    assert columns(padded, "is_padding") == [[[False]] * n + [[True]] for n in (4, 3)]
    absorbing = with_steps(
        dataset, lambda s: rt.concat_if_terminal(s, lambda _: rt.zero_dataset_like(spec))
    )
    assert [len(rewards) for rewards in columns(absorbing, rlds.REWARD)] == [5, 3]
    assert rt.batch(dataset, 2, 3).element_spec["episode_id"].shape.rank == 1


def test_sums_lengths_and_statistics(dataset: tf.data.Dataset) -> None:
    @tf.function
    def valid_reward(step):
        if step[rlds.IS_LAST]:
            return {rlds.REWARD: tf.zeros_like(step[rlds.REWARD])}
        else:
            return {rlds.REWARD: step[rlds.REWARD]}

    assert rt.sum_nested_steps(dataset, valid_reward)[rlds.REWARD].numpy() == 14.0

    def with_average(e):
        total = rt.nested_ops.sum_dataset(e[rlds.STEPS], valid_reward)
        count = tf.cast(rt.episode_length(e[rlds.STEPS]), tf.float32)
        return {**e, "average": total[rlds.REWARD] / (count - 1)}

    averages = dataset.map(with_average)
    assert [float(e["average"]) for e in averages] == [3.0, 2.5]
    assert len(list(averages.filter(lambda e: e["average"] <= 2.5))) == 1

    mean, std = rt.mean_and_std(dataset, rt.sar_fields_mask)
    valid = np.array([1.0, 6.0, 2.0, 2.0, 3.0])
    assert mean[rlds.REWARD].numpy() == pytest.approx(valid.mean())
    assert std[rlds.REWARD] == pytest.approx(valid.std(ddof=1))
    shift = -mean[rlds.OBSERVATION].numpy()
    scale = 1.0 / np.maximum(std[rlds.OBSERVATION], 1e-3)

    def normalize(step):
        step[rlds.OBSERVATION] = (step[rlds.OBSERVATION] + shift) * scale
        return step

    normalized = np.concatenate(columns(rt.map_nested_steps(dataset, normalize), rlds.OBSERVATION))
    assert normalized.mean(0) == pytest.approx([0, 0], abs=1e-6)
    assert normalized.std(0, ddof=1) == pytest.approx([1, 1])


def test_transitions_and_other_alignments(dataset: tf.data.Dataset) -> None:
    def n_step(steps, n):
        def merge(window):
            return {
                rlds.OBSERVATION: window[rlds.OBSERVATION][0],
                rlds.REWARD: tf.experimental.numpy.sum(window[rlds.REWARD][:-1]),
                "next_observation": window[rlds.OBSERVATION][-1],
                "next_is_last": window[rlds.IS_LAST][-1],
            }

        return rt.batch(steps, size=n, shift=1, drop_remainder=True).map(merge)

    pairs = with_steps(dataset, lambda steps: n_step(steps, 2))
    assert columns(pairs, rlds.REWARD) == [[1, 6, 2], [2, 3]]
    assert columns(pairs, "next_observation")[1] == [[1, 10], [2, 20]]
    triples = with_steps(dataset, lambda steps: n_step(steps, 3))
    assert columns(triples, rlds.REWARD) == [[7, 8], [5]]
    assert columns(triples, "next_is_last") == [[False, True], [True]]

    def sar_to_ars(steps):
        steps = rt.concatenate(rt.zero_dataset_like(steps), steps)
        keys = [rlds.OBSERVATION, rlds.IS_FIRST, rlds.IS_TERMINAL]
        return rt.shift_keys(steps, keys, shift=-1).map(
            lambda step: rt.add_alignment_to_step(step, rt.AlignmentType.ARS)
        )

    ars = with_steps(dataset, sar_to_ars)
    assert columns(ars, rlds.REWARD) == columns(dataset, rlds.REWARD)
    assert columns(ars, rlds.OBSERVATION)[1] == [[0, 0], [0, 0], [1, 10]]
    assert {*columns(ars, rlds.ALIGNMENT)[0]} == {rt.AlignmentType.ARS.value}
