"""Writes results to files, and to docs/benchmarks.md as tables and figures."""

import json
import math
import re
import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from conversion_jobs import WORKERS
from jobs import OURS
from peers import ROOT

RESULTS = ROOT / "benchmarks" / "results"
CONVERSIONS = RESULTS / "conversions"
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURE = ROOT / "docs" / "benchmarks.svg"
FIGURE_OF_FEEDS = ROOT / "docs" / "benchmarks_feeds.svg"
FIGURE_OF_WORKERS = ROOT / "docs" / "benchmarks_workers.svg"

Results = dict[str, Any]
GENERATED = "generated episode"  # The unit of conversions that grow.


@dataclass(frozen=True)
class Row:
    """This project and one of its peers in a job.

    Attributes:
      job: The title of the job.
      unit: The unit of work of the times.
      peer: The name of the peer.
      ours: The processor times of a unit in seconds, by round.
      theirs: The same times of the peer.
    """

    job: str
    unit: str
    peer: str
    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """The speedup of this project over the peer, by round."""
        return [theirs / ours for theirs, ours in zip(self.theirs, self.ours)]

    @property
    def median(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)


def rows_of(results: Results, *, feeds: bool) -> list[Row]:
    """Returns the rows of batches for training, or those of all other jobs."""
    return [
        Row(job["job"], job["unit"], peer, job["contenders"][OURS]["cpu"], theirs["cpu"])
        for job in results["jobs"]
        if (job["unit"] == "sample") == feeds
        for peer, theirs in job["contenders"].items()
        if peer != OURS
    ]


# --- Tables --------------------------------------------------------------------------------------


def ratio_text(ratio: float) -> str:
    """Writes a ratio with two digits that count."""
    return f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:.1f}" if ratio >= 1.95 else f"{ratio:.2f}"


def in_time(seconds: float) -> str:
    """Writes seconds with a unit, and two or three digits that count."""
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    name = next((name for name, unit in units.items() if seconds >= unit), "µs")
    value = seconds / units[name]
    return f"{value:.0f} {name}" if value >= 99.5 else f"{value:.2g} {name}"


