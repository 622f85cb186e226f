"""An audit names the episodes with bad pictures and their causes, and no clean episode."""

import collections
import dataclasses

import camera_data
import numpy as np
import pytest
from camera_data import FAULTS

import rlds.sources
from rlds.auditing import CHECKS, audit

PICTURE_CHECKS = {check.name for check in CHECKS if check.is_of_pictures}


def run_audit(folder, name, seed, **video):
    """Returns the missed faults, the number of faults, and the clean episodes with findings."""
    data = camera_data.plant_each(name, seed)
    episodes = open_written(folder, data.episodes, **video)
    named = collections.defaultdict(set)
    for finding in audit(episodes, jobs=1).findings:
        named[finding.episode] |= {finding.check} & PICTURE_CHECKS
    missed = [
        kind for index, kind in data.faults.items() if not named[index] & {*FAULTS[kind].checks}
    ]
    clean = [index for index in range(len(data.episodes)) if index not in data.faults]
    return missed, len(data.faults), [index for index in clean if named[index]]


def open_written(folder, episodes, **video):
    camera_data.write(folder, episodes)
    if not video:
        return rlds.sources.open(folder)
    target = folder.with_name(f"{folder.name}.lerobot")
    rlds.sources.export(rlds.sources.open(folder), "lerobot", target, fps=10, **video)
    return rlds.sources.open(target)


def test_planted_faults_of_pictures_are_found(tmp_path):
    assert run_audit(tmp_path / "screen", "screen", 31) == ([], 9, [])


def test_planted_faults_of_video_are_found(tmp_path):
    pytest.importorskip("av")
    missed, num_faults, named = run_audit(tmp_path / "wrist", "wrist", 31, codec="h264")
    assert len(missed) <= 1, missed
    assert (num_faults, named) == (9, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", camera_data.DATASETS)
def test_planted_faults_are_found_with_each_kind_of_camera(tmp_path, name):
    outcomes = [run_audit(tmp_path / str(seed), name, seed) for seed in range(32, 35)]
    missed = [kind for outcome in outcomes for kind in outcome[0]]
    assert len(missed) <= 0.1 * sum(outcome[1] for outcome in outcomes), missed
    assert sum(len(outcome[2]) for outcome in outcomes) <= 0.02 * 40 * len(outcomes)


def make_screens(count=12):
    """Returns episodes of one camera; it is frozen in the last episode."""
    *intact, last = camera_data.make_films("screen", 31, count)
    return [*intact, FAULTS["frozen"].plant(last)]


def list_picture_findings(report):
    return [(it.episode, it.check) for it in report.findings if it.check in PICTURE_CHECKS]


def test_without_motion_nothing_is_frozen_and_the_report_says_so(tmp_path):
    still = []
    for each in make_screens():
        episode = each.episode.changed(
            state=np.zeros((len(each.episode), 0)), action=np.ones((len(each.episode), 2))
        )
        still.append(dataclasses.replace(each, episode=episode))
    report = audit(open_written(tmp_path / "still", still), jobs=1)
    assert list_picture_findings(report) == []
    assert "frozen cameras: no numeric field shows when something moves" in report.unassessed


def test_actions_are_motion_if_there_is_no_state(tmp_path):
    blind = [
        dataclasses.replace(
            each, episode=each.episode.changed(state=np.zeros((len(each.episode), 0)))
        )
        for each in make_screens()
    ]
    report = audit(open_written(tmp_path / "blind", blind), jobs=1)
    assert list_picture_findings(report) == [(11, "camera frozen")]


def test_a_camera_that_is_black_in_all_episodes_is_a_fact(tmp_path):
    dark = [FAULTS["black"].plant(each) for each in camera_data.make_films("screen", 31, 12)]
    report = audit(open_written(tmp_path / "dark", dark), jobs=1)
    assert list_picture_findings(report) == []
    [fact] = report.facts["camera black"]
    assert "12 of 12 episodes" in fact


def test_pictures_of_many_episodes_are_sampled_and_the_audit_says_so(tmp_path):
    rng = np.random.default_rng(0)
    for index in range(210):
        state = rng.normal(size=(9, 2)).cumsum(0)
        image = rng.integers(0, 255, (9, 8, 8, 3), np.uint8)
        np.savez(tmp_path / f"{index:03}.npz", observation=state, action=state[1:], image=image)
    report = audit(rlds.sources.open(tmp_path), jobs=1)
    assert (
        "all pictures: of 200 of 210 episodes, 16 pairs of frames were compared"
        in report.unassessed
    )
