"""An audit names the episodes with planted faults and their causes, and no clean episode."""

import collections
import dataclasses
import re
import shlex
import shutil
from pathlib import Path

import audited_data
import click
import numpy as np
import pytest
from audited_data import DATASETS, FAULTS

import rlds.sources
from rlds.auditing import CHECKS, SCORES, ElementMeaning, VectorMeaning, audit, audit_splits
from rlds.auditing.declared import contradictions
from rlds.auditing.personal import personal_data_in
from rlds_tools.command_line.commands import rlds as rlds_command


def write(folder, episodes):
    audited_data.write(folder, episodes)
    return rlds.sources.open(folder)


def run_audit(folder, name, seed):
    """Returns the missed faults, the number of faults, and the clean episodes with findings."""
    data = audited_data.plant_each(name, seed)
    report = audit(write(folder, data.episodes), jobs=1)
    named = collections.defaultdict(set)
    for finding in report.findings:
        named[finding.episode].add(finding.check)
    missed = [
        kind for index, kind in data.faults.items() if not named[index] & {*FAULTS[kind].checks}
    ]
    return missed, len(data.faults), sorted({*named} - {*data.faults})


def test_planted_faults_are_found_without_false_alarms(tmp_path):
    missed, num_faults, named = run_audit(tmp_path / "arm", "arm", 31)
    assert len(missed) <= 1, missed
    assert num_faults == len(FAULTS)
    assert named == []


@pytest.mark.slow
@pytest.mark.parametrize("name", DATASETS)
def test_planted_faults_are_found_in_each_kind_of_dataset(tmp_path, name):
    outcomes = [run_audit(tmp_path / str(seed), name, seed) for seed in range(32, 36)]
    missed = [kind for outcome in outcomes for kind in outcome[0]]
    # Of many faults, a twentieth is missed; of these hundred, chance may miss more.
    assert len(missed) <= 0.15 * sum(outcome[1] for outcome in outcomes), missed
    assert sum(len(outcome[2]) for outcome in outcomes) <= 0.02 * 80 * len(outcomes)


def test_audits_by_several_processes_equal_those_of_one(tmp_path):
    episodes = write(tmp_path / "arm", audited_data.make_episodes("arm", 31, 20))
    alone = audit(episodes, jobs=1)
    assert not alone.findings
    assert not alone.facts
    progress = []
    parallel = audit(episodes, jobs=2, progress=lambda *pair: progress.append(pair))
    assert parallel.findings == alone.findings
    assert [*parallel.vectors[0].sentences()] == [*alone.vectors[0].sentences()]
    assert progress[-1] == (20, 20)


def test_a_fault_of_most_episodes_is_one_fact(tmp_path):
    episodes = audited_data.make_episodes("arm", 31, 20)
    bad = [
        each.changed(state=np.where(np.arange(len(each))[:, None] == 9, np.nan, each.state))
        for each in episodes
    ]
    report = audit(write(tmp_path / "arm", bad))
    assert not report.findings
    [fact] = report.facts["not finite"]
    assert "20 of 20 episodes" in fact
    assert len(report.facts) == 1


def test_repeated_rows_are_not_reported_as_late(tmp_path):
    planted = audited_data.plant_each("arm", 3)
    [faulty] = [index for index, kind in planted.faults.items() if kind == "rows repeated"]
    findings = audit(write(tmp_path / "arm", planted.episodes), jobs=1).findings
    assert [it.check for it in findings if it.episode == faulty] == ["repeated"]


@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_one_row_late_is_found_in_slow_motion_at_a_high_rate(noise, tmp_path):
    rng, rows = np.random.default_rng(1), 1000
    window = np.hanning(200) / np.hanning(200).sum()
    for index in range(20):
        knots = rng.normal(size=(6, 4))  # One knot per four seconds at 50 rows per second.
        path = np.stack([np.interp(np.arange(rows) / 200, np.arange(6), it) for it in knots.T], 1)
        path = np.stack([np.convolve(it, window, "valid") for it in path.T], axis=1)
        states = path + noise * rng.normal(size=path.shape)
        states, actions = states[:-1], path[1:]
        if index == 7:
            states, actions = states[1:], actions[:-1]
        np.savez(tmp_path / f"{index:02}.npz", observation=states, action=actions)
    findings = audit(rlds.sources.open(tmp_path), jobs=1).findings
    assert [(it.episode, it.check) for it in findings] == [(7, "lag")]


