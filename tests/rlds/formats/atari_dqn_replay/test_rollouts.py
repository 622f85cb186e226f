"""Replay buffers of played games, compared with the games step by step."""

import numpy as np
import pytest
import raw_atari_dqn_replay
import rollouts

import rlds
import rlds.sources
from rlds.tfds import load
from tfds_builders import convert

AtariDqnReplaySource = rlds.sources.formats()["atari_dqn_replay"].load()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "time_limit", "seeds"),
    [("breakout", 150, (0, 3)), pytest.param("pong", 900, (0, 1), marks=pytest.mark.slow)],
)
def test_replay_buffers_are_read_as_the_played_games(tmp_path, game, time_limit, seeds):
    pytest.importorskip("ale_py")
    games = [
        rollout
        for seed in seeds
        for rollout in rollouts.of_atari(game, max_steps=time_limit, seed=seed)
    ]
    assert [rollout.terminated for rollout in games] == [False, True]
    capacity = 2 * time_limit // 3
    assert min(map(len, games)) > capacity  # None fits into one checkpoint.
    rows = raw_atari_dqn_replay.record(
        [
            raw_atari_dqn_replay.Recorded(
                np.stack(rollout.observations[:-1]),
                np.stack(rollout.actions),
                np.stack(rollout.rewards),
                rollout.terminated,
            )
            for rollout in games
        ]
    )
    raw_atari_dqn_replay.write_run(tmp_path / "Game" / "1" / "replay_logs", rows, capacity=capacity)
    source = AtariDqnReplaySource(tmp_path, max_episode_steps=time_limit)
    dataset = load(convert(source, name="game", data_dir=tmp_path / "data", shuffle=False))

    assert rlds.validation.validate(dataset).is_valid
    for episode, rollout in zip(dataset.as_numpy_iterator(), games, strict=True):
        steps = episode["steps"]
        # The frame after the last transition is in no file.
        frames = np.stack(rollout.observations[:-1])
        np.testing.assert_array_equal(steps["observation"][..., 0], frames)
        for name, values in (("action", rollout.actions), ("reward", rollout.rewards)):
            assert steps[name].dtype == values[0].dtype
            assert steps[name].tolist() == np.stack(values).tolist()
        last_row = len(rollout) - 1
        assert steps["discount"].tolist() == [1.0] * last_row + [1.0 - rollout.terminated]
        assert steps["is_terminal"].tolist() == [False] * last_row + [rollout.terminated]
        assert episode["truncated"] == (not rollout.terminated)
        assert (episode["complete"], episode["final_observation_known"]) == (True, False)
        assert episode["spans_checkpoints"]
        assert (episode["padding_rows"], episode["blank_rows"]) == (3, 0)
    assert any(np.any(rollout.rewards) for rollout in games)
