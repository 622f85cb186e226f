"""`rlds list` and `rlds episodes`: datasets below a folder, readable formats, episodes."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlds_ecosystem.model.names import suggest_names
from rlds_tools.inspection import Inspection, RecordFile, inspect
from rlds_tools.results import Block, Result, Style, Table, cell, count, next_commands, size_text

if TYPE_CHECKING:
    from rlds.sources.options import Option

__all__ = [
    "EpisodeList",
    "Formats",
    "ListedDataset",
    "Listing",
    "list_datasets",
    "list_episodes",
    "list_formats",
]

# The default columns of a list of episodes; columns without values are left out.
_COLUMNS = ("index", "key", "steps", "duration", "return", "success", "instruction", "error")


@dataclasses.dataclass(frozen=True)
class ListedDataset:
    """A dataset below a folder.

    Attributes:
      path: The path.
      format: The name of the format.
      name: The name of the dataset.
      version: The version.
      episodes: The number of episodes; None if counting would need reading.
      steps: The number of steps; None if counting would need reading.
      num_bytes: The size in bytes; None if unknown.
      error: The message of the error of opening, or of the condition; None if there is none.
      matching: The number of episodes that match the condition; None without a condition.
      matching_steps: The number of steps of these episodes; None without a condition.
    """

    path: str
    format: str
    name: str = ""
    version: str = ""
    episodes: int | None = None
    steps: int | None = None
    num_bytes: int | None = None
    error: str | None = None
    matching: int | None = None
    matching_steps: int | None = None


@dataclasses.dataclass(frozen=True)
class Listing(Result):
    """The datasets below a folder.

    Attributes:
      path: The folder.
      datasets: The datasets, by their paths.
      where: The condition of the counted episodes.
    """

    path: str
    datasets: tuple[ListedDataset, ...]
    where: str | None = None

    @override
    def blocks(self) -> Iterator[Block]:
        if not self.datasets:
            yield f"{self.path}: no TFDS, LeRobot or Minari datasets, and no EnvLogger logs"
            return
        yield f"{self.path}: {count(len(self.datasets), 'dataset')}"
        columns = ["path", "format", ">episodes", ">steps", ">size"]
        columns += [] if self.where is None else [">matching", ">matching steps"]
        columns += ["error"] if any(dataset.error for dataset in self.datasets) else []
        rows = (self._row(dataset) for dataset in self.datasets)
        yield Table(columns, [[row[name] for name in columns] for row in rows])
        if self.where is None:
            yield next_commands(["inspect", self.datasets[0].path])
            return
        matching = (dataset.path for dataset in self.datasets if dataset.matching)
        yield next_commands(["episodes", next(matching, "PATH"), "--where", self.where])

    def _row(self, dataset: ListedDataset) -> dict[str, str]:
        return {
            "path": os.path.relpath(dataset.path, self.path),
            "format": dataset.format,
            ">episodes": cell(dataset.episodes),
            ">steps": cell(dataset.steps),
            ">size": "?" if dataset.num_bytes is None else size_text(dataset.num_bytes),
            ">matching": cell(dataset.matching),
            ">matching steps": cell(dataset.matching_steps),
            "error": (dataset.error or "").partition("\n")[0][:80],
        }


@dataclasses.dataclass(frozen=True)
class EpisodeList(Result):
    """A list of episodes of a dataset.

    Attributes:
      path: The path of the dataset.
      columns: The names of the columns.
      episodes: The values of each episode.
      is_csv: Whether the text is CSV.
    """

    path: str
    columns: tuple[str, ...]
    episodes: tuple[tuple[Any, ...], ...]
    is_csv: bool = False

    @override
    def blocks(self) -> Iterator[Block]:
        yield f"{self.path}: {count(len(self.episodes), 'episode')}"
        rows = [[_cell_text(value) for value in row] for row in self.episodes]
        columns = zip(*self.episodes)
        is_text = [any(isinstance(value, str) for value in column) for column in columns]
        names = [name if text else f">{name}" for name, text in zip(self.columns, is_text)]
        yield Table(names or list(self.columns), rows)

    @override
    def text(self, style: Style = lambda text, _: text) -> str:
        if not self.is_csv:
            return super().text(style)
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([self.columns, *self.episodes])
        return lines.getvalue().removesuffix("\n")


@dataclasses.dataclass(frozen=True)
class Formats(Result):
    """The readable formats, with a mark of the writable ones.

    Attributes:
      formats: Dicts with the `name`, the `description` and the `options` of a format, whether
        `rlds` writes it (`is_written`), and the options for writing (`export_options`).
    """

    formats: tuple[dict[str, Any], ...]

    @override
    def blocks(self) -> Iterator[Block]:
        yield "formats that rlds reads; written: formats that it also writes"
        rows = [
            [format["name"], "written" if format["is_written"] else "", format["description"]]
            for format in self.formats
        ]
        yield Table(["format", "", "description"], rows)
        for heading, key in (
            ("options for reading, -O NAME=VALUE", "options"),
            ("options for writing with rlds convert --to, -T NAME=VALUE", "export_options"),
        ):
            yield heading
            rows = [[format["name"], option] for format in self.formats for option in format[key]]
            yield Table(["format", "option"], rows)


def list_datasets(
    directory: str | os.PathLike[str] = ".", *, depth: int = 6, where: str | None = None
) -> Listing:
    """Finds the datasets below a local folder: TFDS, LeRobot and Minari datasets, and logs.

    Args:
      directory: The folder. Links are not followed.
      depth: The maximum depth of folders.
      where: A condition on the episodes to count, in SQL; see `rlds.sources.open`. If a dataset
        lacks a column of the condition, the listed dataset has an `error`.

    Raises:
      FileNotFoundError: The folder does not exist.
      ImportError: The package for conditions is not installed.
    """
    from rlds.sources.dataset_search import find_datasets

    directory = os.fspath(directory)
    if "://" in directory:
        raise ValueError(
            f"{directory}: rlds list searches only local folders. Give the path of a dataset: "
            f"rlds inspect {directory}/NAME/VERSION"
        )
    if not os.path.isdir(directory):
        raise FileNotFoundError(f"{directory!r} is not a folder")
    paths = sorted(find_datasets(directory, depth))
    datasets = (_describe(path, format, where) for path, format in paths)
    return Listing(directory, tuple(datasets), where)


def list_episodes(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    is_csv: bool = False,
) -> EpisodeList:
    """Lists episodes with some columns of their table; see `rlds.sources.Episodes.table`.

    Args:
      path: A folder or a file, here or in an object store.
      split: The only split to list; all if None.
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      columns: The columns; `["all"]` for all of them. By default the columns with values among
        index, key, steps, duration, return, success, instruction and error.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format; see `rlds.sources.open`.
      is_csv: Whether the text of the result is CSV.

    Raises:
      ImportError: The package for tables is not installed.
      KeyError: The dataset lacks the split or a column; the message lists existing names.
      ValueError: The condition is wrong; the message has the reason.
    """
    from rlds import sources

    episodes = sources.open(path, split or "all", format=format, where=where, **(options or {}))
    table = episodes.table()
    names = [table.aliases.get(column, column) for column in columns or ()]
    if columns is None:
        split_column = ["split"] if len(episodes.splits) > 1 else []
        names = [column for column in (*split_column, *_COLUMNS) if column in table.columns]
    elif columns == ["all"]:
        names = list(table.columns)
    if unknown := [column for column in names if column not in table.columns]:
        raise KeyError(f"no column {unknown[0]!r}; {suggest_names(unknown[0], table.columns)}")
    values = table.arrow(names).to_pydict()
    if columns is None:  # Empty columns are left out.
        values = {k: column for k, column in values.items() if any(v is not None for v in column)}
    rows = (map(_bytes_as_hex, row) for row in zip(*values.values()))
    return EpisodeList(os.fspath(path), tuple(values), tuple(map(tuple, rows)), is_csv)


def list_formats() -> Formats:
    """Returns the formats that `rlds.sources.open` reads, with their options."""
    from rlds import sources

    exports = sources.exports()
    return Formats(
        tuple(
            {
                "name": name,
                "description": format.description,
                "options": _option_texts(format.options),
                # `rlds convert` writes TFDS datasets without an export.
                "is_written": name in exports or name == "tfds",
                "export_options": _option_texts(exports.get(name, {})),
            }
            for name, format in sources.formats().items()
        )
    )


def _option_texts(options: Mapping[str, Option]) -> list[str]:
    return [str(option) for option in options.values() if option.is_json]


def _describe(path: str, format: str, where: str | None) -> ListedDataset:
    """Describes a dataset, and counts the episodes that match a condition."""
    result = ListedDataset(path, format)
    try:
        dataset = inspect(path, format=format)
        assert isinstance(dataset, Inspection)
        sizes = *_totals(dataset), dataset.num_bytes
        result = ListedDataset(path, format, dataset.name, dataset.version, *sizes)
        if where is not None:
            episodes, steps = _totals(inspect(path, format=format, where=where))
            result = dataclasses.replace(result, matching=episodes, matching_steps=steps)
    except (OSError, ValueError, RuntimeError, LookupError) as error:
        message = str(error).removeprefix(f"where: {where!r}: ")
        return dataclasses.replace(result, error=message)
    return result


def _totals(dataset: Inspection | RecordFile) -> tuple[int | None, int | None]:
    """Returns the numbers of episodes and steps of all splits; None if unknown."""
    assert isinstance(dataset, Inspection)
    episodes = [split.episodes for split in dataset.splits]
    steps = [split.steps for split in dataset.splits]
    return (
        None if None in episodes else sum(filter(None, episodes)),
        None if None in steps else sum(filter(None, steps)),
    )


def _bytes_as_hex(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _cell_text(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