def test_many_late_episodes_are_all_named(tmp_path):
    episodes, late = audited_data.make_episodes("noisy expert", 31, 40), range(9)
    for index in late:
        kind = audited_data.FAULTS["two rows late"]
        episodes[index] = kind.plant(episodes[index], episodes[20:], np.random.default_rng(0))
    findings = audit(write(tmp_path / "late", episodes), jobs=1).findings
    assert {it.episode for it in findings if it.check == "lag"} == {*late}


def test_rows_of_findings_also_count_rows_that_are_not_finite(tmp_path):
    data = audited_data.plant_each("arm", 31)
    [spiked] = [index for index, kind in data.faults.items() if kind == "spike"]
    [expected] = [
        it for it in audit(write(tmp_path / "a", data.episodes)).findings if it.episode == spiked
    ]
    for index, each in enumerate(data.episodes):
        state = np.where(np.arange(len(each))[:, None] < 4, np.nan, each.state)
        data.episodes[index] = each.changed(state=state)
    actual = audit(write(tmp_path / "b", data.episodes)).findings
    assert (spiked, "spike", expected.row) in {(it.episode, it.check, it.row) for it in actual}
    assert expected.check == "spike"


def test_few_episodes_have_no_usual_values(tmp_path):
    episodes = audited_data.make_episodes("arm", 31, 3)
    twice = [*episodes, episodes[1], episodes[0].changed(state=episodes[0].state * np.nan)]
    report = audit(write(tmp_path / "arm", twice))
    assert [(it.episode, it.check) for it in report.findings] == [
        (4, "not finite"),
        (3, "duplicate"),
    ]
    assert any("fewer than 8 episodes" in message for message in report.unassessed)


def test_uninformative_data_has_no_meaning(tmp_path):
    arrays = {
        "constant": {"observation": np.ones((20, 3)), "action": np.ones((20, 2))},
        "texts": {"observation": np.ones((20, 3)), "action": np.array(["left"] * 20)},
        "one row": {"observation": np.ones((1, 3)), "action": np.ones((1, 2))},
        "NaN": {"observation": np.full((20, 3), np.nan), "action": np.full((20, 2), np.nan)},
    }
    for name, columns in arrays.items():
        folder = tmp_path / name
        folder.mkdir()
        rows = len(columns["action"])
        for index in range(10):
            np.savez(folder / f"{index}.npz", **columns, reward=np.arange(rows) + index)
        report = audit(rlds.sources.open(folder), jobs=1)
        assert report.num_episodes == 10
        assert {it.kind for vector in report.vectors for it in vector.elements} <= {
            "unknown",
            "constant",
        }
        assert report.unassessed, name
        assert all(np.isfinite(finding.size) for finding in report.findings)


def test_long_vectors_are_sampled_and_the_report_says_so(tmp_path):
    rng = np.random.default_rng(0)
    for index in range(10):
        state = rng.normal(size=(25, 1200)).cumsum(0)
        np.savez(tmp_path / f"{index}.npz", observation=state, action=np.diff(state, axis=0))
    report = audit(rlds.sources.open(tmp_path), jobs=1)
    assert any("768 of 2,400 were assessed" in message for message in report.unassessed)


def test_damaged_episodes_are_counted(tmp_path):
    episodes = write(tmp_path / "arm", audited_data.make_episodes("arm", 31, 12))
    file = tmp_path / "arm/0003.npz"
    file.write_bytes(file.read_bytes()[:-200])
    episodes = rlds.sources.open(tmp_path / "arm")
    report = audit(episodes, jobs=1)
    assert (report.num_episodes, [*report.unreadable]) == (11, [3])


