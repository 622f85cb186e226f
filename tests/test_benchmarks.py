"""The benchmarks run, and the page of benchmarks shows the newest results."""

import dataclasses
import importlib
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that runs benchmarks."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("run")


def test_the_page_shows_the_newest_results(run: ModuleType) -> None:
    page, results = run.page, run.page.newest()
    conversions = page.newest(page.CONVERSIONS)
    text, command = page.PAGE.read_text(), "python benchmarks/run.py --render"
    assert text == page.with_tables(text, results, conversions), command
    assert page.FIGURE.read_text() == page.figure(page.rows_of(results, feeds=False)), command
    figure_of_feeds = page.figure(page.rows_of(results, feeds=True), feeds=True)
    assert page.FIGURE_OF_FEEDS.read_text() == figure_of_feeds, command
    assert page.FIGURE_OF_WORKERS.read_text() == page.figure_of_workers(conversions), command


def test_newest_results_have_every_job(run: ModuleType) -> None:
    measured = [result["job"] for result in run.page.newest()["jobs"]]
    all_jobs = [job.title for job in (*run.JOBS, *run.FEEDS)]
    assert measured == all_jobs, "make bench, after pip install torch grain datasets"
    assert len(set(measured)) == len(measured)
    measured = [result["job"] for result in run.page.newest(run.page.CONVERSIONS)["jobs"]]
    assert measured == [job.title for job in run.CONVERSIONS], "run.py --conversions"


def test_page_names_jobs_with_newer_results(run: ModuleType, tmp_path: Path) -> None:
    page, results = run.page, run.page.newest(run.page.CONVERSIONS)
    page.save(results, tmp_path)
    first, *unchanged = results["jobs"]
    newer = {**first, "contenders": {"here": {"cpu": [1.0]}}}
    page.update({**results, "commit": "c0ffee", "load": [0.1, 0.3], "jobs": [newer]}, tmp_path)
    updated = page.newest(tmp_path)
    assert updated["jobs"][0]["contenders"] == newer["contenders"]
    assert [updated["commit"], *updated["jobs"][1:]] == [results["commit"], *unchanged]
    text = " ".join(page.conditions(updated).split())
    assert f"at commit c0ffee, at a load of 0.1 to 0.3: {first['job']}." in text


def test_tables_and_figures_show_where_this_project_is_slower(run: ModuleType) -> None:
    page = run.page
    rows = [
        page.Row("Slow <job>", "step", "TFDS", [2e-6, 4e-6, 5e-6], [1e-6] * 3),
        page.Row("Fast job", "step", "Minari", [1.0, 1.0], [20.0, 40.0]),
    ]
    table = page.table(rows)
    assert "| Slow <job> | TFDS | step | 4 µs | 1 µs | **0.25** | 0.20 to 0.50 |" in table
    assert "| Fast job | Minari | step | 1 s | 30 s | 30 | 20 to 40 |" in table
    root = ET.fromstring(page.figure(rows))
    (tick,) = (path for path in root.iter(f"{SVG}path") if path.get("class") == "one")
    x_of_one = float(tick.get("d", "").split()[0].removeprefix("M"))
    dots = [dot for dot in root.iter(f"{SVG}circle") if float(dot.get("cy", 0)) > page.TOP]
    assert [float(dot.get("cx", 0)) < x_of_one for dot in dots] == [True, False]


def command(run: ModuleType, *words: str) -> Any:
    jobs = importlib.import_module("jobs")
    return jobs.by(jobs.command_jobs.run_command, command=list(words))


