"""`rlds stats`: statistics of the numbers of a dataset."""

from __future__ import annotations

import collections
import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources import reading
from rlds.sources.cameras import cameras_of
from rlds.sources.source import TRANSITION_FIELDS, SourceError
from rlds.statistics import Statistics, compute_statistics
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import is_below, named_leaves, root_of
from rlds_ecosystem.model.texts import shorten
from rlds_ecosystem.progress import show_progress
from rlds_tools.reading import indices_of, read_all
from rlds_tools.results import Block, Result, Spread, Table, count, next_commands, plain, text_of
from rlds_tools.values import element_name

if TYPE_CHECKING:
    from rlds.sources import Episodes, SourceEpisode

__all__ = ["Group", "Stats", "stats"]

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
# The maximum number of printed groups.
_MAX_SHOWN_GROUPS = 30


@dataclasses.dataclass(frozen=True)
class Group:
    """The episodes that have the same value of a field.

    Attributes:
      value: The value.
      episodes: The number of episodes.
      steps: The number of their steps.
      mean_return: The mean of their returns; None without rewards.
    """

    value: str
    episodes: int
    steps: int
    mean_return: float | None


@dataclasses.dataclass(frozen=True)
class Stats(Result):
    """The result of `rlds stats`: lengths, returns and field statistics of a split.

    Attributes:
      path: The path of the dataset.
      split: The split.
      episodes: The number of episodes.
      steps: The number of steps.
      lengths: The spread of the numbers of steps of episodes.
      returns: The spread of the returns of episodes; None without rewards.
      by: The field that episodes are grouped by.
      groups: The groups, the largest first.
      statistics: The moments, extremes and quantiles of each field, by element.
      names: The names of the elements of each field that declares names.
      not_finite: The number of NaN and infinite values of each element, by field; only fields with
        such values. The statistics leave such values out.
    """

    path: str
    split: str
    episodes: int
    steps: int
    lengths: Spread | None
    returns: Spread | None
    by: str | None
    groups: tuple[Group, ...]
    statistics: Statistics
    names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    not_finite: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @override
    def blocks(self) -> Iterator[Block]:
        yield f"{self.split}: {count(self.episodes, 'episode')}, {count(self.steps, 'step')}"
        spreads = {"length of an episode": self.lengths, "return": self.returns}
        rows = [[name, *spread.cells()] for name, spread in spreads.items() if spread]
        yield Table(["", ">min", ">median", ">mean", ">max"], rows)
        if self.by is not None:
            yield _group_table(self.by, self.groups)
        headings, *rows = self.statistics.rows()
        titles = {
            f"{path}[{element}]": f"{path}[{element}] {name}"
            for path, names in self.names.items()
            for element, name in enumerate(names)
        }
        if self.not_finite:
            counts = dict(_nonzero_counts(self.not_finite))
            headings = [*headings[:2], "nan", *headings[2:]]
            rows = [[*row[:2], str(counts.get(row[0], "")), *row[2:]] for row in rows]
        rows = [[titles.get(row[0], row[0]), *row[1:]] for row in rows]
        rows = [row + [""] * (len(headings) - len(row)) for row in rows]
        yield Table(["field", *(f">{heading}" for heading in headings[1:])], rows)
        yield next_commands(["stats", self.path, "--out", "stats.json"], ["report", self.path])

    @override
    def to_dict(self) -> dict[str, Any]:
        content = {name: value for name, value in super().to_dict().items() if name != "statistics"}
        return {**content, "fields": {n: _as_plain(field) for n, field in self.fields.items()}}

    @property
    def fields(self) -> Mapping[str, Any]:
        """The statistics of each field."""
        return self.statistics.fields

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the statistics of the fields to a file.

        Args:
          path: `*.json`, as `Statistics.to_json` writes and loaders of Octo and OpenVLA read it,
            or `*.npz` with arrays such as "action/mean".

        Raises:
          ValueError: The path ends with neither `.json` nor `.npz`.
        """
        from rlds_ecosystem.files import stores

        target = stores.as_path(path)
        if target.suffix == ".json":
            target.write_text(self.statistics.to_json())
        elif target.suffix == ".npz":
            with target.open("wb") as file:
                np.savez(file, **dict(_arrays(self.fields)))
        else:
            raise ValueError(f"{path}: expected a file name that ends with .json or .npz")


def stats(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    fields: Sequence[str] | None = None,
    by: str | None = None,
    where: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    jobs: int = 1,
) -> Stats:
    """Describes the numbers of a split: lengths, returns, and each element of each field.

    All episodes are read once, in constant memory. Images and texts are left out, and so are
    placeholders in the last step, and NaN and infinite values. A warning names the number of NaN
    and infinite values, and the location of the first one.

    Args:
      path: A folder or a file, here or in an object store.
      split: The split; needed if there are several.
      fields: The fields of a step to describe; by default all numeric fields except the flags.
      by: A field of episodes to group them by, such as "language_instruction".
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format; see `rlds.sources.open`.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: The number of processes that read, if there are thousands of small episodes. With more
        than one, a script needs `if __name__ == "__main__":`, as for `multiprocessing`.

    Raises:
      KeyError: The dataset lacks the split or a field.
      SourceError: The data is damaged; the message has the location.
      ValueError: There are no episodes.
    """
    from rlds import sources

    episodes = sources.open(path, split, format=format, where=where, **(options or {}))
    leaves = dict(named_leaves(episodes.spec["steps"]))
    paths = _numeric_fields(episodes.spec["steps"]) if fields is None else list(fields)
    lengths: list[int] = []
    returns: list[float] = []
    groups: dict[str, list[tuple[int, float | None]]] = collections.defaultdict(list)
    not_finite: dict[str, np.ndarray] = {}
    first_not_finite = ""

    def read() -> Iterator[dict[str, Any]]:
        nonlocal first_not_finite
        for index, episode in enumerate(_read_episodes(episodes, progress, jobs)):
            lengths.append(episode.num_steps)
            reward = episode.total_reward
            if reward is not None:
                returns.append(reward)
            if by is not None:
                groups[_metadata_text(episode, by)].append((episode.num_steps, reward))
            is_final_known = episode.final_observation_known
            for path, mask in _not_finite_masks(episode, paths):
                step, stored_index = np.argwhere(mask)[0][0], episodes.stored_index(index)
                location = f"{path} in step {step} of episode {stored_index} ({episode.key})"
                first_not_finite = first_not_finite or location
                not_finite[path] = not_finite.get(path, 0) + mask.sum(axis=0)
            yield {"steps": episode.steps, "final_observation_known": is_final_known}

    statistics = compute_statistics(read(), paths, quantiles=QUANTILES, finite_only=True)
    if not_finite:
        totals = ", ".join(f"{path} {counts.sum():,}" for path, counts in not_finite.items())
        text = f"NaN and infinite values are ignored: {totals}. The first is {first_not_finite}."
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return Stats(
        path=os.fspath(path),
        split=episodes.split,
        episodes=len(lengths),
        steps=sum(lengths),
        lengths=Spread.from_values(lengths),
        returns=Spread.from_values(returns),
        by=by,
        groups=tuple(sorted(map(_group, groups.items()), key=lambda g: (-g.episodes, g.value))),
        statistics=statistics,
        names={path: names for path in statistics if (names := _names(leaves.get(path)))},
        not_finite=not_finite,
    )


def _not_finite_masks(
    episode: SourceEpisode, fields: Sequence[str]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each field that has NaN or infinite values, with the mask of these values."""
    for path, leaf in named_leaves(episode.steps):
        column = np.asarray(leaf)  # A ragged column becomes an array.
        if column.dtype.kind != "f" or not any(is_below(path, field) for field in fields):
            continue
        has_placeholder = root_of(path) in TRANSITION_FIELDS and episode.final_observation_known
        mask = ~np.isfinite(column[: len(column) - has_placeholder])
        if mask.any():
            yield path, mask


