"""Edits of a dataset of any format: a new dataset is written, and replaces the old one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlds.conversion.exporting import Exported, advice, draft_export, export_class, prepare
from rlds.editing.drafts import Draft, file_state
from rlds.editing.operations import Describe, Operation, as_recipe
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import lineage
from rlds.sources.episodes import Episodes
from rlds.sources.label_copying import added_label_ids
from rlds.sources.label_rows import folders_of
from rlds.sources.opening import open as open_episodes
from rlds.sources.source import AnySource, with_random_access
from rlds.sources.view import changed_episodes
from rlds.sources.writing import Export
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.processes import Workers, default_jobs
from rlds_ecosystem.files.replacing import FOLDER, RUNNING_PREFIX, files_in, replace_dataset
from rlds_ecosystem.files.whole_files import check_is_free
from rlds_ecosystem.model.errors import StorageError

__all__ = ["Edit", "Edited", "edit", "prepare_edit"]

# The folder of cached columns of feeds, which is not copied: feeds compute them again.
_CACHE_FOLDER = ".feeds"


@dataclasses.dataclass(frozen=True)
class Edited:
    """The result of an edit.

    Attributes:
      datasets: The new datasets.
      num_episodes: The number of episodes in the new datasets.
      num_original: The number of episodes before the edit.
      plan: The description of the edit.
    """

    datasets: tuple[Exported, ...]
    num_episodes: int
    num_original: int
    plan: str


class Edit:
    """A planned edit; `str` describes it.

    Args:
      draft: The state of the edit.
      operations: The operations of the edit.
      format: The format of the new dataset.
      target_options: Options of the format.

    Attributes:
      episodes: The episodes of the dataset; in a merge, of the first dataset.
      source: The source of `episodes`.
      inputs: The `file_state` of the dataset when it was opened.
      view: The episodes after the edit.
      description_changes: The metadata that `Describe` operations set.
      keeps_splits: Whether the format has splits.
      is_split: Whether an operation creates splits.
      format: The format of the new dataset.
      num_episodes: The number of episodes after the edit, by split.
      num_original: The number of episodes before the edit.
      num_copied: The number of episodes that are copied unchanged.
      placements: The placement of each field in the format.
      stale_files: Statistics files of other tools about the old episodes; they are left out.
      notes: Warnings, and changes that follow from the operations, in sentences.
      lineage: The lineage of the new dataset, see `rlds.sources.lineage`.
    """

    def __init__(
        self,
        draft: Draft,
        operations: Sequence[Operation],
        format: str,
        target_options: Mapping[str, Any],
    ) -> None:
        self.format, self._options = format, target_options
        self.episodes, self.inputs = next(iter(draft.datasets.values())).episodes, draft.inputs
        self.source = with_random_access(self.episodes.source)
        draft.resolve_duplicates()
        self._recipe = _with_digests(as_recipe(operations), draft.row_digests)
        if draft.target is None and format != self.episodes.format:
            options = {"options": lineage.as_json(target_options)} if target_options else {}
            self._recipe.append({"do": lineage.CONVERT, "format": format, **options})
        self.num_original = len(draft.is_kept)
        num_kept = int(draft.is_kept.sum())
        datasets = {name: dataset.episodes for name, dataset in draft.datasets.items()}
        digests = {}
        if draft.has_queried_tables:
            digests = {n: lineage.digest_of_episodes(dataset) for n, dataset in datasets.items()}
        license = draft.info_changes.get("license", self.source.source_info.license)
        self.lineage = lineage.new_lineage(
            self._recipe,
            datasets,
            num_kept=num_kept,
            num_all=self.num_original,
            license=license,
            digests=digests,
        )
        names = [operation.name for operation in operations if isinstance(operation, Describe)]
        description = {**draft.metadata, **draft.info_changes}
        self.description_changes = {name: description[name] for name in names}
        self.view = draft.view(renumbers_copies=export_class(format).renumbers_copies)
        self.num_episodes = {name: self.view.num_episodes(name) for name in self.view.splits}
        licenses = {name: data.source.source_info.license for name, data in datasets.items()}
        has_format = [episodes.format == format for episodes in datasets.values()]
        is_copied = np.repeat(has_format, [*map(len, datasets.values())])
        self.num_copied = 0
        for split, rows in self.view.indices.items():
            is_changed = changed_episodes(self.view, split, np.arange(len(rows)))
            self.num_copied += int((is_copied[rows] & ~is_changed).sum())
        self.stale_files: list[str] = []
        has_changes = self.num_copied < self.num_original or len(datasets) > 1
        if has_changes and format == self.episodes.format:
            folder = Path(_resolve_path(self.source, next(iter(draft.datasets))))
            matches = (folder.glob(name) for name in export_class(format).statistics)
            self.stale_files = sorted(str(file) for files in matches for file in files)
        self.notes = [*draft.notes, *self._list_license_notes(licenses)]
        self.notes += [
            f"{file} is left out: it describes old episodes" for file in self.stale_files
        ]
        self.notes += [
            f"{condition!r} selected {rows} in the recipe, but {draft.row_digests[condition]} now"
            for condition, rows in draft.recorded_digests.items()
            if draft.row_digests.get(condition, rows) != rows
        ]
        full_export = self._export("+".join(self.view.splits))
        self.placements = tuple(full_export.placements())
        self.keeps_splits, self.is_split = full_export.keeps_splits, bool(draft.names)

    def _list_license_notes(self, licenses: Mapping[str, str]) -> Iterator[str]:
        yield from (f"license: {conflict}" for conflict in self.lineage.get("conflicts", ()))
        all_terms = set(licenses.values())
        if len(licenses) > 1 and all_terms != {""}:
            texts = ", ".join(f"{name}: {terms or 'unknown'}" for name, terms in licenses.items())
            yield f"licenses{' differ' if len(all_terms) > 1 else ''}: {texts}"

    def _export(self, split: str) -> Export:
        episodes = Episodes(self.view, split)
        return prepare(episodes, self.format, lineage_record=self.lineage, **self._options)

    def targets(self, to: str | os.PathLike[str]) -> dict[str, list[str]]:
        """Returns the splits by path of the new dataset: one, or one dataset for each split."""
        names = list(self.view.splits)
        if not self.is_split or self.keeps_splits:
            return {os.fspath(to): names}
        file_name = export_class(self.format).part_name
        return {os.path.join(os.fspath(to), file_name(name)): [name] for name in names}

    def draft(
        self, path: str | os.PathLike[str], splits: Sequence[str], **settings: Any
    ) -> contextlib.AbstractContextManager[Exported]:
        """Writes one of the new datasets.

        Args:
          path: The path of the new dataset.
          splits: The splits of the new dataset, by their names in the `view`.
          **settings: Other arguments of `draft_export`.
        """
        writer = self._export("+".join(splits))
        return draft_export(writer, path, description_changes=self.description_changes, **settings)

    def __str__(self) -> str:
        num_kept = sum(self.num_episodes.values())
        lines = [f"{self.format}: {num_kept} of {self.num_original} episodes stay"]
        if len(self.num_episodes) > 1:
            lines += [f"  {name}: {count}" for name, count in self.num_episodes.items()]
        lines.append(f"{self.num_copied} are copied unchanged, {num_kept - self.num_copied} change")
        lines += [str(p) for p in self.placements if p.how != "exact" or p.why]
        return "\n".join([*lines, *self.notes])


def prepare_edit(
    path: str | os.PathLike[str] | Episodes,
    operations: Sequence[Operation],
    *,
    format: str | None = None,
    to_format: str | None = None,
    progress: bool | None = None,
    options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> Edit:
    """Plans an edit (a dry run); see `edit`."""
    if isinstance(path, Episodes):
        name, episodes = "the episodes", path
    else:
        name = os.fspath(path)
        episodes = open_episodes(path, "all", format=format, **(options or {}))
    draft = Draft(episodes, name, progress)
    for operation in operations:
        operation.apply(draft)
        draft.recorded_digests |= operation.rows or {}
    target, recipe_options = draft.target or (episodes.format, {})
    if to_format is not None and to_format != target:
        target, recipe_options, draft.target = to_format, {}, None
    return Edit(draft, operations, target, {**recipe_options, **(target_options or {})})


def edit(
    path: str | os.PathLike[str],
    *operations: Operation,
    to: str | os.PathLike[str] | None = None,
    format: str | None = None,
    to_format: str | None = None,
    keep_old: bool = False,
    allow_loss: bool = False,
    skip_damaged: bool = False,
    verify: bool = True,
    progress: bool | None = False,
    jobs: int | None = None,
    draft: str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> Edited:
    """Edits a dataset of any format that can be written.

    All operations are done in one pass. Unchanged episodes are copied in their stored form; tables
    and statistics are recomputed. The complete and verified new dataset replaces the old one; after
    an error, the old dataset is unchanged.

    Args:
      path: The dataset.
      *operations: The operations, in this order; see `rlds.editing`.
      to: The path of the new dataset, if it does not replace the old one.
      format: The format of the data, if it cannot be recognized.
      to_format: The format of the new dataset; by default, of the old dataset.
      keep_old: Whether to keep the old dataset next to the new one, as `<name>.old`. Rename a file
        to open it.
      allow_loss: Whether fields may change that the format cannot hold, or splits become one.
      skip_damaged: Whether to leave out episodes that cannot be read, with a warning.
      verify: Whether to read back and compare the written data.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: The number of processes that write large changes; see `rlds.sources.export`.
      draft: The folder for unfinished files; see `rlds.sources.export`.
      options: Options of the format of the data.
      target_options: Options of the format of the new dataset.

    Raises:
      FileExistsError: The path `to` exists.
      SourceError: An episode is damaged; the message has its location. Nothing has changed.
      StorageError: Another process has changed the dataset in the meantime; it is not edited.
      ValueError: An operation is wrong, no episode is left, or the format cannot hold the result.
        Nothing has changed.
    """
    with _list_unchanged_files(path):
        plan = prepare_edit(
            path,
            operations,
            format=format,
            to_format=to_format,
            progress=progress,
            options=options,
            target_options=target_options,
        )
        write = functools.partial(
            plan.draft,
            allow_loss=allow_loss,
            skip_damaged=skip_damaged,
            verify=verify,
            progress=progress,
            jobs=jobs,
            drafts=draft,
        )
        if len(plan.view.splits) > 1 and not (plan.keeps_splits or plan.is_split or allow_loss):
            raise ValueError(
                f"{plan.format} cannot store splits, and the data has {list(plan.view.splits)}. "
                "Write a dataset for each split (a split operation), or join them "
                "(allow_loss=True, --allow-loss)"
            )
        if to is None:
            target_path = _resolve_target(plan, path)
            with advice(skip_damaged, target_path):
                written = [_edit_in_place(plan, target_path, keep_old, write)]
        else:
            targets = plan.targets(to)
            for target in targets:
                check_is_free(target)
            # All datasets are renamed to their paths after the last one is complete.
            with (
                advice(skip_damaged, to),
                Workers(jobs or default_jobs()) as workers,
                contextlib.ExitStack() as drafts,
            ):
                written = [
                    drafts.enter_context(write(target, splits, workers=workers))
                    for target, splits in targets.items()
                ]
    num_kept = sum(dataset.num_episodes for dataset in written)
    return Edited(tuple(written), num_kept, plan.num_original, str(plan))


def _edit_in_place(
    plan: Edit,
    target: Path,
    keep_old: bool,
    write: Callable[..., contextlib.AbstractContextManager[Exported]],
) -> Exported:
    """Replaces the old dataset by the new one."""
    for recording in (target / FOLDER).glob(f"{RUNNING_PREFIX}*"):
        raise StorageError(
            f"{recording} is an unfinished recording. Wait until its recorder has ended. After a "
            f"crash, `rlds recover --in-place {target}` adds it to the dataset, or remove it"
        )
    labels = folders_of(plan.source)

    def identity() -> object:
        return files_in(target), added_label_ids(labels)

    new = replace_dataset(target, keep_old=keep_old, identity=identity, label_folders=labels)
    with new as draft:
        if file_state(plan.episodes) != plan.inputs:
            raise StorageError(f"{target} has changed since it was opened; repeat the edit")
        # The name of a link may lack the suffix of the format.
        final_path = target if target.name == draft.name else os.path.realpath(target)
        with write(draft, list(plan.view.splits), final_path=final_path) as written:
            pass
        if target.is_dir():
            inputs = {os.path.abspath(file) for file in (*plan.source.inputs(), *plan.stale_files)}
            _copy_foreign_files(target, draft, inputs)
    return dataclasses.replace(written, path=os.fspath(target))


@contextlib.contextmanager
def _list_unchanged_files(path: str | os.PathLike[str] | Episodes) -> Iterator[None]:
    """Reports files of the dataset that change during the edit.

    Raises:
      StorageError: A file has changed since the dataset was opened.
    """
    try:
        yield
    except SourceChangedError as error:
        name = "the dataset" if isinstance(path, Episodes) else os.fspath(path)
        raise StorageError(f"{name} has changed since it was opened; repeat the edit") from error


def _resolve_target(plan: Edit, path: str | os.PathLike[str]) -> Path:
    """Returns the target of an edit in place: the file or the folder of the old dataset.

    Raises:
      ValueError: The target is ambiguous, or cannot be replaced.
    """
    source, suffixes = plan.source, export_class(plan.format).suffixes
    target = Path(_resolve_path(source, path))
    if not stores.is_local(path) or not target.exists():
        reason = f"{os.fspath(path)!r} is not a local file or folder"
    elif plan.is_split and not plan.keeps_splits:
        reason = "a split writes several datasets"
    elif plan.format != plan.episodes.format:
        reason = f"{target} is {plan.episodes.format}, and the new format is {plan.format}"
    elif suffixes and target.is_dir():
        files = [Path(file) for file in source.inputs()]
        if len(files) == 1:
            return files[0]
        reason = f"{target} has {len(files)} files, which would become one"
    else:
        return target
    raise ValueError(f"{reason}: pass the path of the new dataset (to, --to)")


def _resolve_path(source: AnySource, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Returns the path of a dataset that was opened by its path or by a parent folder."""
    return path if source.capabilities.examples is None else source.capabilities.examples.directory


