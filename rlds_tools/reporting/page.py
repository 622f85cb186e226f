"""Renders the HTML page of a report within a size limit."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Iterator
from importlib import resources

from rlds_tools.markup import Markup, join, tag
from rlds_tools.reporting import sections
from rlds_tools.reporting.gathering import ReportData
from rlds_tools.reporting.video import VideoQuality
from rlds_tools.results import count
from rlds_tools.values import statistics_of

__all__ = ["render_page"]


def _size_reductions(frames: int, episodes: int) -> Iterator[tuple[VideoQuality, int, int]]:
    """Yields settings of ever smaller pages: coarser, shorter, then fewer videos.

    Yields:
      The quality of videos, the number of episodes, and the number of tiles of the contact sheet.
    """
    for crf, tiles in ((28, 60), (34, 48), (40, 24)):
        yield VideoQuality(frames, crf), episodes, tiles
    for divisor in (2, 4):
        yield VideoQuality(max(frames // divisor, 2), 40), episodes, 12
    while episodes > 0:
        episodes //= 2
        yield VideoQuality(max(frames // 4, 2), 45), episodes, 0


def render_page(data: ReportData, command: str, frames: int, max_size: int) -> str:
    """Returns the HTML of the page.

    Args:
      data: The data of the report.
      command: The command that creates the report.
      frames: The maximum number of frames of a video.
      max_size: The maximum size of the page in bytes.

    Raises:
      ValueError: The page cannot be as small as `max_size`.
    """
    text_sections = {name: render(data) for name, (_, render) in _SECTIONS.items() if render}
    text_sections["overview"] = sections.overview(data)
    text_sections["provenance"] = sections.provenance(data, command)
    text_size = sum(len(html.encode()) for html in text_sections.values())
    for quality, episodes, tiles in _size_reductions(frames, len(data.shown)):
        image_sections = {
            "episodes": sections.episodes(data, quality, data.shown[:episodes]),
            "frames": sections.contact_sheet(data, tiles),
        }
        if text_size + sum(map(len, image_sections.values())) > max_size:
            continue
        page = _document(data, {**text_sections, **image_sections})
        if len(page.encode()) <= max_size:
            return page
    raise ValueError(f"the report does not fit into {max_size:,} bytes. Increase --max-size.")


# The sections in order. `render_page` calls the functions that need more arguments.
_SECTIONS: dict[str, tuple[str, Callable[[ReportData], Markup] | None]] = {
    "findings": ("Findings", sections.findings),
    "audit": ("Audit", sections.audit),
    "episodes": ("Episodes", None),
    "frames": ("Frames", None),
    "distributions": ("Distributions", sections.distributions),
    "dimensions": ("Dimensions", sections.dimensions),
    "states": ("States", sections.states),
    "tasks": ("Tasks", sections.tasks),
    "scores": ("Scores", sections.scores),
    "fields": ("Fields", sections.fields),
    "statistics": ("Statistics", sections.statistics),
    "provenance": ("Source and files", None),
}


def _document(data: ReportData, rendered: dict[str, Markup]) -> str:
    inspection = data.inspection
    name = inspection.name or data.path
    episodes = count(len(data.scan.table), "episode")
    notes = filter(None, [inspection.version, data.scan.episodes.split, episodes])
    title = tag("h1", name, " ", tag("small", " · ".join(notes)))
    description = tag("p", inspection.description) if inspection.description else None
    theme = tag("button", "Theme", id="theme", type="button")
    links = [
        tag("li", tag("a", text, href=f"#{key}"))
        for key, (text, _) in _SECTIONS.items()
        if rendered.get(key)
    ]
    extent = sections.extent_text(data)
    sample = (
        tag("p", tag("b", "Sample: "), f"this page shows {extent}.", class_="notice")
        if data.is_sample
        else None
    )
    main = join(sample, rendered["overview"], *map(rendered.get, _SECTIONS))
    body = join(
        tag("header", tag("div", tag("div", title, description), theme)),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", main, tag("footer", "Made by rlds report.")),
        _statistics_json(data),
        tag("script", Markup(_read_resource("script.js"))),
    )
    header = join(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{name}: report"),
        tag("style", Markup(_read_resource("style.css"))),
    )
    page = tag("html", tag("head", header), tag("body", body), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _statistics_json(data: ReportData) -> Markup:
    """Returns the element with the statistics as JSON, for programs that read the page."""
    scan = data.scan
    steps = scan.num_steps - len(scan.table)
    text = statistics_of(scan.numeric_fields, max(steps, 0), len(scan.table)).to_json()
    # A text with "</script>" would end the element.
    safe = Markup(text.replace("<", "\\u003c"))
    return tag("script", safe, type="application/json", id="rlds-statistics")


@functools.cache
def _read_resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _policy() -> str:
    """Returns the content security policy: no requests, only the script and style of the page."""

    def digest(name: str) -> str:
        content = hashlib.sha256(_read_resource(name).encode()).digest()
        return f"'sha256-{base64.b64encode(content).decode()}'"

    return (
        "default-src 'none'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src {digest('style.css')}; script-src {digest('script.js')}"
    )
