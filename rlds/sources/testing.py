"""Checks for tests of sources and exports, including your own.

    source = ArmSource("runs")
    rlds.sources.testing.check_source(source)
    rlds.sources.testing.check_export("lerobot", Episodes(source), tmp_path / "exported")

The checks read all data several times: use a few short episodes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlds
from rlds.conversion.exporting import Exported, prepare, write_export
from rlds.sources import reading
from rlds.sources.digests import as_array, difference, differences
from rlds.sources.episode_fields import EPISODE_FIELDS, as_converted, fields_of
from rlds.sources.episodes import Episodes
from rlds.sources.opening import open as open_episodes
from rlds.sources.source import AnySource, Source, SourceEpisode
from rlds.sources.view import View
from rlds.validation import validate
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import match_columns
from rlds_ecosystem.model.nests import leaves_at, lookup, nest, root_of

__all__ = ["check_export", "check_source", "check_view", "differences"]

_INEXACT = ("changed", "lost", "renumbered")


def check_source(source: AnySource) -> None:
    """Checks the contract of a source by reading all its episodes in several ways.

    * A pickled copy gives the same episodes, also in another order.
    * Keys are unique in a split. Keys and lengths are the same with and without reading.
    * Episodes have exactly the declared fields, of the declared dtypes and shapes.
    * Partial reads of fields and rows equal the complete episode.
    * The flags are valid, and only an episode without a terminal state is truncated.
    * Metadata and options are JSON. The counts of the episodes add up to the totals.

    Args:
      source: The source, without damaged episodes.

    Raises:
      AssertionError: A check failed; the message has the location, the result and the expectation.
      SourceError: An episode is damaged, or does not match its fields.

    >>> import tempfile
    >>> from pathlib import Path
    >>> directory = Path(tempfile.mkdtemp())
    >>> arrays = {"observation": np.eye(3), "action": np.ones((2, 1)), "terminal": True}
    >>> np.savez(directory / "0.npz", **arrays)
    >>> episodes = open_episodes(directory)
    >>> check_source(episodes.source)
    """
    for name in ("options", "metadata"):
        content = getattr(source.source_info, name)
        _expect(name, content, json.loads(json.dumps(content)), "what JSON gives back")
    copy = pickle.loads(pickle.dumps(source))
    files = [os.fspath(file) for file in source.inputs()]
    copied = [os.fspath(file) for file in copy.inputs()]
    _expect("files of a pickled copy", copied, files, "those of the source")
    for split in source.splits:
        episodes = list(Episodes(source, split))
        label = f"split {split!r}"
        keys = [episode.key for episode in episodes]
        _expect(f"{label}, keys", sorted({*keys}), sorted(keys), "keys that are unique")
        _check_attributes(Episodes(source, split), episodes, label)
        _check_copy(Episodes(copy, split), episodes, label)
        for index, episode in enumerate(episodes):
            here = f"{label}, episode {index} ({episode.key})"
            _check_episode(Episodes(source, split), episode, here)
            _check_partial_reads(Episodes(source, split), index, episode, here)
        totals = source.capabilities.totals(split) if source.capabilities.totals else {}
        for name, total in totals.items():
            actual = sum(episode.counts.get(name, 0) for episode in episodes)
            _expect(f"{label}, counts of {name!r}", actual, total, "the total")


def check_view(view: View) -> None:
    """Checks the contract of a view.

    * `check_source` passes.
    * In unchanged episodes, the fields of `base_paths` have the values of the bases.
    * Any rows, as read by feeds, equal the rows of complete episodes.

    Args:
      view: The view of a source without damaged episodes.

    Raises:
      AssertionError: A check failed; the message has the location, the result and the expectation.

    >>> import tempfile
    >>> directory = Path(tempfile.mkdtemp())
    >>> np.savez(directory / "0.npz", observation=np.eye(3), action=np.ones((3, 1)))
    >>> check_view(View(open_episodes(directory).source))
    """
    from rlds import feeds  # `rlds.feeds` imports `rlds.sources`.

    check_source(view)
    root = f"{rlds.STEPS}/"
    for split in view.splits:
        episodes = Episodes(view, split)
        table = feeds.open(episodes, decode_images=False, progress=False)
        is_changed = view.changed_episodes(split, np.arange(len(episodes)))
        for index, episode in enumerate(episodes):
            label = f"split {split!r}, episode {index} ({episode.key})"
            rows = np.random.default_rng(index).permutation(len(episode))
            paths = [path for path, field in table.fields.items() if None not in field.shape]
            columns = table.take(np.full(len(rows), index), rows, paths)
            for path, values in columns.items():
                problem = difference(values, as_array(lookup(episode.steps, path))[rows])
                _expect(f"{label}, rows of {path!r}", problem, None, "those of the episode")
            base = reading.read(*view.locate(split, index))
            first_step = int(view.base_steps(split, np.array([index]), np.zeros(1, np.int64))[0])
            for path, base_path in (view.base_paths or {}).items() if not is_changed[index] else ():
                if path.startswith(root):
                    column = lookup(base.steps, base_path.removeprefix(root))
                    column = column[first_step : first_step + len(episode)]
                    problem = difference(lookup(episode.steps, path.removeprefix(root)), column)
                    _expect(f"{label}, {path!r}", problem, None, f"{base_path!r} of the base")


def check_export(
    format: str, episodes: Episodes, path: Path, *, changed: Collection[str] = (), **options: Any
) -> Exported:
    """Checks an export by reading back the written episodes.

    The export has one placement for each field. All fields except `changed`, the keys and
    attributes of episodes are equal bit by bit.

    Args:
      format: The format to write.
      episodes: The episodes.
      path: The path of the export.
      changed: The fields that the format may change or lose, such as `steps/action`.
      **options: Options of the export.

    Returns:
      The result of the export.

    Raises:
      AssertionError: Episodes differ; the message has the location and the difference.
      ValueError: The format cannot hold the episodes.
    """
    writer = prepare(episodes, format, **options)
    field_names = [placement.field for placement in writer.placements()]
    standard = {*episodes.source.fields.flags, *EPISODE_FIELDS}
    fields = [
        path
        for path, _ in leaves_at(episodes.spec, None)
        if root_of(path.removeprefix(f"{rlds.STEPS}/")) not in standard
    ]
    _expect(f"{format}, placements", sorted(field_names), sorted({*field_names}), "each field once")
    if missing := {*fields} - {*field_names}:
        raise AssertionError(f"{format}, placements: nothing about {sorted(missing)}")
    exported = write_export(writer, path, allow_loss=bool(changed))
    inexact = [placement for placement in exported.placements if placement.how in _INEXACT]
    if unexpected := [str(placement) for placement in inexact if placement.field not in changed]:
        raise AssertionError(f"{format}, placements: {unexpected}, expected no such change")
    read_back = open_episodes(path, "all", format=format, **writer.read_options())
    _expect(f"{format}, read back", len(read_back), len(episodes), "the written episodes")
    for index, pair in enumerate(zip(episodes, read_back)):
        old, new = (writer.compared(as_converted(episode)) for episode in pair)
        _compare(f"{format}, episode {index}", old, new, {*changed, *writer.unchecked})
    return exported


def _check_attributes(episodes: Episodes, read: Sequence[SourceEpisode], label: str) -> None:
    """Checks the metadata of a source that are available without reading episodes."""
    source = episodes.source
    _expect(f"{label}, number of episodes", len(episodes), len(read), "as many as were read")
    summaries = [episode.summary for episode in read]
    _expect(f"{label}, lengths", list(episodes.summaries()), summaries, "those of the episodes")
    for name, column in (lengths._asdict() if (lengths := episodes.lengths()) else {}).items():
        expected = [getattr(summary, name) for summary in summaries]
        actual = expected if column is None else column.tolist()
        _expect(f"{label}, all of {name}", actual, expected, "those of the episodes")
    if isinstance(source, Source):
        keys = [source.key(*episodes.locate(index)) for index in range(len(read))]
        _expect(f"{label}, keys", keys, [episode.key for episode in read], "those of the episodes")


def _check_copy(episodes: Episodes, read: Sequence[SourceEpisode], label: str) -> None:
    """Checks that a pickled copy reads the same episodes, from the last to the first."""
    for index in reversed(range(len(read))):
        here = f"{label}, episode {index} of a pickled copy"
        _compare(here, read[index], episodes.episode(index))


def _check_episode(episodes: Episodes, episode: SourceEpisode, label: str) -> None:
    """Checks the fields of an episode, its flags and its attributes."""
    spec = episodes.spec
    declared_paths = sorted(path for path, _ in leaves_at(spec.pop(rlds.STEPS), None))
    paths = sorted(path for path, _ in leaves_at(episode.steps, None))
    _expect(f"{label}, fields of steps", paths, declared_paths, "the declared ones")
    values = {path: _as_one_row(value) for path, value in leaves_at(fields_of(episode), None)}
    match_columns(nest(values), spec, rows=1, where=f"{label}, ")
    flags = {name: episode.steps[name] for name in rlds.STEP_FLAGS if name in episode.steps}
    report = validate([{rlds.STEPS: flags}])
    _expect(label, list(map(str, report.violations)), [], "no violations")
    is_terminal = any(flags.get(rlds.IS_TERMINAL, ()))
    if is_terminal and episode.truncated:
        raise AssertionError(f"{label}: truncated, and yet its last step is terminal")


def _check_partial_reads(
    episodes: Episodes, index: int, episode: SourceEpisode, label: str
) -> None:
    """Checks that partial reads give the values of the complete episode."""
    start, end = len(episode) // 3, max(1, len(episode) - 1)
    for path, column in leaves_at(episode.steps, None):
        read = episodes.columns(index, [path], start, end, decode_images=False)
        problem = difference(lookup(read, path), column[start:end])
        _expect(f"{label}, steps {start} to {end} of {path!r}", problem, None, "those of all steps")
    read_metadata = _without_steps(as_converted(episodes.peek(index)))
    _compare(f"{label}, without steps", _without_steps(as_converted(episode)), read_metadata)


def _without_steps(episode: SourceEpisode) -> SourceEpisode:
    return dataclasses.replace(episode, steps={})


def _as_one_row(value: Any) -> Any:
    """Returns a value of an episode as a column of one row."""
    if isinstance(value, str | bytes):
        return objects([value])
    return np.asarray(value)[np.newaxis]


def _compare(
    label: str, episode: SourceEpisode, other: SourceEpisode, skipped: Collection[str] = ()
) -> None:
    _expect(label, list(differences(episode, other, skipped)), [], "no differences")


def _expect(label: str, actual: Any, expected: Any, expectation: str) -> None:
    if actual != expected:
        raise AssertionError(f"{label}: got {actual}, expected {expectation}: {expected}")
