"""The first table and figure of the page of benchmarks are those of the newest results."""

import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from rlds_creator.frames import Frame

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The driver."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("run")


def test_the_page_shows_the_newest_results(run: ModuleType) -> None:
    page = run.PAGE.read_text()
    assert page == run.with_table(page, run.newest()), "python benchmarks/run.py --render"
    assert run.FIGURE.read_text() == run.figure(run.newest()), "python benchmarks/run.py --render"
    assert page.index(run.BEGIN) < page.index("## ")


def test_every_job_was_measured(run: ModuleType) -> None:
    measured = [(row["job"], row["peer"]) for row in run.newest()["rows"]]
    assert measured == [(row.title, row.peer) for row in run.ROWS]


def test_the_figure_shows_every_row_where_its_ratio_is(run: ModuleType) -> None:
    results = run.newest()
    of_slow = {"ours": [2.0, 4.0, 5.0], "theirs": [1.0, 1.0, 1.0]}
    slow = {"job": "Slow <job>", "peer": run.TFDS, "cpu": of_slow, "wall": of_slow}
    rows = [*results["rows"], slow]
    root = ET.fromstring(run.figure({**results, "rows": rows}))

    (one,) = (path for path in root.iter(f"{SVG}path") if path.get("class") == "one")
    x_of_one = float(one.get("d").split()[0].removeprefix("M"))
    dots = [dot for dot in root.iter(f"{SVG}circle") if float(dot.get("cy")) > run.TOP]
    assert len(dots) == len(rows)
    for row, dot in zip(rows, dots):
        median = run.Ratio.of(row).median
        assert (float(dot.get("cx")) < x_of_one - 0.1) == (median < 0.999), row
    assert run.Ratio.of(slow) == run.Ratio(median=0.25, low=0.2, high=0.5)
    assert "| Slow <job> | TFDS | 4.0 s | 1.0 s | **0.25** | 0.20 to 0.50 |" in run.table(
        {**results, "rows": rows}
    )


def test_contenders_take_turns(run: ModuleType) -> None:
    calls: list[str] = []
    contenders = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = run.rounds.take_turns(contenders, 2)
    assert calls == ["a", "b"] * 3
    assert {name: len(found) for name, found in times.items()} == {"a": 2, "b": 2}


@pytest.mark.slow
def test_a_quick_run_measures_rows_beside_what_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "run.py", "--quick"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert "failed" not in done.stderr, done.stderr
    for job in ("Convert D4RL", "Write a TFDS dataset", "Read Minari, episodes of 10 steps"):
        assert f"| {job} |" in done.stdout


