"""Writes results to files, and to docs/benchmarks.md as tables and figures."""

import json
import math
import re
import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from jobs import OURS
from peers import ROOT

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURE = ROOT / "docs" / "benchmarks.svg"
FIGURE_OF_FEEDS = ROOT / "docs" / "benchmarks_feeds.svg"

Results = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """This project and one of its peers in a job.

    Attributes:
      job: What is done.
      unit: What times are given for.
      peer: Who is beside this project.
      ours: The processor times of a unit in seconds, round by round.
      theirs: Likewise.
    """

    job: str
    unit: str
    peer: str
    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """How many times as fast this project is, round by round."""
        return [theirs / ours for theirs, ours in zip(self.theirs, self.ours)]

    @property
    def median(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)


def rows_of(results: Results, *, feeds: bool) -> list[Row]:
    """Returns the rows of batches for training, or those of all other jobs."""
    return [
        Row(found["job"], found["unit"], peer, found["contenders"][OURS]["cpu"], theirs["cpu"])
        for found in results["jobs"]
        if (found["unit"] == "sample") == feeds
        for peer, theirs in found["contenders"].items()
        if peer != OURS
    ]


# --- Tables --------------------------------------------------------------------------------------


def in_words(ratio: float) -> str:
    """Writes a ratio with two digits that count."""
    return f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:.1f}" if ratio >= 1.95 else f"{ratio:.2f}"


def in_time(seconds: float) -> str:
    """Writes seconds with a unit, and two or three digits that count."""
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    name = next((name for name, unit in units.items() if seconds >= unit), "µs")
    value = seconds / units[name]
    return f"{value:.0f} {name}" if value >= 99.5 else f"{value:.2g} {name}"