def test_the_page_has_the_table_of_checks():
    page = (Path(__file__).parents[3] / "docs/audit.md").read_text()
    for check in CHECKS:
        row = f"| `{check.name}` | {check.fault} | {check.impact} | {check.threshold} |"
        assert row in page

    for score in SCORES:
        cells = score.definition, score.source, score.invariances, score.limitation
        assert f"| `{score.name}` | {' | '.join(cells)} |" in page


def test_symptoms_on_the_page_name_findings_scores_and_options_that_exist():
    page = (Path(__file__).parents[3] / "docs/audit.md").read_text()
    rows = page.partition("## From a symptom")[2].partition("\n## ")[0].split("\n| ")[2:]
    assert len(rows) == 10
    for row in rows:
        _, look_at, next_command = row.split(" | ")
        assert {*re.findall("`(.+?)`", look_at)} <= {it.name for it in (*CHECKS, *SCORES)}
        [command] = re.findall("`rlds (.+?)`", next_command)
        with click.Context(rlds_command) as context:
            name, actual, arguments = rlds_command.resolve_command(context, shlex.split(command))
            actual.make_context(name, arguments, parent=context)


def test_unreadable_dataset_has_no_score(tmp_path):
    write(tmp_path / "arm", audited_data.make_episodes("arm", 31, 3))
    for file in (tmp_path / "arm").glob("*.npz"):
        content = bytearray(file.read_bytes())
        content[600:700] = bytes(100)  # In an array, whose checksum then fails.
        file.write_bytes(content)
    episodes = rlds.sources.open(tmp_path / "arm")
    report = audit(episodes, jobs=1)
    assert (report.num_episodes, len(report.unreadable), [*report.findings]) == (0, 3, [])
    assert all(np.isnan(values).all() for values in report.scores.values())


def test_each_check_has_a_reason_and_a_basis():
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    names = {check.name for check in CHECKS}
    for check in CHECKS:
        assert check.fault
        assert check.impact
        assert check.threshold
        assert {*check.hides} <= names
    errors = {check.name for check in CHECKS if check.severity == "error"}
    assert errors == {"unreadable", "files", "rules"}
    assert {name for fault in FAULTS.values() for name in fault.checks} <= names


def test_element_that_is_never_finite_hides_no_faults(tmp_path):
    data = audited_data.plant_each("arm", 31)
    for index, each in enumerate(data.episodes):
        rows = np.full((len(each), 1), np.inf if index % 2 else np.nan)
        data.episodes[index] = each.changed(state=np.hstack([each.state, rows]))
    report = audit(write(tmp_path / "arm", data.episodes), jobs=1)
    assert len({*report.episodes} & {*data.faults}) >= len(data.faults) - 1
    assert "observation/state[7]: never changes within an episode" in report.unassessed


@pytest.fixture
def arm(tmp_path):
    """Targets of six joints in degrees, with a state in radians."""
    episodes = [
        each.changed(action=np.rad2deg(each.action[:, :6]), state=each.state[:, :6])
        for each in audited_data.make_episodes("arm", 31, 12)
    ]
    return write(tmp_path / "arm", episodes).source


def audit_declared(arm, quantity, units):
    """Returns the contradictions in an audit of data that declares its action and units."""
    action_kind = {
        "action": {"action[0:6]": quantity},
        "state": ["observation/state[0:6]"],
        "unit": units,
    }
    episodes = rlds.sources.Episodes(arm, declared={"rlds_robotics": action_kind})
    return audit(episodes, jobs=1).facts["declaration"]


