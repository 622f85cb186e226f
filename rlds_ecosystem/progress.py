"""Progress bars on the standard error output of a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlds_ecosystem.model.texts import printable

if TYPE_CHECKING:
    import rich.progress

__all__ = ["show_progress"]


@contextlib.contextmanager
def show_progress(
    is_shown: bool | None = None, *, of_bytes: bool = False
) -> Iterator[rich.progress.Progress]:
    """Shows progress bars during the context.

    Args:
      is_shown: True to show the bars; if None, on terminals only.
      of_bytes: True to count bytes.
    """
    import rich.console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TimeRemainingColumn,
    )

    is_shown = sys.stderr.isatty() if is_shown is None else is_shown
    count_column = DownloadColumn() if of_bytes else MofNCompleteColumn()
    columns = (_name_column(), BarColumn(), count_column, TimeRemainingColumn())
    console = rich.console.Console(stderr=True)
    bars = Progress(*columns, console=console, disable=not is_shown, transient=True)
    # Before rich 14.3, hidden bars print an empty line at the end.
    with bars if is_shown else contextlib.nullcontext():
        yield bars


def _name_column() -> rich.progress.ProgressColumn:
    """Returns the column with the names of bars. Names are shown literally, without markup."""
    from rich.progress import Task, TextColumn
    from rich.text import Text

    class NameColumn(TextColumn):
        def render(self, task: Task) -> Text:
            return Text(printable(task.description))

    return NameColumn("")
