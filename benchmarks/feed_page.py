"""Writes what `bench_feeds` found to `docs/benchmarks.md`, as tables and a figure."""

import contextlib
import importlib.metadata
import json
import re
import statistics
from pathlib import Path
from typing import Any

import run

RESULTS = run.RESULTS / "feeds"
FIGURE = run.ROOT / "docs" / "benchmarks_feeds.svg"
BEGIN, END = "<!-- begin of the results of feeds -->", "<!-- end of the results of feeds -->"
OURS = {"transitions": "rlds.feeds", "windows": "rlds.feeds"}
OURS |= dict.fromkeys(("steps", "frames"), "rlds.feeds, in order")
COLOURS = {
    "transitions": "#0b62b4",
    "windows": "#b3541e",
    "steps": "#2d7d46",
    "frames": "#7b3fa0",
}
PACKAGES = ["torch", "grain", "datasets", "simplejpeg"]


def save(results: dict[str, Any]) -> None:
    """Writes the results of a run, beside those of earlier ones."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1)  # With the numbers of a list on one line.
    text = re.sub(r"\[[^][{}]*\]", lambda numbers: " ".join(numbers[0].split()), text)
    (RESULTS / f"{results['date']}.json").write_text(text + "\n")


def describe_machine() -> dict[str, Any]:
    """Returns what runs this, and the versions of what is compared."""
    machine = run.describe_machine()
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            machine["versions"][name] = importlib.metadata.version(name)
    return machine


def newest() -> dict[str, Any]:
    """Returns the newest results."""
    results: dict[str, Any] = json.loads(max(RESULTS.glob("*.json")).read_text())
    return results


def _cells(of_contender: dict[str, Any] | None) -> list[str]:
    if of_contender is None:
        return ["", "", ""]
    cpu, start = min(of_contender["cpu"]) * 1e6, min(of_contender["starts"])
    memory = statistics.median(of_contender["megabytes"])
    digits = 2 if cpu < 9.95 else 1 if cpu < 99.5 else 0
    return [f"{cpu:,.{digits}f}", f"{start:.1f}", f"{memory:,.0f}"]


def table_of_contenders(results: dict[str, Any], jobs: tuple[str, str]) -> list[str]:
    """Returns the table of two jobs: what a sample takes, the first batch, and the memory."""
    found = [results["found"].get(job, {}) for job in jobs]
    heads = [f"{job}: µs | first batch, s | MB" for job in jobs]
    lines = [f"| | {' | '.join(heads)} |", "|---|--:|--:|--:|--:|--:|--:|"]
    for title in dict.fromkeys(title for of_job in found for title in of_job):
        cells = [cell for of_job in found for cell in _cells(of_job.get(title))]
        name = f"**{title}**" if title in OURS.values() else title
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def row_of_goal(goal: dict[str, Any]) -> str:
    """Returns the row of something that was promised."""
    bounds = ["" if goal[name] is None else f"{goal[name]:g}" for name in ("least", "most")]
    found = f"{goal['found']:.3g} {goal['unit']}".strip()
    cells = [goal["goal"].partition(": ")[2], found, *bounds, "" if goal["met"] else "**missed**"]
    return f"| {' | '.join(cells)} |"


def table_of_goals(results: dict[str, Any]) -> list[str]:
    """Returns the table of what was promised."""
    lines = ["| goal | found | at least | at most | |", "|---|--:|--:|--:|---|"]
    return [*lines, *map(row_of_goal, results["goals"])]


def tables(results: dict[str, Any]) -> str:
    """Returns all that is between the marks."""
    versions = results["versions"]
    low, high = results["load"]
    packages = ", ".join(f"{name} {versions[name]}" for name in PACKAGES if name in versions)
    lines = [
        *table_of_contenders(results, ("transitions", "windows")),
        "",
        *table_of_contenders(results, ("steps", "frames")),
        "",
        *table_of_goals(results),
        "",
        f"Measured on {results['date']}, at commit {results['commit']}, with Python "
        f"{versions['python']}, NumPy {versions['numpy']},",
        f"TensorFlow {versions['tensorflow']}, {packages}, on {results['cores']} cores of a shared",
        f"machine ({results['cpu']}), whose load was {low} to {high}.",
    ]
    return "\n".join(lines)


def figure(results: dict[str, Any]) -> str:
    """Returns the ratios of all contenders to `rlds.feeds` as a figure."""
    rows = []
    for job, found in results["found"].items():
        ours = found.get(OURS[job])
        for title, theirs in found.items():
            if ours is not None and not title.startswith("rlds.feeds") and "4096" not in title:
                both = {"ours": ours["cpu"], "theirs": theirs["cpu"]}
                # A sample takes less than what counts as nothing there.
                cpu = {who: [seconds * 1e4 for seconds in cpu] for who, cpu in both.items()}
                rows.append({"job": title, "peer": job, "cpu": cpu})
    return run.figure({"rows": rows}, COLOURS, "rlds.feeds, beside others, job by job")


def with_tables(page: str, results: dict[str, Any]) -> str:
    """Returns the page with the tables of these results."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables(results)}\n\n{END}{after}"


def render(page: Path = run.PAGE) -> None:
    """Writes the tables and the figure of the newest results."""
    page.write_text(with_tables(page.read_text(), newest()))
    FIGURE.write_text(figure(newest()))
