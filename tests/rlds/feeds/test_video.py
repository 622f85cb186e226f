"""Batches with frames of clips equal files that are decoded completely."""

import os
import pickle
import signal
import warnings

import numpy as np
import pytest
from clip_source import EPISODES, TOP, WRIST, ClipSource, pixels

import rlds.feeds
from rlds.sources import Episodes
from rlds.sources.video_frames import with_frames
from rlds_ecosystem.model.nests import lookup


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("is_stored", [False, True])
def test_shuffled_windows_contain_frames_of_their_steps(is_stored, threads, tmp_path):
    if is_stored:
        rlds.feeds.materialise(Episodes(ClipSource()), tmp_path / "dataset")
        table = rlds.feeds.open(tmp_path / "dataset", threads=threads, video="frames")
        assert table.storage.is_random("action")
    else:
        table = rlds.feeds.open(with_frames(Episodes(ClipSource())), threads=threads)
    samples = pickle.loads(pickle.dumps(table)).segments(5, shift=1)
    feed = rlds.feeds.Feed(samples, batch_size=8, seed=0, epochs=1)
    episodes, seen = [pixels(index) for index in range(3)], set()
    for batch in feed:
        assert batch["observation"]["images"]["top"].shape[1:] == (5, 48, 64, 3)
        for row in range(len(batch["action"])):
            actions = batch["action"][row].tolist()
            index = actions[0] // 100
            steps = [action % 100 for action in actions]
            seen.add((index, steps[0]))
            for camera in (TOP, WRIST):
                expected = episodes[index][camera][steps]
                np.testing.assert_array_equal(lookup(batch, camera)[row], expected)
    assert len(seen) == len(samples) == 28
    statistics = table.compute_statistics()
    assert not any(TOP in name for name in statistics)
    assert f"{TOP}: 9216 bytes a step, decoded one by one" in feed.explain()


def test_transitions_contain_next_pixels():
    table = rlds.feeds.open(with_frames(Episodes(ClipSource())), fields=["observation", "action"])
    batch = table.transitions().batch(np.arange(6))
    expected = pixels(0)[TOP]
    np.testing.assert_array_equal(batch["observation"]["images"]["top"], expected[:6])
    np.testing.assert_array_equal(batch["next_observation"]["images"]["top"], expected[1:7])
    assert sum(end - begin for begin, end in EPISODES) == table.num_steps == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_reads_frames():
    table = rlds.feeds.open(with_frames(Episodes(ClipSource())), threads=2)
    indices = np.arange(40)
    expected = table.steps().batch(indices)[WRIST]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # About forks of processes with threads.
        child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if np.array_equal(table.steps().batch(indices)[WRIST], expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