def table(rows: Sequence[Row]) -> str:
    """Returns the table of jobs with peers."""
    lines = [
        "| task | compared with | unit | here | other | speedup | lowest to highest |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        ours, theirs = (in_time(statistics.median(times)) for times in (row.ours, row.theirs))
        median = ratio_text(row.median)
        cells = [row.job, row.peer, row.unit, ours, theirs]
        cells += [f"**{median}**" if row.median < 1 else median]
        cells += [f"{ratio_text(min(row.ratios))} to {ratio_text(max(row.ratios))}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_feeds(results: Results) -> str:
    """Returns the table of batches for training: also of the first batch, and of memory."""
    lines = [
        "| task | loader | per sample | first batch | MB | speedup of rlds.feeds |",
        "|---|---|--:|--:|--:|--:|",
    ]
    ratios = {(row.job, row.peer): ratio_text(row.median) for row in rows_of(results, feeds=True)}
    for job in (job for job in results["jobs"] if job["unit"] == "sample"):
        for name, one in job["contenders"].items():
            ours = name == OURS
            cells = [job["job"] if ours else "", "**rlds.feeds**" if ours else name]
            cells += [in_time(statistics.median(one["cpu"])), in_time(one["start"])]
            cells += [f"{one['megabytes']:,.0f}", ratios.get((job["job"], name), "")]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


_MEDIANS = "All times are {}."
_BOLD = (
    "All times are processor times, {}. Speedups below 1, where this project is slower, are bold."
)


def conditions(results: Results, template: str = _BOLD) -> str:
    """Returns what it takes to judge the tables."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    low, high = results["load"]
    counts = {len(one["cpu"]) for job in results["jobs"] for one in job["contenders"].values()}
    rounds = f"medians of {'up to ' * (len(counts) > 1)}{max(counts)} rounds"
    rounds = rounds if max(counts) > 1 else "of one round"
    text = (
        f"Measured on {results['date']}, at commit {results['commit']}, on {results['cores']} "
        f"cores of a shared machine ({results['cpu']}), whose load was {low:.1f} to {high:.1f}, "
        f"with {versions}. {template.format(rounds)}"
    )
    later: dict[str, list[str]] = {}
    for job in results["jobs"]:
        if "later" in job:
            later.setdefault(job["later"], []).append(job["job"])
    text += "".join(f" Measured {when}: {'; '.join(titles)}." for when, titles in later.items())
    return textwrap.fill(text, 130)


def table_of_conversions(results: Results) -> str:
    """Returns the table of conversions by one process, by all cores, and by peers."""
    lines = [
        "| task | by | unit | processor time | elapsed | x cores | x processor time |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for job in _jobs(results, lambda unit: unit not in ("start", GENERATED)):
        one = statistics.median(job["contenders"][OURS]["cpu"])
        for name, contender in job["contenders"].items():
            cpu, wall = (statistics.median(contender[kind]) for kind in ("cpu", "wall"))
            is_one = name == OURS
            cells = [job["job"] if is_one else "", "here, one process" if is_one else name]
            cells += [job["unit"], in_time(cpu), in_time(wall)]
            ratios = wall * results["cores"] / one, cpu / one
            cells += ["", ""] if is_one else [ratio_text(ratio) for ratio in ratios]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_growth(results: Results) -> str:
    """Returns the table of conversions of more and more episodes."""
    some, names = WORKERS[1::2], ("parts", "files", "read back", "alone")
    heads = ["task", "an episode", *names, "MB", "disk", *(f"{n} workers" for n in some), "enough"]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'--:|' * (len(heads) - 1)}"]
    for job in _jobs(results, lambda unit: unit == GENERATED):
        one = job["contenders"][OURS]
        total = sum(one[f"s ({name})"] for name in names)
        times = {workers: one[_of_workers(workers)] for workers in WORKERS}
        # Twice as many would be less than a quarter faster.
        enough = next((n for n in WORKERS[:-1] if times[2 * n] < 1.25 * times[n]), WORKERS[-1])
        cells = [job["job"], in_time(statistics.median(one["cpu"]))]
        cells += [f"{one[f's ({name})'] / total:.1%}" for name in names]
        cells += [f"{one['megabytes']:,.0f}", ratio_text(one["times (disk)"])]
        cells += [*(ratio_text(times[workers]) for workers in some), str(enough)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _of_workers(workers: int) -> str:
    return f"times ({workers} workers)"


def table_of_starts(results: Results) -> str:
    """Returns the table of the least costs of a conversion."""
    lines = ["| task | one part | each worker |", "|---|--:|--:|"]
    for job in _jobs(results, lambda unit: unit == "start"):
        one = job["contenders"][OURS]
        costs = (in_time(one[f"s ({name})"]) for name in ("one part", "each worker"))
        lines.append(f"| {job['job']} | {' | '.join(costs)} |")
    return "\n".join(lines)


def _jobs(results: Results, has: Callable[[str], bool]) -> list[Any]:
    return [job for job in results["jobs"] if has(job["unit"])]


def tables_of_conversions(results: Results) -> str:
    """Returns the tables of conversions by all cores, and of what starts them costs."""
    blocks = table_of_conversions(results), table_of_starts(results), conditions(results, _MEDIANS)
    return "\n\n".join(blocks)


def tables(results: Results) -> str:
    """Returns all tables."""
    rows = table(rows_of(results, feeds=False))
    return "\n\n".join([rows, table_of_feeds(results), conditions(results)])


# --- Figures -------------------------------------------------------------------------------------

WIDTH, ROW_HEIGHT, TOP, LEFT, RIGHT = 860, 24, 58, 350, 66
COLOURS = ("#0b62b4", "#5a6068", "#b3541e", "#2d7d46", "#7b3fa0", "#a02c5a")
_TITLE = "How many times as fast as its peers this project is, job by job"
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#222}.n{text-anchor:end}.m{text-anchor:middle}"
    ".grid{stroke:#8884;stroke-width:1}.one{stroke:#222;stroke-width:1.5}"
)


def figure(rows: Sequence[Row], *, feeds: bool = False) -> str:
    """Returns the ratios as a figure: a dot is the median, a line goes from lowest to highest.

    Args:
      rows: The rows.
      feeds: True to distinguish jobs by colours, instead of peers, and name both in labels.
    """
    kinds = list(dict.fromkeys(row.job if feeds else row.peer for row in rows))
    decades = [math.log10(value) for row in rows for value in row.ratios]
    low, high = min([-0.5, *decades]) - 0.05, max([1.5, *decades]) + 0.05
    bottom = TOP + ROW_HEIGHT * len(rows)

    def x(ratio: float) -> str:
        position = LEFT + (math.log10(ratio) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return f"{position:.1f}"

    elements = [*_head([] if feeds else kinds, bottom + 34), *_grid(low, high, bottom, x)]
    for index, row in enumerate(rows):
        y = TOP + ROW_HEIGHT * index + ROW_HEIGHT // 2
        label = escape(f"{row.job}: {row.peer}" if feeds else row.job.replace("`", ""))
        colour = COLOURS[kinds.index(row.job if feeds else row.peer) % len(COLOURS)]
        elements += [
            f'<text class="n" x="{LEFT - 12}" y="{y + 4}">{label}</text>',
            f'<path stroke="{colour}" stroke-width="3" stroke-opacity=".5" '
            f'd="M{x(min(row.ratios))} {y}H{x(max(row.ratios))}"/>',
            f'<circle fill="{colour}" cx="{x(row.median)}" cy="{y}" r="5"/>',
            f'<text class="n" x="{WIDTH - 8}" y="{y + 4}">{ratio_text(row.median)}x</text>',
        ]
    return "\n".join([*elements, "</svg>", ""])


def figure_of_workers(results: Results) -> str:
    """Returns how much faster conversions are by more workers, each of the most episodes."""
    jobs = _jobs(results, lambda unit: unit == GENERATED)
    largest = {job["job"].split(" to ")[1]: job["contenders"][OURS] for job in jobs}
    steps, height = math.log2(WORKERS[-1]), 360

    def spot(workers: int, times: float) -> str:
        right = 60 + math.log2(workers) / steps * (WIDTH - 260)
        return f"{right:.1f} {height - 40 - math.log2(max(times, 1)) / steps * (height - 80):.1f}"

    elements = _head([], height, "times as fast as one worker, by the number of workers")
    for workers in WORKERS:
        (x, bottom), y = spot(workers, 1).split(), spot(1, workers).split()[1]
        elements += [
            f'<path class="grid" d="M{spot(workers, WORKERS[-1])}V{bottom}M60 {y}H{WIDTH - 200}"/>',
            f'<text class="m" x="{x}" y="{height - 18}">{workers}</text>',
            f'<text class="n" x="50" y="{float(y) + 4}">{workers}x</text>',
        ]
    lowest = 0.0
    by_speed = sorted(largest.items(), key=lambda each: -each[1][_of_workers(WORKERS[-1])])
    for (name, one), colour in zip(by_speed, COLOURS):
        points = [spot(workers, one[_of_workers(workers)]) for workers in WORKERS]
        right, y = map(float, points[-1].split())
        lowest = y = max(y, lowest + 16)  # Labels do not overlap.
        label = f"{name} {ratio_text(one[_of_workers(WORKERS[-1])])}x"
        elements += [
            f'<path fill="none" stroke="{colour}" stroke-width="2" d="M{"L".join(points)}"/>',
            f'<text x="{right + 8}" y="{y + 4}" fill="{colour}">{label}</text>',
        ]
    return "\n".join([*elements, "</svg>", ""])


def _head(legend: Sequence[str], height: int, title: str = "") -> list[str]:
    of_peers = "times as fast as the peer, by processor time; left of 1x: slower"
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'width="{WIDTH}" height="{height}">',
        f"<title>{title or _TITLE}</title>",
        f"<style>{STYLE}</style>",
        # Images do not know of the dark mode of some pages.
        '<rect width="100%" height="100%" rx="6" fill="#fff"/>',
        f'<text x="{LEFT - 150}" y="18">{title or of_peers}</text>',
    ]
    for index, name in enumerate(legend):
        left = LEFT - 150 + 120 * index
        elements.append(f'<circle fill="{COLOURS[index]}" cx="{left + 5}" cy="34" r="5"/>')
        elements.append(f'<text x="{left + 16}" y="38">{escape(name)}</text>')
    return elements


def _grid(low: float, high: float, bottom: int, x: Callable[[float], str]) -> list[str]:
    elements = []
    for exponent in range(math.floor(low), math.ceil(high) + 1):
        for digit in (1, 2, 5):
            value = digit * 10.0**exponent
            if not low <= math.log10(value) <= high:
                continue
            style, left = "one" if value == 1 else "grid", x(value)
            elements.append(f'<path class="{style}" d="M{left} {TOP - 8}V{bottom}"/>')
            if digit == 1 or high - low < 4:  # Further labels would overlap.
                elements.append(f'<text class="m" x="{left}" y="{bottom + 18}">{value:g}x</text>')
    return elements


# --- Files ---------------------------------------------------------------------------------------


def save(results: Results, folder: Path) -> None:
    """Writes results to the file of their day, with the numbers of a list on one line."""
    text = json.dumps(results, indent=1)
    text = re.sub(r"\[[^][{}]*\]", lambda match: " ".join(match[0].split()), text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{results['date']}.json").write_text(text + "\n")


def update(results: Results, folder: Path) -> None:
    """Replaces the results of some jobs in the newest file."""
    previous, low, high = newest(folder), *results["load"]
    later = f"on {results['date']}, at commit {results['commit']}, at a load of {low} to {high}"
    newer = {job["job"]: {**job, "later": later} for job in results["jobs"]}
    jobs = [newer.get(job["job"], job) for job in previous["jobs"]]
    save({**previous, "jobs": jobs}, folder)


def newest(folder: Path = RESULTS) -> Results:
    """Returns the newest results."""
    results: Results = json.loads(max(folder.glob("*.json")).read_text())
    return results


def with_tables(page: str, results: Results, conversions: Results | None = None) -> str:
    """Returns the page with the tables of these results, between their marks."""
    texts = {
        "results": f"{table(rows_of(results, feeds=False))}\n\n{conditions(results)}",
        "results of feeds": table_of_feeds(results),
    }
    if conversions is not None:
        texts["results of conversions"] = tables_of_conversions(conversions)
        texts["results of growth"] = table_of_growth(conversions)
    for name, text in texts.items():
        begin, end = f"<!-- begin of the {name} -->", f"<!-- end of the {name} -->"
        before, _, following = page.partition(begin)
        _, _, after = following.partition(end)
        page = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return page


def render() -> None:
    """Writes the page and its figures from the newest results."""
    results = newest()
    conversions = newest(CONVERSIONS) if CONVERSIONS.exists() else None
    PAGE.write_text(with_tables(PAGE.read_text(), results, conversions))
    FIGURE.write_text(figure(rows_of(results, feeds=False)))
    FIGURE_OF_FEEDS.write_text(figure(rows_of(results, feeds=True), feeds=True))
    if conversions is not None:
        FIGURE_OF_WORKERS.write_text(figure_of_workers(conversions))
