import io

import numpy as np
import pytest
import raw_rlu
from PIL import Image

import rlds.sources

RluDmlabSource = rlds.sources.formats()["rlu_dmlab"].load()


def read(directory, raw, **kwargs):
    raw_rlu.write_files(directory, "tfrecord", raw)
    source = RluDmlabSource(directory, **kwargs)
    return source, [e for file in source.parts("train") for e in source.episodes("train", file)]


@pytest.mark.parametrize("order", ["sar", "rsa"])
def test_rewards_determine_the_alignment(tmp_path, order):
    raw = raw_rlu.dmlab_episodes(order=order, shape=(6, 4))
    source, episodes = read(tmp_path, raw)
    assert source.alignment == order
    shift = 1 if order == "rsa" else 0
    for episode, expected in zip(episodes, raw, strict=True):
        steps, transitions = episode.steps, len(expected["actions"]) - 1
        assert episode.final_observation_known
        assert episode.num_steps == transitions + 1
        for t in range(transitions):
            assert steps["action"][t] == expected["actions"][t]
            assert steps["reward"][t] == expected["rewards"][t + shift]
            assert steps["discounted_rewards"][t] == expected["discounted_rewards"][t + shift]
            assert steps["discount"][t] == expected["discounts"][t + shift]
            # The next observation has the reward and the action of the transition.
            assert steps["observation"]["last_reward"][t + 1] == steps["reward"][t]
            assert steps["observation"]["last_action"][t + 1][steps["action"][t]] == 1
        is_terminal = expected["discounts"][-1 if order == "rsa" else -2] == 0
        assert steps["is_terminal"].tolist() == [False] * transitions + [is_terminal]
        assert episode.truncated == (not is_terminal)
    assert {episode.truncated for episode in episodes} == {True, False}


def test_values_outside_of_transitions_are_kept(tmp_path):
    raw = raw_rlu.dmlab_episodes(shape=(6, 4))
    _, episodes = read(tmp_path, raw)
    for episode, expected in zip(episodes, raw, strict=True):
        assert episode.metadata == {
            "recorded_episode_id": expected["episode_id"][0],
            "start_idx": 0,
            "episode_return": expected["episode_return"][0],
            "placeholders": {
                "action": expected["actions"][-1],
                "reward": expected["rewards"][-1],
                "discounted_rewards": expected["discounted_rewards"][-1],
                "discount": expected["discounts"][-1],
            },
        }


def test_the_last_action_before_the_first_step_is_all_zeros(tmp_path):
    _, (first, *_) = read(tmp_path, raw_rlu.dmlab_episodes(shape=(6, 4)))
    last_action = first.steps["observation"]["last_action"]
    assert last_action.shape == (5, 15)
    assert last_action.sum(axis=1).tolist() == [0, 1, 1, 1, 1]


def test_images_are_unchanged_and_their_channel_order_is_in_the_metadata(tmp_path):
    raw = raw_rlu.dmlab_episodes(1)
    source, (episode,) = read(tmp_path, raw)
    pixels = episode.steps["observation"]["pixels"]
    assert pixels.tolist() == raw[0]["observations_pixels"]
    assert source.source_info.metadata["channel_order"] == {"observation/pixels": "BGR"}
    assert source.fields.steps["observation"]["pixels"].shape == (72, 96, 3)
    rng = np.random.default_rng(0)  # The first image that the generator draws.
    rng.integers(0, 15, 5), rng.integers(0, 5, 5)
    expected = rng.integers(0, 256, (5, 72, 96, 3), np.uint8)[0]
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(pixels[0])))[..., ::-1], expected
    )


def test_the_alignment_is_sar_if_there_are_no_rewards(tmp_path):
    source, _ = read(tmp_path, raw_rlu.dmlab_episodes(rewards=False, shape=(6, 4)))
    assert source.alignment == "sar"


def test_a_later_episode_may_determine_the_alignment(tmp_path):
    without_rewards = raw_rlu.dmlab_episodes(3, rewards=False, shape=(6, 4))
    with_rewards = raw_rlu.dmlab_episodes(1, order="rsa", shape=(6, 4))
    assert read(tmp_path, without_rewards + with_rewards)[0].alignment == "rsa"


def test_the_alignment_option_replaces_the_detected_one(tmp_path):
    raw = raw_rlu.dmlab_episodes(shape=(6, 4))
    source, (first, *_) = read(tmp_path, raw, alignment="rsa")
    assert source.source_info.options == {"alignment": "rsa"}
    assert first.steps["reward"][0] == raw[0]["rewards"][1]


def test_unknown_observations_are_kept(tmp_path):
    raw = raw_rlu.dmlab_episodes(1, shape=(6, 4))
    raw[0]["observations_velocity"] = np.arange(15, dtype=np.float32)
    _, (episode,) = read(tmp_path, raw)
    assert episode.steps["observation"]["velocity"][4].tolist() == [12, 13, 14]