def table(rows: Sequence[Row]) -> str:
    """Returns the table of jobs beside peers."""
    lines = [
        "| task | compared with | unit | here | other | speedup | lowest to highest |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        ours, theirs = (in_time(statistics.median(times)) for times in (row.ours, row.theirs))
        median = in_words(row.median)
        cells = [row.job, row.peer, row.unit, ours, theirs]
        cells += [f"**{median}**" if row.median < 1 else median]
        cells += [f"{in_words(min(row.ratios))} to {in_words(max(row.ratios))}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_feeds(results: Results) -> str:
    """Returns the table of batches for training: also of the first batch, and of memory."""
    lines = [
        "| task | loader | per sample | first batch | MB | speedup of rlds.feeds |",
        "|---|---|--:|--:|--:|--:|",
    ]
    ratios = {(row.job, row.peer): in_words(row.median) for row in rows_of(results, feeds=True)}
    for found in (job for job in results["jobs"] if job["unit"] == "sample"):
        for name, one in found["contenders"].items():
            ours = name == OURS
            cells = [found["job"] if ours else "", "**rlds.feeds**" if ours else name]
            cells += [in_time(statistics.median(one["cpu"])), in_time(one["start"])]
            cells += [f"{one['megabytes']:,.0f}", ratios.get((found["job"], name), "")]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def conditions(results: Results) -> str:
    """Returns what it takes to judge the tables."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    low, high = results["load"]
    count = max(len(one["cpu"]) for job in results["jobs"] for one in job["contenders"].values())
    rounds = f"medians of {count} rounds" if count > 1 else "of one round"
    text = (
        f"Measured on {results['date']}, at commit {results['commit']}, on {results['cores']} "
        f"cores of a shared machine ({results['cpu']}), whose load was {low:.1f} to {high:.1f}, "
        f"with {versions}. All times are processor times, {rounds}. "
        "Speedups below 1, where this project is slower, are bold."
    )
    return textwrap.fill(text, 130)


def tables(results: Results) -> str:
    """Returns all tables."""
    rows = table(rows_of(results, feeds=False))
    return "\n\n".join([rows, table_of_feeds(results), conditions(results)])


# --- Figures -------------------------------------------------------------------------------------

WIDTH, ROW_HEIGHT, TOP, LEFT, RIGHT = 860, 24, 58, 350, 66
COLOURS = ("#0b62b4", "#5a6068", "#b3541e", "#2d7d46", "#7b3fa0", "#a02c5a")
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#222}.n{text-anchor:end}.m{text-anchor:middle}"
    ".grid{stroke:#8884;stroke-width:1}.one{stroke:#222;stroke-width:1.5}"
)


def figure(rows: Sequence[Row], *, feeds: bool = False) -> str:
    """Returns the ratios as a figure: a dot is the median, a line goes from lowest to highest.

    Args:
      rows: What is in it.
      feeds: Whether colours tell jobs apart, not peers, and labels name both.
    """
    kinds = list(dict.fromkeys(row.job if feeds else row.peer for row in rows))
    decades = [math.log10(value) for row in rows for value in row.ratios]
    low, high = min([-0.5, *decades]) - 0.05, max([1.5, *decades]) + 0.05
    bottom = TOP + ROW_HEIGHT * len(rows)

    def x(ratio: float) -> str:
        place = LEFT + (math.log10(ratio) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return f"{place:.1f}"

    parts = [*_head([] if feeds else kinds, bottom + 34), *_grid(low, high, bottom, x)]
    for number, row in enumerate(rows):
        y = TOP + ROW_HEIGHT * number + ROW_HEIGHT // 2
        label = escape(f"{row.job}: {row.peer}" if feeds else row.job.replace("`", ""))
        colour = COLOURS[kinds.index(row.job if feeds else row.peer) % len(COLOURS)]
        parts += [
            f'<text class="n" x="{LEFT - 12}" y="{y + 4}">{label}</text>',
            f'<path stroke="{colour}" stroke-width="3" stroke-opacity=".5" '
            f'd="M{x(min(row.ratios))} {y}H{x(max(row.ratios))}"/>',
            f'<circle fill="{colour}" cx="{x(row.median)}" cy="{y}" r="5"/>',
            f'<text class="n" x="{WIDTH - 8}" y="{y + 4}">{in_words(row.median)}x</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _head(legend: Sequence[str], height: int) -> list[str]:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'width="{WIDTH}" height="{height}">',
        "<title>How many times as fast as its peers this project is, job by job</title>",
        f"<style>{STYLE}</style>",
        # Not every page that shows it in dark mode says so to an image.
        '<rect width="100%" height="100%" rx="6" fill="#fff"/>',
        f'<text x="{LEFT - 150}" y="18">times as fast as the peer, by processor time; '
        "left of 1x: slower</text>",
    ]
    for number, name in enumerate(legend):
        at = LEFT - 150 + 120 * number
        parts.append(f'<circle fill="{COLOURS[number]}" cx="{at + 5}" cy="34" r="5"/>')
        parts.append(f'<text x="{at + 16}" y="38">{escape(name)}</text>')
    return parts


def _grid(low: float, high: float, bottom: int, x: Callable[[float], str]) -> list[str]:
    parts = []
    for exponent in range(math.floor(low), math.ceil(high) + 1):
        for digit in (1, 2, 5):
            value = digit * 10.0**exponent
            if not low <= math.log10(value) <= high:
                continue
            style, at = "one" if value == 1 else "grid", x(value)
            parts.append(f'<path class="{style}" d="M{at} {TOP - 8}V{bottom}"/>')
            if digit == 1 or high - low < 4:  # Others would lie on each other.
                parts.append(f'<text class="m" x="{at}" y="{bottom + 18}">{value:g}x</text>')
    return parts


# --- Files ---------------------------------------------------------------------------------------


def save(results: Results) -> None:
    """Writes results to the file of their day, with the numbers of a list on one line."""
    text = json.dumps(results, indent=1)
    text = re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()), text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{results['date']}.json").write_text(text + "\n")


def newest() -> Results:
    """Returns the newest results."""
    results: Results = json.loads(max(RESULTS.glob("*.json")).read_text())
    return results


def with_tables(page: str, results: Results) -> str:
    """Returns the page with the tables of these results, between their marks."""
    for name, text in (
        ("results", f"{table(rows_of(results, feeds=False))}\n\n{conditions(results)}"),
        ("results of feeds", table_of_feeds(results)),
    ):
        begin, end = f"<!-- begin of the {name} -->", f"<!-- end of the {name} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return page


def render() -> None:
    """Writes the page and its figures from the newest results."""
    results = newest()
    PAGE.write_text(with_tables(PAGE.read_text(), results))
    FIGURE.write_text(figure(rows_of(results, feeds=False)))
    FIGURE_OF_FEEDS.write_text(figure(rows_of(results, feeds=True), feeds=True))
