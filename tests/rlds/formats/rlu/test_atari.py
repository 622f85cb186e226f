import numpy as np
import pytest
import raw_rlu
import tensorflow as tf

import rlds.sources
from rlds.sources import DamagedEpisode, SourceError
from rlds.tfds import load
from tfds_builders import RldsRluAtari, RluConfig, convert

RluAtariSource = rlds.sources.formats()["rlu_atari"].load()


@pytest.fixture
def raw():
    return raw_rlu.atari_episodes(shape=(6, 4))


def read(directory, raw, **kwargs):
    raw_rlu.write_files(directory, "run_1", raw)
    source = RluAtariSource(directory, **kwargs)
    return [e for file in source.parts("train") for e in source.episodes("train", file)]


def test_a_row_is_a_transition(tmp_path, raw):
    for episode, expected in zip(read(tmp_path, raw), raw, strict=True):
        steps, rows = episode.steps, len(expected["actions"])
        assert not episode.final_observation_known
        assert episode.num_steps == rows
        is_terminal = expected["discounts"][-1] == 0
        assert episode.truncated == (not is_terminal)
        for t in range(rows):
            assert steps["observation"][t] == expected["observations"][t]
            assert steps["action"][t] == expected["actions"][t]
            assert steps["reward"][t] == expected["unclipped_rewards"][t]
            assert steps["clipped_rewards"][t] == expected["clipped_rewards"][t]
            assert steps["discount"][t] == expected["discounts"][t]
            assert steps["is_terminal"][t] == (is_terminal and t == rows - 1)
        assert max(steps["reward"]) > 1  # Rewards are not clipped.
        assert 0.5 in steps["discount"]


def test_an_episode_keeps_its_ids_and_both_returns(tmp_path, raw):
    for episode, expected in zip(read(tmp_path, raw), raw, strict=True):
        assert episode.metadata == {
            "checkpoint_idx": 7,
            "recorded_episode_id": expected["episode_idx"][0],
            "episode_return": expected["episode_return"][0],
            "clipped_episode_return": expected["clipped_episode_return"][0],
        }


def test_alignment_rsa_moves_rewards_and_discounts(tmp_path, raw):
    for episode, expected in zip(read(tmp_path, raw, alignment="rsa"), raw, strict=True):
        steps, transitions = episode.steps, len(expected["actions"]) - 1
        assert episode.final_observation_known
        for t in range(transitions):
            assert steps["observation"][t] == expected["observations"][t]
            assert steps["action"][t] == expected["actions"][t]
            assert steps["reward"][t] == expected["unclipped_rewards"][t + 1]
            assert steps["clipped_rewards"][t] == expected["clipped_rewards"][t + 1]
            assert steps["discount"][t] == expected["discounts"][t + 1]
        assert steps["reward"][-1] == steps["discount"][-1] == steps["action"][-1] == 0
        assert steps["is_terminal"][-1] == (expected["discounts"][-1] == 0)
        assert episode.metadata["placeholders"] == {
            "action": expected["actions"][-1],
            "reward": expected["unclipped_rewards"][0],
            "clipped_rewards": expected["clipped_rewards"][0],
            "discount": expected["discounts"][0],
        }


def test_a_reward_in_the_first_row_contradicts_alignment_rsa(tmp_path, raw):
    raw[1]["unclipped_rewards"][0] = 2.0
    _, damaged, *_ = read(tmp_path, raw, alignment="rsa")
    assert isinstance(damaged, DamagedEpisode)
    assert "row 0, field 'reward': 2.0, expected 0: with alignment='rsa'" in str(damaged.error)


@pytest.mark.slow
def test_the_builder_accepts_an_alignment(tmp_path, raw):
    raw_rlu.write_files(tmp_path / "raw", "run_1", raw)
    config = RluConfig(name="shifted")
    builder = RldsRluAtari(path=tmp_path / "raw", config=config, data_dir=tmp_path, alignment="rsa")
    builder.download_and_prepare()
    (episode, *_) = builder.as_dataset("train")
    assert episode["final_observation_known"]
    assert builder.info.metadata["alignment"] == "rsa"


def test_episodes_of_two_checkpoints_may_have_the_same_id(tmp_path, raw):
    raw[-1]["checkpoint_idx"] = raw[-1]["checkpoint_idx"] + 1
    raw_rlu.write_files(tmp_path, "run_1", raw)
    assert RluAtariSource(tmp_path, require_unique_ids=True).repeated_ids() == {}


@pytest.mark.slow
def test_published_images_are_stored_unchanged(tmp_path, raw):
    raw_rlu.write_files(tmp_path / "raw", "run_1", raw)
    builder = convert(
        RluAtariSource(tmp_path / "raw"), name="made", data_dir=tmp_path, shuffle=False
    )
    stored = load(builder, "train", decode=["reward"]).as_numpy_iterator()
    for episode, expected in zip(stored, raw, strict=True):
        assert episode["steps"]["observation"].tolist() == expected["observations"]
    image = next(iter(next(iter(builder.as_dataset("train")))["steps"]))["observation"]
    frames = {tf.io.decode_png(e["observations"][0]).numpy().tobytes() for e in raw}
    assert image.shape == (6, 4, 1)
    assert image.numpy().tobytes() in frames


def test_an_image_that_is_cut_off_is_damage(tmp_path, raw):
    raw[1]["observations"][2] = raw[1]["observations"][2][:-1]
    _, damaged, *_ = read(tmp_path, raw)
    assert "row 2, field 'observations': the PNG image is cut off" in str(damaged.error)


def test_frames_that_are_no_png_images_are_refused(tmp_path, raw):
    for episode in raw:
        episode["observations"] = [b"GIF89a" + frame for frame in episode["observations"]]
    with pytest.raises(SourceError, match=r"row 0, field 'observations': not a PNG image"):
        read(tmp_path, raw)


def test_an_image_of_another_size_is_damage(tmp_path, raw):
    raw[1]["observations"][2] = tf.io.encode_png(np.zeros((4, 6, 1), np.uint8)).numpy()
    _, damaged, *_ = read(tmp_path, raw)
    assert "row 2, field 'observations': expected a PNG image of shape (6, 4, 1)" in str(
        damaged.error
    )