@pytest.fixture
def feed_data(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The data of `bench_feeds`."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("feed_data")


def test_batches_for_training_are_compared_with_arrays(
    feed_data: ModuleType, tmp_path: Path
) -> None:
    data = feed_data.Data(tmp_path, "numbers", episodes=3, steps=5)
    episodes = list(data.each_episode())
    columns = {name: np.concatenate([e[name] for e in episodes]) for name in episodes[0]}
    at = np.array([8, 0, 3])
    batch = feed_data.transitions_at(columns, at)
    np.testing.assert_array_equal(batch["next_observation"][1], episodes[0]["observation"][1])
    np.testing.assert_array_equal(batch["action"][0], episodes[1]["action"][3])
    assert feed_data.check(data, columns, batch) == 0
    for name in ("action", "next_observation"):
        wrong = {**batch, name: batch[name][::-1]}
        with pytest.raises(AssertionError, match=name):
            feed_data.check(data, columns, wrong)


def test_windows_for_training_are_compared_with_arrays(
    feed_data: ModuleType, tmp_path: Path
) -> None:
    data = feed_data.Data(tmp_path, "cameras", episodes=1, steps=4)
    episode = data.episode(0)
    columns = {**episode, **episode["observation"]}
    for name in feed_data.IMAGES:
        columns[name] = feed_data.decoded(columns[name])
    batch = feed_data.windows_at(columns, np.array([0, 2]), data.steps)
    assert batch["timestep_pad_mask"].tolist() == [[False, True], [True, True]]
    assert batch["action_pad_mask"].sum(1).tolist() == [3, 1]
    np.testing.assert_array_equal(batch["action"][1], np.repeat(episode["action"][2:3], 16, 0))
    near = {**batch, "image": np.minimum(batch["image"], 254) + np.uint8(1)}
    assert feed_data.check(data, columns, near) == 1
    with pytest.raises(AssertionError, match="image"):
        feed_data.check(data, columns, {**batch, "image": batch["image"] // 2})


@pytest.mark.slow
def test_contenders_for_training_yield_the_same_samples(tmp_path: Path) -> None:
    script, jobs = ROOT / "benchmarks" / "bench_feeds.py", ("transitions", "windows")
    command = [sys.executable, script, "--quick", "--json", "--data", tmp_path, "--jobs", *jobs]
    done = subprocess.run(
        [*command, "--only", "NumPy take", "batched", "shuffle_steps", "segments"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert "left out" not in done.stderr, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    measured = {line["job"]: list(line["seconds"]) for line in found}
    for job in jobs:
        titles = {"rlds.feeds, segments", "NumPy take in RAM", "OpenVLA's pipeline, batched"}
        assert titles < set(measured[f"Feeds: {job}"])


@pytest.fixture
def feed_page(run: ModuleType) -> ModuleType:
    """What writes the results of `bench_feeds`."""
    return importlib.import_module("feed_page")


def test_the_page_shows_the_newest_results_of_feeds(run: ModuleType, feed_page: ModuleType) -> None:
    page, command = run.PAGE.read_text(), "python benchmarks/bench_feeds.py --render"
    assert page == feed_page.with_tables(page, feed_page.newest()), command
    assert feed_page.FIGURE.read_text() == feed_page.figure(feed_page.newest()), command
    found = feed_page.newest()["found"]["transitions"]
    slow, ours = (
        min(found[name]["cpu"]) for name in ("tfds.as_data_source, 0 workers", "rlds.feeds")
    )
    shown = re.findall(r'class="n"[^>]*>([0-9.]+)x</text>', feed_page.FIGURE.read_text())
    assert 0.5 < max(map(float, shown)) / (slow / ours) < 2  # No time is cut off.
    for goal in feed_page.newest()["goals"]:
        row = feed_page.row_of_goal(goal)
        within = (goal["least"] is None or goal["found"] >= goal["least"]) and (
            goal["most"] is None or goal["found"] <= goal["most"]
        )
        assert within != ("missed" in row), row
        assert row in page


@pytest.fixture
def creator_goals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The goals of `bench_creator`."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("creator_goals")


def test_a_figure_of_the_creator_is_met_or_missed(creator_goals: ModuleType) -> None:
    bench_creator = importlib.import_module("bench_creator")
    found = creator_goals.Found
    assert list(creator_goals.GOALS) == [f"G{number}" for number in range(1, 11)]
    for figure, aim, met in (
        (found("ms", 2.0, 2.0), "at most 2", "yes"),
        (found("ms", 2.1, 2.0), "at most 2", "missed"),
        (found("kills", 99, least=100), "at least 100", "missed"),
        (found("ms", float("nan"), 2.0), "at most 2", "missed"),
        (found("ms", 1234.5), "", ""),
    ):
        assert bench_creator.row("G1", figure)[3:5] == (aim, met)


def test_what_kills_cost_is_noticed(
    creator_goals: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playing import Player as Worker

    monkeypatch.setenv("RLDS_CREATOR_TESTING", "1")
    with Worker(tmp_path / "episodes") as worker:
        for step in range(1, 4):
            worker.press("ArrowLeft")
            worker.release("ArrowLeft")
            worker.until_step(step)
        worker.control("end")
        worker.until_state("ended")
        (episode,) = {one["id"]: one for one in worker.episodes}.values()
        frames = list(worker.frames)
    said = tmp_path / "episodes" / episode["id"] / "annotations.json"
    said.write_text(json.dumps({"state": "abandoned"}))
    row = {"id": episode["id"], "state": "abandoned", "num_steps": 4}

    def toll(rows: list[dict[str, object]], shown: list[Frame]) -> tuple[int, int]:
        server = SimpleNamespace(directory=tmp_path, ask=lambda *_: {"episodes": rows})
        player = SimpleNamespace(seen=[creator_goals.Seen(0.0, frame, 0) for frame in shown])
        toll = creator_goals.Toll()
        assert creator_goals._check(server, player, set(), toll) == len(shown)
        return toll.lost_steps, toll.differences

    assert toll([row], frames) == (0, 0)
    assert toll([{**row, "num_steps": 3}], frames) == (0, 1)
    assert toll([row, {**row, "id": "another"}], frames) == (0, 1)
    assert toll([{**row, "state": "playing"}], frames) == (0, 2)
    unrecorded = dataclasses.replace(frames[-1], time=frames[-1].time + 1)
    another = dataclasses.replace(frames[1], picture=b"another")
    assert toll([row], [*frames, unrecorded]) == (1, 0)
    assert toll([row], [another, *frames[2:]]) == (1, 0)


@pytest.mark.slow
def test_the_goals_of_the_creator_are_measured() -> None:
    script = ROOT / "benchmarks" / "bench_creator.py"
    done = subprocess.run(
        [sys.executable, script, "--quick", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    never = [one for one in found if one["most"] == 0]
    assert {one["goal"] for one in never} == {"G4", "G5", "G8"}
    assert not [one for one in never if one["found"]]