def _with_digests(recipe: list[dict[str, Any]], digests: Mapping[str, str]) -> list[dict[str, Any]]:
    """Adds the digests of the episodes that fulfil the conditions of a recipe."""
    operations = []
    for operation in recipe:
        conditions = (operation.get("where"), *operation.get("parts", {}).values())
        used_digests = {text: digests[text] for text in conditions if text in digests}
        entry = {name: value for name, value in operation.items() if name != "rows"}
        operations.append({**entry, **({"rows": used_digests} if used_digests else {})})
    return operations


def _copy_foreign_files(old: Path, new: Path, inputs: Collection[str]) -> None:
    """Copies the foreign files of a dataset folder, which the format does not read."""
    for folder, subfolders, names in os.walk(old):
        skipped = FOLDER if folder == os.fspath(old) else ""  # Sidecars are written separately.
        names += [name for name in subfolders if os.path.islink(os.path.join(folder, name))]
        subfolders[:] = [name for name in subfolders if name not in (_CACHE_FOLDER, skipped)]
        target = new / os.path.relpath(folder, old)
        for name in names:
            file = os.path.abspath(os.path.join(folder, name))
            is_input = file in inputs or any(path.startswith(file + os.sep) for path in inputs)
            if not is_input and not os.path.lexists(target / name):
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target / name, follow_symlinks=False)