def test_declarations_are_compared_with_the_numbers(arm):
    [fact] = audit(rlds.sources.Episodes(arm), jobs=1).facts["declaration"]
    assert fact == ("action[0:6]: in deg if the state is in rad, by its scale; no unit is declared")
    [fact] = audit_declared(arm, "joint_position", {"rotation": "rad"})
    assert fact == ("action[0:6]: declared in rad, but in deg if the state is in rad, by its scale")
    [fact] = audit_declared(arm, "joint_delta", {})
    assert fact == "action[0:6]: declared as delta, but the values are absolute"


@pytest.mark.parametrize(
    ("kind", "scale", "unit", "state_unit", "message"),
    [
        ("absolute", 57.3, "deg", "rad", ""),
        ("absolute", 57.3, "rad", "rad", "declared in rad, and the state in rad"),
        ("absolute", 0.001, "", "", "in m if the state is in mm"),
        ("absolute", 1.0, "", "", ""),
        ("absolute", 57.3, "deg", "", ""),
        ("delta", 2.5, "m", "m", ""),  # An arm that covers 40 % of each change.
        ("delta", 0.5, "m", "m", "declared in m, and the state in m"),
        ("delta", 57.3, "0.1 m", "m", ""),
    ],
)
def test_units_that_contradict_the_scale_are_facts(kind, scale, unit, state_unit, message):
    elements = [ElementMeaning(kind, 0, scale)]
    vector = VectorMeaning("action", elements, [0], ["state"], ["action"], 10, 1000)
    units = {name: it for name, it in (("action", unit), ("state", state_unit)) if it}
    facts = [*contradictions([vector], {}, units)]
    assert len(facts) == bool(message)
    assert all(message in fact for fact in facts)