def test_contenders_take_turns_and_failing_ones_are_left_out(
    run: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "open('DATA/turns', 'a').write('{}')"
    peers = {
        "b": command(run, "python", "-c", note.format("b")),
        "missing": command(run, "no_such_program"),
        "broken": command(run, "python", "-c", "raise SystemExit(3)"),
    }
    job = run.Job("job", "command", 1, command(run, "python", "-c", note.format("a")), peers)
    actual = run.Measurement(tmp_path, 2, quick=False).measure(job)["contenders"]
    assert (tmp_path / "turns").read_text() == "ab" * 3  # The first round does not count.
    assert {name: len(it["cpu"]) for name, it in actual.items()} == {"here": 2, "b": 2}
    errors = capsys.readouterr().err
    assert "left out: job, missing: ImportError" in errors
    assert "left out: job, broken" in errors
    broken = dataclasses.replace(job, ours=peers["broken"])
    with pytest.raises(run.Failed):
        run.Measurement(tmp_path, 1, quick=False).measure(broken)


def run_quickly(*only: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "run.py", "--quick", *only],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_a_job_can_be_run_alone() -> None:
    process = run_quickly("--only", "Read Minari by columns")
    assert process.returncode == 0, process.stderr
    assert "left out" not in process.stderr
    assert "| Read Minari by columns | Minari | step |" in process.stdout
    assert "--only TEXT" in run_quickly("--help").stdout


@pytest.mark.slow
def test_a_quick_run_compares_with_installed_libraries() -> None:
    process = run_quickly()
    assert process.returncode == 0, process.stderr
    for job in ("Write a TFDS dataset", "Read Minari, episodes of 10 steps"):
        assert f"| {job} |" in process.stdout


def test_growth_tells_speedup_and_disk_space(run: ModuleType, tmp_path: Path) -> None:
    job = next(job for job in run.CONVERSIONS if job.title == "1,000 episodes to zarr")
    actual = run.Measurement(tmp_path, 1, quick=True).measure(job)
    results = actual["contenders"]["here"]
    times = [results[f"times ({workers} workers)"] for workers in (1, 2, 64)]
    assert times[0] == pytest.approx(1)
    assert 1 < times[1] <= times[2]
    assert min(results["s (parts)"], results["s (read back)"]) > 0
    assert 1 < results["times (disk)"] < 3
    # Replaces times measured on a busy machine.
    results |= {f"times ({count} workers)": min(count, 2.0) for count in (1, 2, 4, 8, 16, 32, 64)}
    row = run.page.table_of_growth({"jobs": [actual]}).splitlines()[-1]
    assert row.startswith("| 1,000 episodes to zarr | ")
    assert row.endswith(" | 2 |")
    root = ET.fromstring(run.page.figure_of_workers({"jobs": [actual]}))
    assert any((text.text or "").startswith("zarr ") for text in root.iter(f"{SVG}text"))


@pytest.mark.slow
def test_conversions_are_compared_with_installed_libraries() -> None:
    process = run_quickly("--conversions")
    assert process.returncode == 0, process.stderr
    assert "| TFDS with images to LeRobot, H.264 | here, one process |" in process.stdout
    assert "|  | TFDS on Beam | " in process.stdout


@pytest.mark.slow
def test_contenders_for_training_yield_equal_batches(
    run: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = {job.title: job for job in run.FEEDS}
    job = dataclasses.replace(jobs["Windows"], quick=1600)
    actual = run.Measurement(tmp_path, 1, quick=True).measure(job)
    assert "AssertionError" not in capsys.readouterr().err
    assert {"NumPy, all in memory", "rlds.tfds.load"} < set(actual["contenders"])


@pytest.fixture
def feed_data(run: ModuleType) -> ModuleType:
    """The data of batches for training."""
    return importlib.import_module("feed_data")


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("numbers", "next_observation"),
        pytest.param("cameras", "image", marks=pytest.mark.slow),
    ],
)
def test_check_of_training_batches_detects_wrong_values(
    feed_data: ModuleType, kind: str, field: str
) -> None:
    data = feed_data.Data(Path(), kind, 2 * feed_data.LENGTHS[kind])
    episodes = [feed_data.flat(episode) for episode in data.episodes()]
    columns = {name: np.concatenate([e[name] for e in episodes]) for name in episodes[0]}
    rows = np.array([data.length + 7, 0, data.length - 2])
    batch = feed_data.samples_at(data, feed_data.discounted(columns), rows)
    feed_data.check(data, batch)
    for name in ("action", field):
        with pytest.raises(AssertionError, match=name):
            feed_data.check(data, {**batch, name: batch[name][::-1]})
    if data.has_images:
        assert batch["timestep_pad_mask"].tolist() == [[True, True], [False, True], [True, True]]
        assert batch["action_pad_mask"].sum(1).tolist() == [16, 16, 1]
        nearly_equal_images = np.minimum(batch["image"], 254) + np.uint8(1)
        feed_data.check(data, {**batch, "image": nearly_equal_images})
    else:
        following = episodes[1]["observation"][8]
        np.testing.assert_array_equal(batch["next_observation"][0], following)
