"""The state of an edit: the input datasets, and the changes of their episodes and metadata."""

from __future__ import annotations

import itertools
import json
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlds.auditing.declared import differences_between
from rlds.editing.changes import Change, FillView, RenameView, fields_of, resolve_alias
from rlds.editing.metadata_merging import DATASET_METADATA, Policy, merge_metadata
from rlds.editing.trimming import FlagsView, TrimView
from rlds.editing.unifying import UnifyView, unify
from rlds.sources import reading
from rlds.sources.condition_errors import unknown_column
from rlds.sources.episodes import Episodes
from rlds.sources.joined_source import ALL, JoinedSource
from rlds.sources.lineage import digest_of_rows, free_name
from rlds.sources.opening import open as open_episodes
from rlds.sources.queries import check_repeatable
from rlds.sources.rates import rate_in
from rlds.sources.source import INFO_TEXTS, Source, SourceEpisode, SourceInfo, with_random_access
from rlds.sources.text_tables import RenumberedSource, join_tables
from rlds.sources.view import SelectedSource, View
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field

__all__ = ["Draft", "file_state"]


class InputDataset(NamedTuple):
    """An input dataset of an edit.

    Attributes:
      episodes: The episodes of the dataset.
      changed: The episodes with the common fields of all input datasets.
      prefix: The unique prefix of the keys of the episodes.
    """

    episodes: Episodes
    changed: Episodes
    prefix: str = ""