def test_a_usual_fault_hides_no_other_finding(tmp_path):
    data = audited_data.plant_each("arm", 31)
    late = next(index for index, kind in data.faults.items() if kind == "three rows late")
    for index, each in enumerate(data.episodes):
        state = np.where(np.arange(len(each))[:, None] == len(each) // 2, np.nan, each.state)
        data.episodes[index] = each.changed(state=state)
    report = audit(write(tmp_path / "arm", data.episodes), jobs=1)
    assert "not finite" not in {it.check for it in report.findings}
    assert (late, "lag") in {(it.episode, it.check) for it in report.findings}


def test_planted_faults_of_times_are_found(tmp_path):
    clean = audited_data.with_times(audited_data.make_episodes("teleoperation", 31, 30), 31)
    kinds = [*audited_data.TIME_FAULTS]
    data = audited_data.plant(clean, kinds, 31, audited_data.TIME_FAULTS)
    report = audit(write(tmp_path / "timed", data.episodes), jobs=1)
    causes = {(it.episode, it.check) for it in report.findings}
    expected = {
        (index, audited_data.TIME_FAULTS[kind].checks[0]) for index, kind in data.faults.items()
    }
    assert causes == expected


def test_times_that_contradict_the_declared_rate_are_a_fact(tmp_path):
    for fps, count in ((20, 0), (30, 1)):
        clean = audited_data.with_times(audited_data.make_episodes("arm", 31, 8), 31)
        nanoseconds = [it.changed(time=(it.time * 1e9).astype(np.int64)) for it in clean]
        source = write(tmp_path / str(fps), nanoseconds).source
        facts = audit(rlds.sources.Episodes(source, declared={"fps": fps}), jobs=1).facts
        messages = [fact.split(",")[1] for fact in facts.get("declaration", ())]
        assert messages == [" but 30.0 rows a second are declared"] * count


def test_episodes_that_are_in_two_splits_are_found(tmp_path):
    train = write(tmp_path / "train", audited_data.make_episodes("arm", 31, 20))
    held_out = audited_data.make_episodes("arm", 32, 10)
    held_out[3] = audited_data.make_episodes("arm", 31, 20)[7]
    near = audited_data.make_episodes("arm", 31, 20)[9]
    held_out[5] = near.changed(state=near.state + 1e-4)
    splits = [train, write(tmp_path / "test", held_out)]
    first, second = audit_splits(splits, jobs=1)
    assert not first.findings
    assert [(it.episode, it.check, it.text) for it in second.findings] == [
        (3, "leak", "the values are those of episode 7 of train"),
        (5, "leak", "nearly the same as episode 9 of train"),
    ]


def test_episodes_without_numbers_are_no_duplicates(tmp_path):
    for index in range(10):
        image = np.full((8, 8, 8, 3), index, np.uint8)
        np.savez(tmp_path / f"{index}.npz", observation=image, action=np.array(["left"] * 8))
    report = audit(rlds.sources.open(tmp_path), jobs=1)
    assert "duplicate" not in report.facts


def test_equal_actions_are_no_duplicates_if_the_observation_is_not_compared(tmp_path):
    for index in range(10):
        board = np.full((9, 4, 4), index, np.float32)
        np.savez(tmp_path / f"{index}.npz", observation=board, action=np.ones((8, 2)))
    report = audit(rlds.sources.open(tmp_path), jobs=1)
    assert ([*report.findings], {**report.facts}) == ([], {})
    assert any(message.startswith("duplicates, ") for message in report.unassessed)


def test_episode_in_another_unit_does_not_change_novelty_scores(tmp_path):
    clean = audited_data.make_episodes("arm", 31, 20)
    [[index, _]] = (faulty := audited_data.plant(clean, ["degrees"], 31)).faults.items()
    novelty = [
        np.delete(audit(write(tmp_path / name, data), jobs=1).scores["novelty"], index)
        for name, data in (("clean", clean), ("faulty", faulty.episodes))
    ]
    np.testing.assert_allclose(*map(np.median, novelty), rtol=0.2)


def test_duplicates_are_named_by_indices_of_stored_episodes(tmp_path):
    episodes = audited_data.make_episodes("arm", 31, 12)
    write(tmp_path / "arm", [*episodes, episodes[7]])
    file = tmp_path / "arm/0003.npz"
    file.write_bytes(file.read_bytes()[:-200])
    opened = rlds.sources.open(tmp_path / "arm")
    for chosen, index in ((opened, 12), (opened.select([0, 1, 2, *range(4, 13)]), 11)):
        [finding] = audit(chosen, jobs=1).findings
        assert (finding.episode, finding.check) == (index, "duplicate")
        assert finding.text == "the values are those of episode 7"


def test_an_instruction_that_comes_later_is_not_empty(tmp_path):
    for index in range(4):
        texts = np.array([""] * 8 + ["lift it" * (index > 0)], object).astype("U")
        state = np.random.default_rng(index).normal(size=(9, 2))
        columns = {"observation/state": state, "observation/instruction": texts}
        np.savez(tmp_path / f"{index}.npz", **columns, action=state[:-1])
    report = audit(rlds.sources.open(tmp_path), jobs=1)
    assert [(it.episode, it.check) for it in report.findings] == [(0, "task")]


def test_episodes_that_are_missing_are_counted(tmp_path):
    episodes = write(tmp_path / "arm", audited_data.make_episodes("arm", 31, 12))
    target = tmp_path / "made"
    rlds.sources.export(episodes, "lerobot", target, fps=10, version="v2.1")
    table = target / "meta/episodes.jsonl"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:9]))
    report = audit(rlds.sources.open(target), jobs=1)
    assert (report.num_episodes, [*report.unreadable]) == (9, [9, 10, 11])
    (target / "meta/rlds.json").unlink()
    shutil.rmtree(target / ".rlds")
    for index in report.unreadable:
        (target / f"data/chunk-000/episode_{index:06}.parquet").unlink()
    report = audit(rlds.sources.open(target), jobs=1)
    assert (report.num_episodes, [*report.unreadable]) == (9, [])
    assert any("total_episodes': 12, but there are 9" in fact for fact in report.facts["files"])