def _nonzero_counts(counts_by_field: Mapping[str, np.ndarray]) -> Iterator[tuple[str, int]]:
    """Yields the elements with a count above 0: their name in `Statistics.rows`, and the count."""
    for path, counts in counts_by_field.items():
        for element in map(int, np.flatnonzero(counts)):
            yield element_name(path, np.shape(counts), element), int(np.ravel(counts)[element])


def _read_episodes(episodes: Episodes, progress: bool | None, jobs: int) -> Iterator[SourceEpisode]:
    total = reading.count(episodes.source, episodes.split)
    with show_progress(progress) as bars:
        indices = bars.track(indices_of(episodes), total=total, description="reading")
        for _, episode in read_all(episodes, indices, jobs):
            if isinstance(episode, SourceError):
                raise episode
            yield episode


def _numeric_fields(fields: Mapping[str, Any]) -> list[str]:
    """Returns the numeric fields of fixed shape, without flags and pictures."""
    leaves = dict(named_leaves(fields))
    excluded = {*rlds.STEP_FLAGS, *cameras_of(leaves)}
    return [path for path, field in leaves.items() if path not in excluded and _is_numeric(field)]


def _names(field: Any) -> tuple[str, ...]:
    """Returns the names of the elements of a vector; empty if unknown."""
    is_vector = isinstance(field, Field) and len(field.shape) == 1
    return (field.names or ()) if is_vector else ()


def _is_numeric(field: Any) -> bool:
    return (
        isinstance(field, Field) and field.column_dtype.kind in "biuf" and None not in field.shape
    )


def _metadata_text(episode: SourceEpisode, field: str) -> str:
    values = dict(named_leaves(episode.metadata))
    if field not in values:
        raise KeyError(f"no field {field!r} of episodes; {suggest_names(field, values)}")
    value = values[field]
    return text_of(np.asarray(value).item() if np.size(value) == 1 else value)


def _group(item: tuple[str, Sequence[tuple[int, float | None]]]) -> Group:
    value, members = item
    returns = [reward for _, reward in members if reward is not None]
    mean = float(np.mean(returns)) if returns else None
    return Group(value, len(members), sum(steps for steps, _ in members), mean)


def _group_table(field: str, groups: Sequence[Group]) -> Table:
    rows = [
        [
            shorten(group.value, 60),
            f"{group.episodes:,}",
            f"{group.steps:,}",
            "" if group.mean_return is None else f"{group.mean_return:,.6g}",
        ]
        for group in groups[:_MAX_SHOWN_GROUPS]
    ]
    if len(groups) > _MAX_SHOWN_GROUPS:
        folded = groups[_MAX_SHOWN_GROUPS:]
        sums = [f"{sum(g.episodes for g in folded):,}", f"{sum(g.steps for g in folded):,}"]
        rows.append([f"{len(folded)} more", *sums, ""])
    return Table([field, ">episodes", ">steps", ">mean return"], rows)


def _as_plain(field: Any) -> dict[str, Any]:
    names = ("count", "mean", "std", "min", "max")
    quantiles = {f"{q:g}": plain(values) for q, values in field.quantiles.items()}
    return {**{name: plain(getattr(field, name)) for name in names}, "quantiles": quantiles}


def _arrays(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, field in fields.items():
        for statistic in ("count", "mean", "std", "min", "max"):
            yield f"{name}/{statistic}", getattr(field, statistic)
        for q, values in field.quantiles.items():
            yield f"{name}/q{100 * q:g}", values