class Draft:
    """The state of an edit, changed by operations; arrays have one element per input episode.

    Args:
      episodes: The episodes before the edit.
      name: The name of the dataset of the episodes.
      progress: Whether to show the progress of the table of episodes.

    Attributes:
      datasets: The input datasets, by their names.
      inputs: The `file_state` of the first dataset before its episodes were read.
      aliases: The paths of fields by their names in the format, see `SourceInfo`.
      is_kept: A mask of the kept episodes.
      begin: The first kept step of each episode.
      end: The step after the last kept one; -1 for all.
      has_reset_flags: A mask of the episodes with recomputed step flags.
      split: The name of the new split of each episode.
      names: The names of new splits, in order; empty if splits do not change.
      metadata: The metadata of the new dataset.
      info_changes: Changed attributes of `SourceInfo`, such as `license`.
      notes: Warnings, and changes that follow from the operations, in sentences.
      has_queried_tables: True if the tables of episodes were queried.
      row_digests: The `digest_of_rows` of the episodes that fulfil each condition.
      recorded_digests: The same digests in the recipe, by condition.
      duplicates: The treatment of duplicates in merged datasets, see `Merge`.
      target: The format of the new dataset and its options, if an operation names it.
    """

    def __init__(self, episodes: Episodes, name: str, progress: bool | None = None) -> None:
        self._progress = progress
        with_files = _with_files(episodes)
        self.datasets: dict[str, InputDataset] = {name: InputDataset(with_files, with_files)}
        self.inputs = file_state(episodes)
        # The episodes of all input datasets after the field changes so far, before trimming.
        self._changed_view: View = JoinedSource([with_files])
        self.aliases = episodes.source.source_info.aliases
        self._changes: list[Change] = []
        self._renumbered: list[RenumberedSource] = []
        self.is_kept, self.has_reset_flags = np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        self.begin, self.end = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.split = np.zeros(0, object)
        self._add_episodes([episodes])
        self.names: list[str] = []
        self.metadata: dict[str, Any] = _drop_counts(episodes.metadata)
        self.info_changes: dict[str, str] = {}
        self.notes: list[str] = []
        self.has_queried_tables = False
        self.row_digests: dict[str, str] = {}
        self.recorded_digests: dict[str, str] = {}
        self.duplicates = "error"
        self.target: tuple[str, Mapping[str, Any]] | None = None

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields by path, after the changes so far."""
        return fields_of(self._changed_view)

    def change(self, kind: Callable[..., Change], *arguments: Any) -> None:
        """Adds a field change: the view `kind` over the episodes so far, with its arguments."""
        self._changed_view = kind(self._changed_view, *arguments)
        self._changes.append(self._changed_view)

    def in_split(self, split: str) -> np.ndarray:
        """Returns a mask of the episodes in a split or a split expression such as `train[:10%]`.

        Raises:
          KeyError: There is no such split; the message lists the splits.
          ValueError: Datasets were merged, or the split expression is not valid.
        """
        if len(self.datasets) > 1:
            raise ValueError(f"split: {split!r} is unclear after a merge; use a condition (Keep)")
        (dataset,) = self.datasets.values()
        split_offsets: dict[str, int] = {}
        num_episodes = 0
        for name, begin, end in dataset.episodes.ranges:
            split_offsets[name] = num_episodes - begin
            num_episodes += end - begin
        mask = np.zeros(num_episodes, np.bool_)
        for name, begin, end in Episodes(dataset.episodes.source, split).ranges:
            mask[split_offsets[name] + begin : split_offsets[name] + end] = True
        return mask

    def where_or_all(self, where: str | None) -> np.ndarray:
        """Returns a mask of the episodes that fulfil a condition; of all without a condition."""
        return np.ones(len(self.is_kept), np.bool_) if where is None else self._match(where)

    def select(self, op_name: str, where: str | None, rows: Sequence[int] | None) -> np.ndarray:
        """Returns a mask of the episodes selected by a condition or by indices.

        Raises:
          ValueError: Both arguments or no argument is given, or an episode does not exist.
        """
        if (where is None) == (rows is None):
            raise ValueError(f"{op_name}: expected either a condition or numbers of episodes")
        if where is not None:
            return self._match(where)
        mask = np.zeros(len(self.is_kept), np.bool_)
        indices = np.asarray(rows)
        if indices.size and indices.dtype.kind not in "iu":  # Boolean masks are rejected.
            raise ValueError(f"{op_name}: got {indices.dtype}, expected the numbers of episodes")
        indices = indices.astype(np.int64)
        if wrong := indices[(indices < 0) | (indices >= len(mask))].tolist():
            raise ValueError(f"{op_name}: no episode {wrong[0]}: there are {len(mask)}")
        mask[indices] = True
        return mask

    def _match(self, condition: str) -> np.ndarray:
        check_repeatable(condition)
        self.has_queried_tables = True
        mask, offset = np.zeros(len(self.is_kept), np.bool_), 0
        for dataset in self.datasets.values():
            table = dataset.episodes.table(progress=self._progress)
            mask[offset + table.where(condition, first=offset)] = True
            offset += len(dataset.episodes)
        num_splits = sum(len(dataset.episodes.ranges) for dataset in self.datasets.values())
        if re.search(r"\bindex\b", condition) and num_splits != 1:
            explanation = (
                "`index` starts at 0 in each split of each dataset; `number` counts all episodes"
            )
            self.notes.append(f"where: {condition!r}: {explanation}")
        self.row_digests[condition] = digest_of_rows(np.flatnonzero(mask), len(mask))
        return mask

    def num_steps(self) -> np.ndarray:
        """Returns the number of steps of each episode before the edit."""
        counts: list[Any] = []
        for dataset in self.datasets.values():
            if (lengths := dataset.episodes.lengths()) is None:
                counts.append([summary.num_steps for summary in dataset.episodes.summaries()])
            else:
                counts.append(lengths.num_steps)
        return np.concatenate(counts)

    def column(self, name: str) -> list[Any]:
        """Returns a column of the episode table, with the values that earlier operations set.

        Args:
          name: The name of the column, or an alias.

        Raises:
          ValueError: There is no such column; the message lists the columns.
        """
        values: list[Any] = []
        names: set[str] = set()
        self.has_queried_tables = True
        for dataset in self.datasets.values():
            table = dataset.episodes.table(progress=self._progress)
            column = table.aliases.get(name, name)
            if column not in table.columns:
                raise ValueError(unknown_column(name, {**table.columns, **table.aliases}))
            values += table.arrow([column])[column].to_pylist()
            names.add(column)
        if values and isinstance(values[0], dict | list):
            raise ValueError(f"the column {name!r} has several values per episode, expected one")
        for change in self._changes:
            if isinstance(change, FillView) and names & change.columns:
                values = change.column_values(values)
        return values

    def resolve_duplicates(self) -> None:
        """Searches for duplicate episodes across merged datasets; applies `duplicates` to them.

        Raises:
          ValueError: Duplicates are in different splits, which leaks training data.
        """
        if len(self.datasets) == 1:
            return
        sizes = [len(dataset.episodes) for dataset in self.datasets.values()]
        names = np.repeat([*self.datasets], sizes)
        seen: dict[bytes, int] = {}
        pairs: dict[tuple[str, str], list[int]] = {}
        for row, digest in enumerate(self.column("digest")):
            if not self.is_kept[row] or digest is None:
                continue
            original = seen.setdefault(digest, row)
            if names[original] != names[row]:
                pairs.setdefault((self.split[original], self.split[row]), []).append(row)
        for (split, other_split), rows in pairs.items():
            splits = split if split == other_split else f"{split} and {other_split}"
            note = f"duplicate episodes in {splits}: {len(rows)}"
            if self.duplicates == "drop":
                self.is_kept[rows] = False
                note += "; the later duplicates are left out"
            elif split != other_split and self.duplicates == "error":
                original = int(np.searchsorted(np.flatnonzero(names == names[rows[0]]), rows[0]))
                raise ValueError(
                    f"merge: {note}, the first is episode {original} of {names[rows[0]]}: a policy "
                    "would be tested with episodes of its training. Leave out the later duplicates "
                    "(duplicates='drop', --duplicates drop), or keep them ('keep')"
                )
            elif self.duplicates == "error":
                note += "; all are kept: --duplicates drop leaves out the later duplicates"
            self.notes.append(note)

    def example(self) -> SourceEpisode:
        """Returns the first kept episode after the changes so far."""
        rows = np.flatnonzero(self.is_kept)[:1]
        if not len(rows):
            raise ValueError("no episode is left")
        return self._view({"all": rows}).read("all", 0)

    def merge(
        self,
        paths: Sequence[str | os.PathLike[str]],
        names: Mapping[str, str],
        fills: Mapping[str, Any],
        *,
        drops_missing: bool,
        metadata: Policy,
    ) -> None:
        """Adds the episodes of other datasets; see `rlds.editing.Merge`."""
        if self._changes or self.names or len(self.datasets) > 1:
            raise ValueError("merge: expected one merge with all datasets, before other operations")
        ((first_name, first_dataset),) = self.datasets.items()
        datasets = {first_name: first_dataset.episodes}
        for path in paths:
            name = os.fspath(path)
            datasets[free_name(name, datasets)] = _with_files(open_episodes(path, "all"))
        _check_rates(datasets)
        all_metadata = {name: episodes.metadata for name, episodes in datasets.items()}
        all_metadata[first_name] = self.metadata
        merged_metadata, by_dataset, notes = merge_metadata(all_metadata, metadata)
        self.metadata, self.notes = _drop_counts(merged_metadata), [*self.notes, *notes]
        self.info_changes = {**_combine_attributes(datasets), **self.info_changes}
        sources: dict[str, Source] = {}
        for name, episodes in datasets.items():
            source = with_random_access(episodes.source)
            for old, new in names.items() if name != first_name else ():
                path = resolve_alias(new, self.aliases)
                source = RenameView(source, old, path, episodes.source.source_info.aliases)
            sources[name] = source
        renamed = {n: Episodes(sources[n], dataset.split) for n, dataset in datasets.items()}
        self.notes += [f"warning: {difference}" for difference in differences_between(renamed)]
        fills = {resolve_alias(name, self.aliases): value for name, value in fills.items()}
        unified = unify(sources, fills, drops_missing=drops_missing, policy=metadata)
        dataset_metadata = [episodes.metadata for episodes in datasets.values()]
        common = fields_of(unified[0]).items()
        tables = {p: field.table for p, field in common if isinstance(field, Field) and field.table}
        all_fields = map(fields_of, sources.values())
        columns = [{p: tables[p] for p in tables if p in fields} for fields in all_fields]
        self.metadata, indices = join_tables(self.metadata, dataset_metadata, columns)
        prefixes = _choose_prefixes(datasets)
        self.notes += [
            f"keys of the episodes of {name} get the prefix {p!r}"
            for name, p in prefixes.items()
            if p
        ]
        for position, (name, episodes) in enumerate(datasets.items()):
            change: View = unified[position]
            self.notes += [f"{name}: {note}" for note in unified[position].notes]
            if indices[position]:
                change = RenumberedSource(change, indices[position])
                self._renumbered.append(change)
            if by_dataset:
                fields = fields_of(change)
                path = free_name(DATASET_METADATA, fields, "{}_{}")
                fields[path] = Field(str, doc="The metadata of its dataset, in JSON.")
                change = UnifyView(change, fields, {path: json.dumps(by_dataset[position])})
            changed = Episodes(change, episodes.split, format=episodes.format)
            self.datasets[name] = InputDataset(episodes, changed, prefixes[name])
        self._changed_view = self._join_datasets()
        self._add_episodes([episodes for name, episodes in datasets.items() if name != first_name])

    def _add_episodes(self, datasets: Sequence[Episodes]) -> None:
        num_new = sum(map(len, datasets))
        self.is_kept = np.append(self.is_kept, np.ones(num_new, np.bool_))
        self.has_reset_flags = np.append(self.has_reset_flags, np.zeros(num_new, np.bool_))
        self.begin = np.append(self.begin, np.zeros(num_new, np.int64))
        self.end = np.append(self.end, np.full(num_new, -1, np.int64))
        self.split = np.concatenate([self.split, *map(_split_of_each, datasets)])

    def view(self, *, renumbers_copies: bool = False) -> SelectedSource:
        """Returns the episodes after the edit.

        Args:
          renumbers_copies: See `Export.renumbers_copies`.

        Raises:
          ValueError: No episode is left.
        """
        if not self.is_kept.any():
            raise ValueError(
                "no episode is left, so nothing was changed. `rlds list PATH --where CONDITION` "
                "shows the episodes that fulfil a condition"
            )
        remaining = dict.fromkeys(self.split[self.is_kept].tolist())
        self.notes += [f"split: {n!r} has no episode" for n in self.names if n not in remaining]
        for change in self._renumbered:
            change.is_copied = renumbers_copies
        names = [name for name in self.names if name in remaining] or list(remaining)
        return self._view({str(n): np.flatnonzero(self.is_kept & (self.split == n)) for n in names})

    def _join_datasets(self, source_info: SourceInfo | None = None) -> JoinedSource:
        datasets = self.datasets.values()
        changed, prefixes = zip(*((dataset.changed, dataset.prefix) for dataset in datasets))
        return JoinedSource(changed, prefixes, source_info)

    def _view(self, splits: Mapping[str, np.ndarray]) -> SelectedSource:
        info = next(iter(self.datasets.values())).episodes.source.source_info
        view: View = self._join_datasets(
            SourceInfo(
                **{name: self.info_changes.get(name, getattr(info, name)) for name in INFO_TEXTS},
                metadata=self.metadata,
                # A random option makes views with computed fields unequal to all other views.
                options={"view": uuid.uuid4().hex},
                finite_fields=info.finite_fields,
                images_as_png=info.images_as_png,
            )
        )
        if (self.begin > 0).any() or (self.end >= 0).any():
            view = TrimView(view, self.begin, self.end)
        for change in self._changes:
            view = change.with_bases(view)
        if self.has_reset_flags.any():
            view = FlagsView(view, self.has_reset_flags)
        return SelectedSource(view, splits, base_split=ALL)


def file_state(episodes: Episodes) -> object:
    """Returns the names, sizes and modification times of the files of a dataset.

    Raises:
      SourceChangedError: The files have changed since the dataset was opened.
    """
    with reading.unchanged(episodes.source):
        files = map(stores.as_path, episodes.source.inputs())
        return [(file.name, (stat := file.stat()).length, stat.mtime) for file in files]


def _drop_counts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata of a dataset with the counts of its conversion moved to `original`."""
    conversion = metadata.get("conversion")
    if not isinstance(conversion, Mapping) or not conversion.get("splits"):
        return dict(metadata)
    return {**metadata, "conversion": {**conversion, "splits": {}, "original": conversion}}


