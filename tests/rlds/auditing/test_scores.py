"""Scores follow their definitions, and conditions on episodes may use them."""

import os

import audited_data
import numpy as np
import pytest
import skilled_data

import rlds.sources
from rlds.auditing import SCORES, audit, scores
from rlds.statistics.ranks import midranks


def write(folder, episodes):
    audited_data.write(folder, episodes)
    return rlds.sources.open(folder)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_information_of_normal_numbers_equals_theory(correlation):
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 4000, 1))
    second = correlation * first + np.sqrt(1 - correlation**2) * second
    rows = [np.hstack([first, second])[index::10] for index in range(10)]
    actual = scores.compare_episodes(rows, 1, np.zeros((10, 3)))["information"].mean()
    assert actual == pytest.approx(-0.5 * np.log(1 - correlation**2), abs=0.05)


def test_equal_rows_have_a_score():
    rows = [np.repeat(np.eye(4), 8, axis=0) for _ in range(10)]
    actual = scores.compare_episodes(rows, 2, np.eye(10))
    assert all(np.isfinite(values).all() for values in actual.values())


@pytest.mark.parametrize("columns", [slice(4), slice(4, None)])
def test_faulty_episode_hardly_changes_the_order_of_other_episodes(columns):
    by_skill = skilled_data.make_demonstrations("mover", 1)
    rows = [np.hstack([it.state, it.action]) for group in by_skill.values() for it in group]
    faulty = [*rows]
    faulty[7] = rows[7].copy()
    faulty[7][:, columns] *= 57.3
    intact = [*range(7), *range(8, len(rows))]
    for name in ("information", "agreement"):
        ranks = [
            midranks(scores.compare_episodes(each, 4, np.zeros((len(rows), 3)))[name][intact])
            for each in (rows, faulty)
        ]
        assert np.corrcoef(*ranks)[0, 1] > 0.98


def test_spectral_arc_length_does_not_depend_on_duration_and_size():
    def smoothness(rows, size):
        time = np.linspace(0, 1, rows)[:, None]
        positions = size * (10 * time**3 - 15 * time**4 + 6 * time**5)
        return scores.score_episode(positions, 1.0, 50.0)[0]

    assert smoothness(50, 1) == pytest.approx(smoothness(200, 7), abs=0.05)
    assert smoothness(50, 1) == pytest.approx(-1.41, abs=0.1)  # A minimum-jerk movement.


def test_experts_score_higher(tmp_path):
    demos = skilled_data.make_demonstrations("mover", 3, 8)
    episodes = write(tmp_path / "mover", [each for group in demos.values() for each in group])
    episodes = rlds.sources.Episodes(episodes.source, declared={"fps": skilled_data.RATE})
    report = audit(episodes, jobs=1)
    assert {*report.scores} == {score.name for score in SCORES}
    for name in ("smoothness", "steadiness", "information"):
        values = report.scores[name]
        assert np.median(values[:8]) > np.median(values[8:]), name
    assert not any(message.startswith("smoothness") for message in report.unassessed)


def test_conditions_use_scores_and_findings_of_unchanged_files_only(tmp_path):
    episodes = write(tmp_path / "arm", audited_data.plant_each("arm", 31).episodes)
    with pytest.raises(
        ValueError, match="there is no audit of these files: run `rlds audit` first"
    ):
        episodes.where("audit.efficiency > 0.2")
    report = audit(episodes, jobs=1)
    assert report.is_kept
    late = [it.episode for it in report.findings if it.check == "lag"]
    chosen = episodes.where("list_contains(audit.findings, 'lag')")
    assert [chosen.locate(index) for index in range(len(chosen))]
    assert len(chosen) == len(late) > 0
    best = episodes.where("audit.steadiness_rank >= 0.5").table().arrow(["index", "audit"])
    assert 0.4 * 80 < len(best) < 0.6 * 80
    ranks = report.ranks["steadiness"]
    assert best["index"].to_pylist() == np.flatnonzero(ranks >= 0.5).tolist()
    file = tmp_path / "arm/0000.npz"
    os.utime(file, ns=(1, 1))
    with pytest.raises(ValueError, match="there is no audit of these files"):
        rlds.sources.open(tmp_path / "arm").where("audit.efficiency > 0.2")


def test_audit_of_selected_episodes_is_not_kept(tmp_path):
    episodes = write(tmp_path / "arm", audited_data.make_episodes("arm", 31, 12))
    assert not audit(episodes.select(range(10)), jobs=1).is_kept
    assert not audit(episodes.select(range(11, -1, -1)), jobs=1).is_kept  # In another order.
    assert not audit(episodes, jobs=1, keep=False).is_kept
    assert not (tmp_path / "arm/.rlds").exists()
    assert audit(episodes, jobs=1).is_kept


def test_smoothness_is_unknown_if_rates_differ(tmp_path):
    source = write(tmp_path / "arm", audited_data.make_episodes("arm", 31, 12)).source
    declared = {"fps": 20, "camera": {"fps": 30}}
    report = audit(rlds.sources.Episodes(source, declared=declared), jobs=1)
    assert np.isnan(report.scores["smoothness"]).all()


def test_scores_that_are_unknown_meet_no_condition(tmp_path):
    episodes = write(tmp_path / "arm", audited_data.make_episodes("arm", 31, 12))
    audit(episodes, jobs=1)
    assert len(episodes.where("audit.smoothness > -100 or audit.smoothness < 100")) == 0
    assert len(episodes.where("audit.smoothness is null")) == 12
