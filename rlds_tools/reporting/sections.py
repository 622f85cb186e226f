"""The sections of an HTML report, one function each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import rlds
from rlds.auditing import SCORES, Audit, EpisodeScore
from rlds.sources.cameras import Frames, VideoFrames, evenly
from rlds.sources.source import SourceEpisode, SourceError
from rlds_ecosystem import version
from rlds_ecosystem.model.nests import root_of
from rlds_ecosystem.model.texts import shorten
from rlds_tools.findings import Finding
from rlds_tools.markup import Markup, join, tag
from rlds_tools.reading import instructions_in
from rlds_tools.reporting import charts
from rlds_tools.reporting.charts import number_text
from rlds_tools.reporting.gathering import (
    ReportData,
    ShownEpisode,
    files_of,
    read_shown,
    states_of,
    vectors_of,
)
from rlds_tools.reporting.video import VideoQuality, clip, still
from rlds_tools.results import count, size_text
from rlds_tools.values import NumericField, element_name
from tfds_files import TfdsFilesError

__all__ = ["section"]

_MAX_CURVES = 6  # More curves are indistinguishable.
_MAX_CURVE_FIELDS = 3
_VISIBLE_DIMENSIONS, _MAX_DIMENSIONS = 32, 256
_VISIBLE_ROWS, _MAX_ROWS = 40, 1000
_MAX_TASKS, _NUM_LOWEST_RATED = 20, 5
_MAX_TASK_PANELS, _MAX_TASK_LENGTH = 12, 80
_MAX_STATE_SIZE = 512


def section(id: str, title: str, *content: str | None) -> Markup:
    """Renders a section of the report; empty without content."""
    inside = join(*content)
    if not inside:
        return Markup("")
    heading = tag("h2", title, id=f"{id}-title")
    return tag("section", heading, inside, id=id, aria_labelledby=f"{id}-title")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], label: str) -> Markup:
    """Renders a table; headings that begin with ">" belong to columns of numbers."""
    names = [heading.removeprefix(">") for heading in headings]
    sides = ["number" if heading.startswith(">") else None for heading in headings]
    header = join(*(tag("th", name, scope="col", class_=side) for name, side in zip(names, sides)))
    body = join(
        *(
            tag("tr", *(tag("td", cell, class_=side) for cell, side in zip(row, sides)))
            for row in rows
        )
    )
    table = tag("table", tag("thead", tag("tr", header)), tag("tbody", body))
    return tag("div", table, class_="scroll", tabindex=0, role="group", aria_label=label)


def _note(*text: str) -> Markup | None:
    """Renders a paragraph in small print; empty for an empty text."""
    return tag("p", *text, class_="note") if any(text) else None


def _collapsible(items: Sequence[Markup], limit: int, class_: str | None, name: str) -> Markup:
    """Renders the first items, and the remaining items in a collapsed element."""
    visible_items, hidden_items = items[:limit], items[limit:]
    visible = tag("div", *visible_items, class_=class_)
    if not hidden_items:
        return visible
    summary = tag("summary", f"{len(hidden_items):,} more {name}")
    return join(visible, tag("details", summary, tag("div", *hidden_items, class_=class_)))


# --- Overview.


def overview(data: ReportData) -> Markup:
    """Renders the cards with the main numbers: episodes, steps, returns, findings."""
    table, scan = data.scan.table, data.scan
    errors = sum(finding.severity == "error" for finding in data.scan.findings)
    warnings = len(data.scan.findings) - errors
    state = "bad" if errors else "odd" if warnings else "good"
    counts = [count(errors, "error")] if errors else []
    counts += [count(warnings, "warning")] if warnings else []
    summary = ", ".join(count.replace(" ", "\u00a0") for count in counts)
    total = "" if data.total is None or not data.is_sample else f" of {data.total:,}"
    lengths, terminal = table.length, float(table.is_terminal.mean())
    cards = [
        _card("Findings", summary if data.scan.findings else "none", "#findings", state),
        _card("Episodes read", f"{len(table):,}{total}"),
        _card("Steps", f"{scan.num_steps:,}"),
        _card(
            "Length",
            number_text(float(np.median(lengths))),
            note=f"{lengths.min():,} to {lengths.max():,} steps",
        ),
    ]
    returns, remark = data.returns()
    if len(returns):
        note = f"{number_text(returns.min())} to {number_text(returns.max())}{remark}"
        cards.append(_card("Mean return", number_text(float(returns.mean())), note=note))
    note = "of episodes" if terminal == 1 else "of episodes; the rest was truncated"
    cards.append(_card("Terminal", f"{100 * terminal:.0f} %", note=note))
    if data.inspection.num_bytes is not None:
        files = count(data.inspection.num_files or 0, "file")
        size = size_text(data.inspection.num_bytes)
        cards.append(_card("Size", size, note=f"in {files}"))
    return tag("section", *cards, id="overview", class_="cards", aria_label="Overview")


def _card(
    name: str, value: str, link: str | None = None, state: str | None = None, note: str = ""
) -> Markup:
    content = tag("a", value, href=link) if link else value
    return tag(
        "div",
        tag("p", name, class_="name"),
        tag("p", content, class_="value"),
        _note(note),
        class_=f"card {state}" if state else "card",
    )


# --- Findings.


def findings(data: ReportData) -> Markup:
    """Renders the table of findings, with links to the shown episodes."""
    if not data.scan.findings:
        scope = "The episodes of the sample" if data.is_sample else "All episodes"
        text = f"None. {scope} follow the rules of RLDS, and show none of the common mistakes."
        return section("findings", "Findings", tag("p", text, class_="quiet"))
    rows = [
        [
            _badge(finding),
            finding.check,
            join(finding.text, _note(finding.hint)),
            _episode_links(data, finding),
        ]
        for finding in data.scan.findings
    ]
    table = _table(["severity", "finding", "what", "where"], rows, "Findings")
    return section("findings", "Findings", table)


def _badge(finding: Finding) -> Markup:
    return tag("span", finding.severity, class_=f"badge {finding.severity}")


# --- Audit.


def audit(data: ReportData) -> Markup:
    """Renders the audit: the meaning of actions, and checks that were impossible."""
    result = data.audit
    if result is None:
        return Markup("")
    meanings = [tag("li", text) for vector in result.vectors for text in vector.sentences()]
    notes = [_note(f"Not assessed: {reason}.") for reason in result.unassessed]
    return section("audit", "Audit", tag("ul", *meanings) if meanings else None, *notes)


def _episode_links(data: ReportData, finding: Finding) -> Markup:
    if not finding.count:
        return join("dataset")
    links: list[str] = []
    for episode in finding.episodes:
        links += [", ", _episode_link(data, episode)]
    and_more = f" and {finding.count - len(finding.episodes):,} more"
    noun = "episode " if finding.count == 1 else f"{finding.count:,} episodes: "
    separator = ", " if finding.count == 1 else "; first: "
    step = "" if finding.step is None else f"{separator}step {finding.step}"
    return join(noun, *links[1:], and_more if finding.count > len(finding.episodes) else "", step)


def _episode_link(data: ReportData, episode: int) -> str:
    """Renders the stored index of an episode, with a link if the episode is shown."""
    is_shown = any(shown.stored_index == episode for shown in data.shown)
    return tag("a", f"{episode:,}", href=f"#episode-{episode}") if is_shown else f"{episode:,}"


# --- Fields.


def fields(data: ReportData) -> Markup:
    """Renders the tables of the fields of steps and episodes."""
    inspection, numeric_fields = data.inspection, data.scan.numeric_fields
    rows = [
        [*_field_cells(field), *_statistics_cells(field.name, numeric_fields.get(field.name))]
        for field in inspection.step_fields
    ]
    columns = ["field", "type", "notes", ">range", ">mean ± std", ">zero", ">not finite", "spread"]
    tables = [_table(columns, rows, "Fields of a step")]
    if inspection.episode_fields:
        episode_rows = [_field_cells(field) for field in inspection.episode_fields]
        tables.append(tag("h3", "Fields of an episode"))
        tables.append(_table(["field", "type", "notes"], episode_rows, "Fields of an episode"))
    return section("fields", "Fields of a step", *tables)


def _field_cells(field: Any) -> list[str]:
    sizes = " \u00d7 ".join("any" if size is None else str(size) for size in field.shape)
    kind = f"{field.dtype} {sizes}".strip()
    return [tag("code", field.name), kind, field.notes]


def _statistics_cells(name: str, field: NumericField | None) -> list[str]:
    if field is None or not field.count:
        return ["", "", "", "", ""]
    statistics = field.statistics()
    mean, std = float(np.mean(statistics.mean)), float(np.mean(statistics.std))
    values = field.sample.all().reshape(-1)
    return [
        f"{number_text(field.min.min())} … {number_text(field.max.max())}",
        f"{number_text(mean)} ± {number_text(std)}",
        _percentage(field.zeros.mean() / field.count),
        _percentage(field.not_finite.mean() / field.count),
        charts.sparkline(values, name),
    ]


def _percentage(fraction: float) -> str:
    if not fraction:
        return "0 %"
    text = "< 0.1 %" if fraction < 0.001 else f"{100 * fraction:.1f} %".replace(".0 %", " %")
    return text.replace(" ", "\u00a0")


# --- Distributions.


def distributions(data: ReportData) -> Markup:
    """Renders the histograms of returns, lengths, rewards and discounts."""
    table, numeric_fields = data.scan.table, data.scan.numeric_fields
    rewards = table.reward
    panels = []
    if np.isfinite(rewards).any():
        panels.append(_panel("Return of an episode", charts.histogram(rewards, "Return")))
    panels.append(_panel("Length of an episode", charts.histogram(table.length, "Length")))
    for name, field in numeric_fields.items():
        is_core = root_of(name) in (rlds.REWARD, rlds.DISCOUNT)
        if is_core and (field.min < field.max).any():
            values = field.sample.all().reshape(-1)
            panels.append(_panel(f"{name.capitalize()} of a step", charts.histogram(values, name)))
    if np.isfinite(rewards).any() and len(table) > 2:
        panels.append(_returns_over_lengths(table))
    legend = "Line: median. Band: 5 % to 95 % quantile."
    grid = tag("div", *panels, class_="grid wide")
    return section("distributions", "Distributions", _note(legend), grid)


def _panel(title: str, *content: str | None) -> Markup:
    return tag("div", tag("h3", title), *content, class_="panel")


def _returns_over_lengths(table: Any) -> Markup:
    terminal, has_reward = table.is_terminal, np.isfinite(table.reward)
    groups = [
        (name, table.length[rows].astype(float), table.reward[rows])
        for name, rows in (
            ("terminal", terminal & has_reward),
            ("truncated", ~terminal & has_reward),
        )
    ]
    chart = charts.scatter(groups, "Return over length, a point for each episode")
    legend = tag(
        "p",
        *(tag("span", name, class_=f"key {name}") for name, x, _ in groups if len(x)),
        class_="legend",
    )
    return _panel("Return over length", chart, legend)


# --- Dimensions.


def dimensions(data: ReportData) -> Markup:
    """Renders a small histogram for each element of observations and actions."""
    panels: list[Markup] = []
    total = 0
    for path, field in data.scan.numeric_fields.items():
        if path.split("/")[0] not in (rlds.OBSERVATION, rlds.ACTION) or not field.count:
            continue
        total += len(field.min)
        rows = field.sample.all()
        for element in range(min(len(field.min), _MAX_DIMENSIONS - len(panels))):
            name = element_name(path, field.shape, element)
            chart = charts.histogram(rows[:, element], name, small=True)
            panels.append(_panel(name, chart))
    stride = max((field.sample.stride for field in data.scan.numeric_fields.values()), default=1)
    notes = [
        _note(f"Showing the first {len(panels)} of {total:,}." if total > len(panels) else ""),
        _note(f"Histograms of one in {stride} steps." if stride > 1 else ""),
    ]
    if not panels:
        return Markup("")
    grid = _collapsible(panels, _VISIBLE_DIMENSIONS, "grid", "dimensions")
    return section("dimensions", "Dimensions", *notes, grid)


# --- Episodes.


def episodes(data: ReportData, quality: VideoQuality, shown: Sequence[ShownEpisode]) -> Markup:
    """Renders episodes: videos of cameras, synchronized with curves."""
    articles = [_episode(data, quality, episode) for episode in shown]
    return section("episodes", "Episodes", *articles)


def _episode(data: ReportData, quality: VideoQuality, shown: ShownEpisode) -> Markup | None:
    episode = read_shown(data, shown.index)
    if episode is None:
        return None
    table = data.scan.table
    row = int(np.searchsorted(table.index, shown.index))
    length, reward = int(table.length[row]), float(table.reward[row])
    notes = [
        count(length, "step"),
        "" if math.isnan(reward) else f"return {number_text(reward)}",
        "terminal" if table.is_terminal[row] else "truncated",
        "" if episode.complete else "incomplete",
        shown.reason,
    ]
    small = tag("small", " · ".join(filter(None, notes)))
    title = tag("h3", f"Episode {shown.stored_index:,}", small)
    instruction = next((texts[0] for texts in instructions_in(episode).values()), "")
    marks = [
        tag(
            "p",
            tag("span", finding.severity, class_=f"badge {finding.severity}"),
            f" {text}",
            class_="mark",
        )
        for finding in data.scan.findings
        for episode_index, text in zip(finding.episodes, finding.texts)
        if episode_index == shown.stored_index
    ]
    frames = data.camera_frames(shown.index, episode)
    cameras = [_camera(name, frames[name], quality) for name in frames]
    panels = _curves(data, episode)
    return tag(
        "article",
        title,
        tag("p", f"“{instruction}”", class_="instruction") if instruction else None,
        *marks,
        tag(
            "div",
            tag("div", *cameras, class_="cameras") if cameras else None,
            tag("div", *panels, class_="curves"),
            class_="side" if cameras else None,
        ),
        _controls(shown.stored_index, length),
        id=f"episode-{shown.stored_index}",
        class_="episode",
        data_steps=length,
    )


def _camera(name: str, frames: Frames | VideoFrames, quality: VideoQuality) -> Markup:
    label = name.removeprefix(f"{rlds.OBSERVATION}/")
    try:
        moving, mapping = clip(frames, quality, f"Camera {label}")
    except (SourceError, TfdsFilesError) as error:
        return tag("figure", tag("p", f"cannot be decoded: {error}", class_="quiet"))
    return tag("figure", moving, tag("figcaption", ", ".join(filter(None, [label, mapping]))))


def _curves(data: ReportData, episode: SourceEpisode) -> list[Markup]:
    scan = data.scan
    panels = []
    reward: Any = episode.steps.get(rlds.REWARD)
    stop = episode.num_steps - episode.final_observation_known
    if getattr(reward, "ndim", None) == 1 and reward.dtype.kind in "biuf":
        panels.append(_curve_panel(rlds.REWARD, [_mask_after(stop, reward.astype(np.float64))]))
    for root, end in ((rlds.ACTION, stop), (rlds.OBSERVATION, episode.num_steps)):
        for path, values in vectors_of(episode, scan, root)[:_MAX_CURVE_FIELDS]:
            field = scan.fields[path]
            is_class = field.shape == () and field.column_dtype.kind in "biu"
            note = f", {_MAX_CURVES} of {values.shape[1]}" if values.shape[1] > _MAX_CURVES else ""
            curves = [_mask_after(end, column) for column in values[:, :_MAX_CURVES].T]
            panels.append(_curve_panel(path, curves, note, is_class))
    return panels


def _mask_after(stop: int, column: np.ndarray) -> np.ndarray:
    """Replaces placeholders with NaN, so that all curves have the same axis."""
    return np.where(np.arange(len(column)) < stop, column, np.nan)


def _curve_panel(
    path: str, columns: list[np.ndarray], note: str = "", steps: bool = False
) -> Markup:
    chart, bounds = charts.curves(columns, path, steps=steps)
    keys = [tag("b", f" {index}", class_=f"t{index}") for index in range(len(columns))]
    name = path.removeprefix(f"{rlds.OBSERVATION}/")
    name = tag("span", name, note, *(keys if len(keys) > 1 else ()))
    title = tag("h4", name, tag("small", bounds))
    return tag("div", title, chart, class_="curves-of")


def _controls(index: int, length: int) -> Markup | None:
    if length < 2:
        return None
    return tag(
        "div",
        tag("button", "Play", type="button", class_="play", hidden=True),
        tag(
            "input",
            type="range",
            min=0,
            max=length - 1,
            value=0,
            aria_label=f"Step of episode {index}",
        ),
        tag("output", "step 0"),
        class_="controls",
    )


# --- Contact sheet.


def contact_sheet(data: ReportData, max_tiles: int) -> Markup:
    """Renders the first and the last frame of episodes, of one camera."""
    if not data.cameras or not max_tiles:
        return Markup("")
    camera, indices = data.cameras[0], data.scan.table.index
    tiles = []
    for row in evenly(len(indices), max_tiles):
        index = int(indices[row])
        tile = _tile(data, camera, index)
        if tile is not None:
            caption = _episode_link(data, data.scan.episodes.stored_index(index))
            tiles.append(tag("figure", tile, tag("figcaption", caption)))
    share = "" if len(tiles) == len(indices) else f", {len(tiles)} of {len(indices):,} episodes"
    text = f"The first and the last frame of {camera}{share}."
    sheet = tag("div", *tiles, class_="sheet")
    return section("frames", "First and last frames", _note(text), sheet)


def _tile(data: ReportData, camera: str, index: int) -> Markup | None:
    episode = read_shown(data, index)
    frames = None if episode is None else data.camera_frames(index, episode).get(camera)
    if not frames:
        return None
    try:
        first_frame, last_frame = frames.take([0, len(frames) - 1])
    except (SourceError, TfdsFilesError):
        return None
    stored_index = data.scan.episodes.stored_index(index)
    return join(
        still(first_frame, f"First frame of episode {stored_index}"),
        still(last_frame, f"Last frame of episode {stored_index}"),
    )


# --- States.


def states(data: ReportData) -> Markup:
    """Renders the density of observations in the first two principal components."""
    rows = states_of(data.scan)
    if rows.shape[0] < 10 or not 2 <= rows.shape[1] <= _MAX_STATE_SIZE:
        return Markup("")
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    explained = values[::-1][:2] / values.sum()
    points = scaled @ vectors[:, ::-1][:, :2]
    text = (
        f"Density of {len(rows):,} steps in the first two principal components of the "
        f"{rows.shape[1]} varying numbers of an observation. The components explain "
        f"{100 * explained[0]:.0f} % and {100 * explained[1]:.0f} % of the variance."
    )
    chart = charts.density(points, "Density of states in two principal components")
    panel = tag("div", chart, class_="panel")
    return section("states", "States", _note(text), panel)


# --- Tasks.


def tasks(data: ReportData) -> Markup:
    """Renders the table of instructions, with the number of episodes of each instruction."""
    instructions = data.scan.instructions
    if not instructions:
        return Markup("")
    rows = [
        [text.strip() or "(empty)", f"{num_episodes:,}"]
        for text, num_episodes in instructions.most_common(_MAX_TASKS)
    ]
    table = _table(["instruction", ">episodes"], rows, "Instructions")
    num_more = len(instructions) - len(rows)
    note = _note(f"{num_more:,} more instructions" if num_more else "")
    return section("tasks", "Tasks", table, note)


# --- Scores.


def scores(data: ReportData) -> Markup:
    """Renders the scores of the audit, in total and by task, with the lowest episodes."""
    by_name = data.audit.scores if data.audit else {}
    panels = join(*(_score_panel(data, s, by_name[s.name]) for s in SCORES if s.name in by_name))
    by_task = [_score_by_task(data.audit, score) for score in SCORES if score.name in by_name]
    return section("scores", "Scores", panels and tag("div", panels, class_="grid wide"), *by_task)


def _score_by_task(result: Audit | None, score: EpisodeScore) -> Markup:
    """Renders the histograms of a score by task, on one axis; empty for a single task."""
    by_task: dict[str, list[float]] = {}
    for task, value in zip(result.tasks, result.scores[score.name].tolist()) if result else ():
        if task is not None and math.isfinite(value):
            by_task.setdefault(task, []).append(value)
    all_values = [value for values in by_task.values() for value in values]
    if len(by_task) < 2 or math.isclose(min(all_values), max(all_values)):
        return Markup("")
    span = min(all_values), max(all_values)
    ranking = sorted(by_task.items(), key=lambda item: -len(item[1]))
    panels = []
    for task, values in ranking[:_MAX_TASK_PANELS]:
        name = shorten(task.strip() or "(empty)", _MAX_TASK_LENGTH)
        chart = charts.histogram(np.array(values), f"{score.name}: {name}", small=True, span=span)
        note = f"{count(len(values), 'episode')}, median {number_text(float(np.median(values)))}"
        panels.append(_panel(name, chart, _note(note)))
    num_left = len(ranking) - len(panels)
    remaining = _note(
        f"{count(num_left, 'other task')}, of no more episodes each." if num_left else ""
    )
    title = tag("summary", f"{score.name.capitalize()} by task")
    return tag("details", title, tag("div", *panels, class_="grid"), remaining)


def _score_panel(data: ReportData, score: EpisodeScore, values: np.ndarray) -> Markup:
    rated = np.flatnonzero(np.isfinite(values))
    if not len(rated) or np.ptp(values[rated]) == 0:
        return Markup("")
    items: list[str] = []
    for row in rated[np.argsort(values[rated], kind="stable")][:_NUM_LOWEST_RATED].tolist():
        index = data.scan.episodes.stored_index(int(data.scan.table.index[row]))
        items += [" · ", _episode_link(data, index), f" ({number_text(float(values[row]))})"]
    lowest = _note(tag("b", "Lowest in episode "), *items[1:])
    chart = charts.histogram(values[rated], score.name)
    return _panel(score.name.capitalize(), chart, _note(score.definition), lowest)


# --- Statistics.


def statistics(data: ReportData) -> Markup:
    """Renders the table of statistics: mean, deviation, extremes and quantiles of each element."""
    rows: list[list[str]] = []
    for path, field in data.scan.numeric_fields.items():
        if not field.count:
            continue
        summary = field.statistics()
        quantiles = [summary.quantiles[q] for q in (0.01, 0.5, 0.99)]
        columns = [summary.mean, summary.std, summary.min, *quantiles, summary.max]
        flat = [column.reshape(-1) for column in columns]
        for element in range(len(field.min)):
            if len(rows) >= _MAX_ROWS:
                break
            name = tag("code", element_name(path, field.shape, element))
            num_values = f"{int(summary.count.reshape(-1)[element]):,}"
            texts = (number_text(float(column[element])) for column in flat)
            rows.append([name, num_values, *texts])
    if not rows:
        return Markup("")
    headings = ["element", ">count", ">mean", ">std", ">min", ">1 %", ">median", ">99 %", ">max"]
    note = _note(
        "Placeholders in last steps are ignored. This page holds the same numbers as JSON, as ",
        *(tag("code", "rlds.Statistics"), ", in the element ", tag("code", "rlds-statistics"), "."),
    )
    table = _table(headings, rows[:_VISIBLE_ROWS], "Statistics")
    hidden = rows[_VISIBLE_ROWS:]
    title = tag("summary", f"{len(hidden):,} more elements")
    details = tag("details", title, _table(headings, hidden, "More statistics")) if hidden else None
    return section("statistics", "Statistics", note, table, details)


# --- Source and files.


def provenance(data: ReportData, command: str) -> Markup:
    """Renders the provenance: path, format, files, the share that was read, and the command."""
    inspection, info = data.inspection, data.scan.episodes.source.source_info
    entries = {
        "Path": tag("code", data.path),
        "Format": " ".join(filter(None, [inspection.format, inspection.file_format])),
        "Split": data.scan.episodes.split,
        "Read": extent_text(data),
        "License": info.license,
        "Homepage": info.homepage,
        "Made by": join(f"rlds {version()}: ", tag("code", command)),
    }
    items = [join(tag("dt", name), tag("dd", value)) for name, value in entries.items() if value]
    files = [[tag("code", name), size_text(size)] for name, size in files_of(data)]
    num_files = data.inspection.num_files or len(files)
    extent = f", the first {len(files)}" if num_files > len(files) else ""
    title = count(num_files, "file") + extent
    listing = tag("details", tag("summary", title), _table(["file", ">size"], files, "Files"))
    citation = (
        tag("details", tag("summary", "Citation"), tag("pre", info.citation, tabindex=0))
        if info.citation
        else None
    )
    return section("provenance", "Source and files", tag("dl", *items), listing, citation)


def extent_text(data: ReportData) -> str:
    """Describes the share of the data that was read."""
    num_read = len(data.scan.table)
    num_unreadable = data.scan.num_unreadable
    damaged = f"; {count(num_unreadable, 'other')} cannot be read" if num_unreadable else ""
    if not data.is_sample:
        return f"all {count(num_read, 'episode')}{damaged}"
    if data.total is None:
        return f"the first {count(num_read, 'episode')}; the total is unknown"
    share = f"{100 * num_read / data.total:.2g} %"
    selection = "evenly spread" if data.scan.episodes.has_random_access else "the first ones"
    return f"{num_read:,} of {data.total:,} episodes ({share}), {selection}{damaged}"
