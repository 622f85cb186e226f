"""Recordings that are killed, or fill a disk, at random moments: accepted steps are kept."""

import random
import subprocess
import sys
import time

import full_disks
import killed_cameras
import numpy as np
import pytest
from killed_lerobot import NUM_FRAMES, number_in, state_of

import envlogger
import rlds.sources
from rlds.recording import recover

pytest.importorskip("av")

_SEEDS = 3


def record_and_kill(kind, path, seconds):
    """Kills a recorder; returns the last episode that has to be complete."""
    command = [sys.executable, killed_cameras.__file__, kind, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        output = process.stdout.readline()
        time.sleep(seconds)
        process.kill()
        return int((output + process.stdout.read()).split()[-1])


def open_recovered(kind, path):
    """Returns the recovered episodes, including a running one."""
    if kind == "streams":
        return rlds.sources.open(path, video="frames", max_age=0.001)
    if kind == "lerobot":
        recover(path, path.with_name("mended"))
        return rlds.sources.open(path.with_name("mended"), video="frames")
    envlogger.recover(path, in_place=True)
    return rlds.sources.open(path, video="frames")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(_SEEDS))
@pytest.mark.parametrize("kind", ["log", "lerobot", "streams"])
def test_flushed_steps_survive_a_kill(kind, seed, tmp_path):
    check(kind, random.Random(seed).uniform(0, 2), tmp_path / "robot")


def check(kind, seconds, path):
    last = record_and_kill(kind, path, seconds)
    episodes = open_recovered(kind, path)
    assert len(episodes) > last
    for index in range(len(episodes)):
        steps = episodes.columns(index)
        observation = steps["observation"]
        num_rows = len(observation["state"])
        if index <= last:
            assert num_rows in (NUM_FRAMES, NUM_FRAMES + 1)  # With the final observation.
        for row in range(num_rows):
            np.testing.assert_array_equal(observation["state"][row], state_of(index, row))
            for camera, name in enumerate(("top", "wrist")):
                assert number_in(observation["images"][name][row]) == (camera, index, row)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(_SEEDS))
@pytest.mark.parametrize("kind", full_disks.KINDS)
def test_a_full_disk_costs_no_accepted_step(kind, seed, tmp_path):
    try:
        full_disks.check(kind, seed, tmp_path / "disk")
    except full_disks.CannotMount as error:
        pytest.skip(str(error))