def _with_files(episodes: Episodes) -> Episodes:
    """Returns the episodes with image files instead of pixels; the files are copied."""
    source = reading.with_image_files(with_random_access(episodes.source))
    return Episodes(source, episodes.split, format=episodes.format)


def _split_of_each(episodes: Episodes) -> np.ndarray:
    splits, starts, stops = zip(*episodes.ranges)
    return np.repeat(np.array(splits, object), np.subtract(stops, starts))


def _check_rates(datasets: Mapping[str, Episodes]) -> None:
    rates = {name: rate_in(episodes.metadata) for name, episodes in datasets.items()}
    declared_rates = {name: rate for name, rate in rates.items() if rate is not None}
    if len(set(declared_rates.values())) > 1:
        texts = ", ".join(f"{rate:g} in {name}" for name, rate in declared_rates.items())
        raise ValueError(f"merge: the frame rates differ: {texts}")


def _combine_attributes(datasets: Mapping[str, Episodes]) -> dict[str, str]:
    """Returns the joined descriptions and citations of datasets; not their licenses."""
    infos = [episodes.source.source_info for episodes in datasets.values()]
    return {
        name: "\n".join(dict.fromkeys(filter(None, (getattr(info, name) for info in infos))))
        for name in INFO_TEXTS
        if name != "license"
    }


def _choose_prefixes(datasets: Mapping[str, Episodes]) -> dict[str, str]:
    """Returns a key prefix for each dataset, so that the keys of all episodes are unique."""
    used_keys: set[str] = set()
    prefixes = {}
    for name, episodes in datasets.items():
        source = with_random_access(episodes.source)
        if source.capabilities.examples is not None:  # Keys in TFDS are file positions.
            keys = {*episodes.table().arrow(["key"])["key"].to_pylist()}
        else:
            keys = {source.key(*episodes.locate(index)) for index in range(len(episodes))}
        parent, tail = os.path.split(os.path.normpath(name))
        if re.match(r"\d+(\.\d+)+( |$)", tail):  # Many TFDS datasets share a version.
            tail = os.path.basename(parent) or tail
        numbered = (f"{tail} ({count})/" for count in itertools.count(2))
        for prefix in itertools.chain(["", f"{tail}/"], numbered):
            if used_keys.isdisjoint(new := {prefix + key for key in keys}):
                break
        prefixes[name] = prefix
        used_keys |= new
    return prefixes
