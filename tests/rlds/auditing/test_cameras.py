"""An audit names the episodes whose pictures are bad, and their causes; others it leaves."""

import collections
import dataclasses

import camera_data
import numpy as np
import pytest
from camera_data import FAULTS

import rlds.sources
from rlds.auditing import CHECKS, audit

OF_PICTURES = {check.name for check in CHECKS if check.is_of_pictures}


def outcome(folder, name, seed, **video):
    """The faults that are missed, how many there are, and the clean episodes that are named."""
    given = camera_data.plant_each(name, seed)
    episodes = opened(folder, given.episodes, **video)
    named = collections.defaultdict(set)
    for finding in audit(episodes, jobs=1).findings:
        named[finding.episode] |= {finding.check} & OF_PICTURES
    missed = [
        kind for number, kind in given.faults.items() if not named[number] & {*FAULTS[kind].checks}
    ]
    clean = [number for number in range(len(given.episodes)) if number not in given.faults]
    return missed, len(given.faults), [number for number in clean if named[number]]


def opened(folder, episodes, **video):
    camera_data.write(folder, episodes)
    if not video:
        return rlds.sources.open(folder)
    target = folder.with_name(f"{folder.name}.lerobot")
    rlds.sources.export(rlds.sources.open(folder), "lerobot", target, fps=10, **video)
    return rlds.sources.open(target)


def test_planted_faults_of_pictures_are_found(tmp_path):
    assert outcome(tmp_path / "screen", "screen", 31) == ([], 9, [])


def test_planted_faults_of_video_are_found(tmp_path):
    pytest.importorskip("av")
    missed, number, named = outcome(tmp_path / "wrist", "wrist", 31, codec="h264")
    assert len(missed) <= 1, missed
    assert (number, named) == (9, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", camera_data.DATASETS)
def test_planted_faults_are_found_with_each_kind_of_camera(tmp_path, name):
    outcomes = [outcome(tmp_path / str(seed), name, seed) for seed in range(32, 35)]
    missed = [kind for one in outcomes for kind in one[0]]
    assert len(missed) <= 0.1 * sum(one[1] for one in outcomes), missed
    assert sum(len(one[2]) for one in outcomes) <= 0.02 * 40 * len(outcomes)


def screens(number=12):
    """Episodes of one camera, the last of which is frozen."""
    *intact, last = camera_data.make_films("screen", 31, number)
    return [*intact, FAULTS["frozen"].plant(last)]


def pictures_named(report):
    return [(it.episode, it.check) for it in report.findings if it.check in OF_PICTURES]


def test_without_motion_nothing_is_frozen_and_that_is_said(tmp_path):
    still = []
    for each in screens():
        episode = each.episode.changed(
            state=np.zeros((len(each.episode), 0)), action=np.ones((len(each.episode), 2))
        )
        still.append(dataclasses.replace(each, episode=episode))
    report = audit(opened(tmp_path / "still", still), jobs=1)
    assert pictures_named(report) == []
    assert "frozen cameras: no numeric field shows when something moves" in report.unassessed


def test_actions_are_motion_if_there_is_no_state(tmp_path):
    blind = [
        dataclasses.replace(
            each, episode=each.episode.changed(state=np.zeros((len(each.episode), 0)))
        )
        for each in screens()
    ]
    report = audit(opened(tmp_path / "blind", blind), jobs=1)
    assert pictures_named(report) == [(11, "camera frozen")]


def test_a_camera_that_is_black_in_all_episodes_is_a_fact(tmp_path):
    dark = [FAULTS["black"].plant(each) for each in camera_data.make_films("screen", 31, 12)]
    report = audit(opened(tmp_path / "dark", dark), jobs=1)
    assert pictures_named(report) == []
    [fact] = report.facts["camera black"]
    assert "12 of 12 episodes" in fact


def test_pictures_of_many_episodes_are_sampled_and_the_audit_says_so(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(210):
        state = rng.normal(size=(9, 2)).cumsum(0)
        image = rng.integers(0, 255, (9, 8, 8, 3), np.uint8)
        np.savez(tmp_path / f"{number:03}.npz", observation=state, action=state[1:], image=image)
    report = audit(rlds.sources.open(tmp_path), jobs=1)
    assert (
        "all pictures: of 200 of 210 episodes, 16 pairs of frames were compared"
        in report.unassessed
    )