@pytest.mark.parametrize(
    ("version", "table"), [("v2.1", "meta/tasks.jsonl"), ("v3.0", "meta/tasks.parquet")]
)
def test_unused_declared_tasks_are_a_fact_of_the_complete_dataset(tmp_path, version, table):
    def export(name, episodes):
        data = write(tmp_path / f"raw {name}", episodes)
        rlds.sources.export(data, "lerobot", tmp_path / name, fps=10, version=version)
        (tmp_path / name / "meta/rlds.json").unlink()  # Like a file of another program.
        shutil.rmtree(tmp_path / name / ".rlds", ignore_errors=True)
        return rlds.sources.open(tmp_path / name)

    episodes = audited_data.make_episodes("arm", 31, 4)
    tasks = ["open", "pick", "pick", "shut"]
    declared = [dataclasses.replace(episode, task=task) for episode, task in zip(episodes, tasks)]
    used = [dataclasses.replace(episode, task="pick") for episode in episodes]
    dataset = export("declared", declared)
    assert "unused task" not in audit(dataset, jobs=1).facts
    assert "unused task" not in audit(dataset.where("index < 2"), jobs=1).facts
    export("used", used)
    shutil.copy(tmp_path / "declared" / table, tmp_path / "used" / table)
    source = rlds.sources.open(tmp_path / "used")
    assert audit(source, jobs=1).facts["unused task"] == [
        "2 of 3 declared tasks have no episode: 'pick', 'shut'"
    ]


def test_personal_data_in_texts_is_named_and_not_repeated(tmp_path):
    episodes = audited_data.make_episodes("arm", 31, 12)
    episodes[3] = dataclasses.replace(episodes[3], task="pick, says ada@example.org")
    report = audit(write(tmp_path / "mail", episodes), jobs=1)
    [finding] = [it for it in report.findings if it.check == "personal"]
    assert (finding.episode, finding.text) == (3, "language_instruction has an e-mail address")
    for index, episode in enumerate(episodes):
        episodes[index] = dataclasses.replace(episode, task=f"/home/ada/{index}.bag")
    report = audit(write(tmp_path / "home", episodes), jobs=1)
    where = "language_instruction has the home folder of a person"
    assert report.facts["personal"] == [f"{where}, in 12 of 12 episodes: this is usual here"]


def test_personal_data_in_texts_of_steps_is_named_despite_broken_utf_8(tmp_path):
    rng = np.random.default_rng(0)
    for index in range(12):
        states = rng.normal(size=(40, 2)).cumsum(0)
        notes = np.array([b"\xff grasped"] * 40, object)
        notes[30] = b"\xff ask ada@example.org" if index == 5 else notes[30]
        np.savez(
            tmp_path / f"{index:02}.npz",
            **{"observation/state": states, "observation/note": notes.astype("S")},
            action=np.diff(states, axis=0, append=states[-1:]),
            language_instruction=np.array(b"pick \xff"),
        )
    audited = audit(rlds.sources.open(tmp_path), jobs=1)
    [finding] = [it for it in audited.findings if it.check == "personal"]
    assert finding.episode == 5
    assert finding.text == "steps/observation/note has an e-mail address"
    assert audited.tasks[0] == "pick \ufffd"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("write to Ada.Lovelace+robot@lab.example.org.", "an e-mail address"),
        (r"C:\Users\ada\data", "the home folder of a person"),
        ("/Users/ada", "the home folder of a person"),
        ("call +49 (0)89 123 456-78", "a telephone number"),
        ("ssh://git@host.org/x, no-reply@host.org", ""),
        ("/homework/x", ""),
        ("2026-01-02T03:04:05.678901+00:00", ""),
        ("x = +1.25 -3.5 +12345", ""),
        ("kettle @ 3.5 m, v1.2@main", ""),
    ],
)
def test_personal_data_in_texts_is_classified(text, kind):
    assert personal_data_in(["pick", text]) == kind


@pytest.mark.parametrize("account", ["user", "root", "ubuntu", "runner", "app"])
def test_home_folders_of_system_accounts_are_no_personal_data(account):
    assert personal_data_in([f"/home/{account}/x"]) == ""
    assert personal_data_in([f"/home/{account}a/x"]) == "the home folder of a person"
