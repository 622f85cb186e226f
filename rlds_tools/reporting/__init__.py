"""`rlds report`: an HTML page with the content and the findings of a dataset."""

from __future__ import annotations

import dataclasses
import html
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from rlds_ecosystem.files.whole_files import write_atomically
from rlds_tools.findings import Finding, findings_table
from rlds_tools.results import Block, Result, count, next_commands, size_text

__all__ = ["Report", "is_report", "report"]

_MAX_REPORT_BYTES = 3_000_000
# The text that identifies a report.
_REPORT_MARK = "Made by rlds report."


def is_report(path: str | os.PathLike[str]) -> bool:
    """Returns True if a file is a report, which a new report may replace."""
    try:
        content = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return _REPORT_MARK in content


@dataclasses.dataclass(frozen=True)
class Report(Result):
    """A report.

    Attributes:
      path: The path of the data.
      split: The split.
      episodes: The number of episodes that were read.
      total: The number of episodes; None if unknown.
      steps: The number of steps that were read.
      shown: The stored indices of the shown episodes.
      findings: The faults, errors first.
      content: The page, in HTML.
      output: The path of the saved report; None before `save`.
    """

    path: str
    split: str
    episodes: int
    total: int | None
    steps: int
    shown: tuple[int, ...]
    findings: tuple[Finding, ...]
    content: str = dataclasses.field(repr=False)
    output: str | None = None

    def save(self, path: str | os.PathLike[str]) -> Report:
        """Writes the page to a file atomically.

        Args:
          path: The file; replaced if it exists.

        Returns:
          The report with the path as its `output`.

        Raises:
          OSError: The file cannot be written.
        """
        write_atomically(path, self.content.encode())
        return dataclasses.replace(self, output=os.fspath(path))

    @override
    def blocks(self) -> Iterator[Block]:
        is_sample = self.episodes != self.total
        total = f"{self.total:,}" if self.total else "an unknown number of"
        extent = count(self.episodes, "episode")
        if is_sample:
            extent = f"{self.episodes:,} of {total} episodes"
        size = size_text(len(self.content.encode()))
        yield f"{self.output or self.path}: {size} · {extent}, {count(self.steps, 'step')}"
        if self.findings:
            yield findings_table(self.findings[:20])
        yield next_commands(["validate" if is_sample or self.findings else "stats", self.path])

    def to_dict(self) -> dict[str, Any]:
        """Returns the result in the types of JSON, without the page."""
        return {name: value for name, value in super().to_dict().items() if name != "content"}

    def _repr_html_(self) -> str:
        # In a frame, the styles of the page do not change the notebook.
        title = f"Report of {html.escape(self.path)}"
        size = 'width="100%" height="720" style="border: 0"'
        return f'<iframe srcdoc="{html.escape(self.content)}" title="{title}" {size}></iframe>'


def report(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    episodes: Sequence[int] = (),
    cameras: Sequence[str] | None = None,
    frames: int = 100,
    max_size: int = _MAX_REPORT_BYTES,
    max_episodes: int | None = None,
    where: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    jobs: int = 1,
) -> Report:
    """Creates an HTML page of a dataset: content, videos, curves and findings.

    The page is a single file without requests to any server. The page of a large dataset shows a
    sample, and says so: 5,000 episodes are read, or fewer if they exceed 2 GB.

    Args:
      path: A folder or a file, here or in an object store.
      split: The split, or a slice as in TFDS: `train[:10%]`; needed if there are several splits.
      episodes: The stored indices of the episodes to show; by default the best, the median, the
        worst, the shortest, the longest, and some with findings.
      cameras: The fields to show as videos; by default all image fields.
      frames: The maximum number of frames of a video.
      max_size: The maximum size of the page in bytes. Videos become coarser, shorter, then fewer to
        fit.
      max_episodes: The maximum number of episodes to read.
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format; see `rlds.sources.open`.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: The number of processes that read, and decode pictures for the audit. With more than
        one, a script needs `if __name__ == "__main__":`, as for `multiprocessing`.

    Returns:
      The report. A notebook displays it, and `save` writes it to a file.

    Raises:
      IndexError: The split lacks an episode.
      KeyError: The dataset lacks the split or a camera.
      SourceError: The data is damaged; the message has the location.
      ValueError: The split is empty, or the page does not fit in `max_bytes`.
    """
    from rlds_tools.reporting import gathering, page

    if frames < 1:
        raise ValueError(f"frames: got {frames}, expected at least 1")
    data = gathering.gather(
        os.fspath(path),
        split,
        episodes=episodes,
        cameras=cameras,
        max_episodes=gathering.MAX_EPISODES if max_episodes is None else max_episodes,
        where=where,
        format=format,
        options=options,
        progress=progress,
        jobs=jobs,
    )
    arguments = f" --episodes {','.join(map(str, episodes))}" if episodes else ""
    arguments += f" --where {shlex.quote(where)}" if where else ""
    command = f"rlds report {os.fspath(path)} --split {data.scan.episodes.split}{arguments}"
    return Report(
        path=data.path,
        split=data.scan.episodes.split,
        episodes=len(data.scan.table),
        total=data.total,
        steps=data.scan.num_steps,
        shown=tuple(shown.stored_index for shown in data.shown),
        findings=data.scan.findings,
        content=page.render_page(data, command, frames, max_size),
    )
