import numpy as np
import pytest
import raw_rlu

import rlds.sources

RluRwrlSource = rlds.sources.formats()["rlu_rwrl"].load()


def read(directory, raw):
    raw_rlu.write_files(directory, "episodes.tfrecord", raw, compression="")
    source = RluRwrlSource(directory)
    return [e for file in source.parts("train") for e in source.episodes("train", file)]


def test_rows_have_the_action_and_reward_before_their_observation(tmp_path):
    raw = raw_rlu.rwrl_episodes()
    for episode, expected in zip(read(tmp_path, raw), raw, strict=True):
        steps, rows = episode.steps, len(expected["reward"])
        assert episode.final_observation_known
        assert episode.num_steps == rows
        for t in range(rows):
            position = steps["observation"]["position"][t]
            assert position.tolist() == expected["observation:position"][t].tolist()
            height = steps["observation"]["sensors"]["height"][t]
            assert height.tolist() == expected["observation:sensors:height"][t].tolist()
            assert steps["step_type"][t] == expected["step_type"][t]
        for t in range(rows - 1):
            assert steps["action"][t].tolist() == expected["action"][t + 1].tolist()
            assert steps["reward"][t] == expected["reward"][t + 1]
            assert steps["discount"][t] == expected["discount"][t + 1]
        assert steps["reward"].shape == steps["discount"].shape == (rows,)
        assert not steps["action"][-1].any()
        assert steps["reward"][-1] == steps["discount"][-1] == 0


def test_only_a_last_discount_of_zero_is_terminal(tmp_path):
    raw = raw_rlu.rwrl_episodes()
    for episode, expected in zip(read(tmp_path, raw), raw, strict=True):
        is_terminal = expected["discount"][-1] == 0
        assert expected["discount"][0] == 0
        assert episode.steps["is_terminal"].tolist() == [False] * 4 + [is_terminal]
        assert episode.truncated == (not is_terminal)


def test_values_that_belong_to_no_transition_are_kept(tmp_path):
    raw = raw_rlu.rwrl_episodes(1)
    raw[0]["action"][0] = [7.0, 8.0]
    raw[0]["reward"][0] = 9.0  # The alignment is fixed: this does not contradict it.
    (episode,) = read(tmp_path, raw)
    placeholders = episode.metadata["placeholders"]
    assert placeholders["action"].tolist() == [7, 8]
    assert (placeholders["reward"], placeholders["discount"]) == (9, 0)


def test_floats_keep_their_bits(tmp_path):
    raw = raw_rlu.rwrl_episodes(1)
    bits = np.array([0x7FC00001, 0x80000000, 0x00000001], np.uint32)  # NaN, -0, the smallest.
    raw[0]["observation:position"][2] = bits.view(np.float32)
    (episode,) = read(tmp_path, raw)
    stored = episode.steps["observation"]["position"][2]
    assert stored.view(np.uint32).tolist() == bits.tolist()


def test_any_other_alignment_is_refused(tmp_path):
    raw_rlu.write_files(tmp_path, "episodes.tfrecord", raw_rlu.rwrl_episodes(), compression="")
    with pytest.raises(ValueError, match=r"got 'sar', expected one of \('rsa',\)"):
        RluRwrlSource(tmp_path, alignment="sar")


def test_compressed_files_are_read(tmp_path):
    raw_rlu.write_files(tmp_path, "episodes.tfrecord", raw_rlu.rwrl_episodes(), compression="GZIP")
    source = RluRwrlSource(tmp_path)
    assert len(list(source.episodes("train", source.parts("train")[0]))) == 2
