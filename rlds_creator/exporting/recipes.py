"""The recipe of a download: an ordered list of recordings, with the changes to them.

A recipe presents its recordings as a view, which `rlds.conversion` writes in any format.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.editing.trimming import TrimView
from rlds.sources import Episodes, formats
from rlds.sources.episode_fields import COMPLETE
from rlds.sources.source import ALL_ROWS, Fields, SourceEpisode, SourceInfo
from rlds.sources.view import RowContext, View
from rlds_creator.exporting.recordings import ExportError, RecordedEpisode
from rlds_creator.recorded import STEP_FIELDS
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field

__all__ = ["Recipe", "tag_field"]

_DEFAULT_DESCRIPTION = "Episodes that people played in the browser, recorded with `rlds create`."


def tag_field(label: str) -> str:
    """Returns the name of the field of a tag, with quoted slashes: a slash separates nested fields.

    >>> tag_field("placed"), tag_field("left/right")
    ('tag:placed', 'tag:left%2Fright')
    """
    return f"tag:{label.replace('/', '%2F')}"


class Recipe:
    """A list of recordings of one environment, with the changes for their export.

    Args:
      directories: The logs of the episodes, in the order of the export.
      keep_internal: Whether to keep the fields for internal use: `STEP_FIELDS` of the steps, and
        the notes of the episodes.
      end_at: Labels. An episode ends at the first step with one of them.

    Attributes:
      recordings: The recorded episodes.
      labels: The tags of steps, sorted.
      lengths: The number of exported steps of each episode.

    Raises:
      ExportError: There are no episodes, one is unreadable, or their environments differ.
    """

    def __init__(
        self, directories: Sequence[str], *, keep_internal: bool = False, end_at: Sequence[str] = ()
    ) -> None:
        if not directories:
            raise ExportError("no episodes to export")
        self.keep_internal = keep_internal
        self.recordings = [RecordedEpisode.open(directory) for directory in directories]
        _check_specs(self.recordings)
        self.tagged_steps = [recording.tagged_steps() for recording in self.recordings]
        self.labels = sorted({label for columns in self.tagged_steps for label in columns})
        self.lengths = [
            min(
                (int(columns[label].argmax()) + 1 for label in end_at if label in columns),
                default=recording.num_steps,
            )
            for recording, columns in zip(self.recordings, self.tagged_steps, strict=True)
        ]

    @property
    def num_cut(self) -> int:
        """The number of episodes cut at a label before their last step."""
        pairs = zip(self.lengths, self.recordings, strict=True)
        return sum(length < recording.num_steps for length, recording in pairs)

    def metadata_columns(self) -> dict[str, Any]:
        """Returns the episode metadata that the export adds, as columns of all episodes."""
        annotations = [recording.annotations for recording in self.recordings]
        success = [each.success for each in annotations]
        consents = [each.consent for each in annotations]
        columns: dict[str, Any] = {
            "episode_index": np.arange(len(annotations)),
            "num_steps": np.array(self.lengths, np.int64),
            "total_reward": np.array([*map(_compute_total_reward, self.recordings, self.lengths)]),
            "state": [str(each.state or "") for each in annotations],
            "reason": [*map(_find_reason, self.recordings, self.lengths)],
            "tags": [json.dumps(each.episode_tags(), ensure_ascii=False) for each in annotations],
        }
        is_judged = [value is not None for value in success]
        if any(is_judged):
            columns["success"] = np.array(success, np.bool_)
        if not all(is_judged):
            columns[known_field("success")] = np.array(is_judged)
        is_practice = [each.is_practice for each in annotations]
        if any(is_practice):
            columns["is_practice"] = np.array(is_practice)
        if any(consents):
            columns["consent"] = [consent.text if consent else "" for consent in consents]
            times = [consent.created if consent else np.nan for consent in consents]
            columns["consent_time"] = np.array(times)
        if self.keep_internal:
            columns["notes"] = [each.notes for each in annotations]
        return columns

    def episodes(self, progress: Callable[[float], None]) -> Episodes:
        """Returns the episodes of the download.

        Args:
          progress: A callback for the fraction of the read episodes, from 0 to 1.

        Raises:
          SourceError: A log has data that a dataset cannot store; names the log and the data.
        """
        source: View = _AnnotatedView(self, progress)
        if self.num_cut:
            num_steps = [recording.num_steps for recording in self.recordings]
            ends = np.where(np.less(self.lengths, num_steps), self.lengths, -1)
            source = TrimView(source, np.zeros_like(ends), ends)
        return Episodes(source, "all", format="envlogger")


def _find_reason(recording: RecordedEpisode, length: int) -> str:
    """Returns the reason of the end of an episode."""
    if length < recording.num_steps:
        return "tag"
    return recording.annotations.reason or str(recording.metadata.get("reason") or "")


def _compute_total_reward(recording: RecordedEpisode, length: int) -> float:
    """Returns the sum of the rewards of the exported steps."""
    total_reward = recording.metadata.get("total_reward")
    if total_reward is None or length < recording.num_steps:
        return recording.total_reward(length)
    return float(total_reward)


class _AnnotatedView(View):
    """The source of recordings with tags and added metadata; the key of an episode is its id."""

    def __init__(self, recipe: Recipe, progress: Callable[[float], None]) -> None:
        logs: Any = formats()["envlogger"].load()
        leave_out = () if recipe.keep_internal else STEP_FIELDS
        directories = [each.directory for each in recipe.recordings]
        super().__init__(logs(directories, leave_out=leave_out))
        self._recipe, self._progress, self._num_started = recipe, progress, 0
        self._columns = recipe.metadata_columns()
        # The added columns have their own masks of missing values.
        self._masks = {known_field(name) for name in self._columns}

    @property
    @override
    def source_info(self) -> SourceInfo:
        return super().source_info.replace(description=_DEFAULT_DESCRIPTION)

    @property
    @override
    def fields(self) -> Fields:
        fields, columns = super().fields, self._columns.items()
        recorded = {key: field for key, field in fields.episode.items() if key not in self._masks}
        tags = dict.fromkeys(map(tag_field, self._recipe.labels), Field(np.bool_))
        added_fields = {name: Field(getattr(column, "dtype", str)) for name, column in columns}
        return fields.replace(steps={**fields.steps, **tags}, episode={**recorded, **added_fields})

    @override
    def key(self, split: str, index: int) -> str:
        return self._recipe.recordings[index].name

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        self._num_started = max(self._num_started, int(rows.episodes.max(initial=0)))
        self._progress(self._num_started / len(self._recipe.recordings))
        new_values = {path: value for path, value in values.items() if path not in self._masks}
        tags = {label: np.zeros(len(rows.steps), np.bool_) for label in self._recipe.labels}
        for episode in np.unique(rows.episodes).tolist():
            mask = rows.episodes == episode
            for label, column in self._recipe.tagged_steps[episode].items():
                tags[label][mask] = column[rows.steps[mask]]
        new_values |= {f"{rlds.STEPS}/{tag_field(label)}": column for label, column in tags.items()}
        if rows.episode_index is not None:
            new_values |= {key: column[rows.episode_index] for key, column in self._columns.items()}
            new_values[COMPLETE] = True  # An abandoned episode is truncated.
        return new_values

    @override
    def values(
        self, split: str, index: int, fields: Collection[str] | None, rows: slice = ALL_ROWS
    ) -> tuple[SourceEpisode, dict[str, Any]]:
        episode, values = super().values(split, index, fields, rows)
        return dataclasses.replace(episode, key=self.key(split, index)), values


def _check_specs(recordings: Sequence[RecordedEpisode]) -> None:
    """Checks that all episodes have the same specs.

    Raises:
      ExportError: The specs differ; names an episode of each environment, and the specs.
    """
    groups: list[list[RecordedEpisode]] = []
    for recording in recordings:
        group = next((group for group in groups if group[0].specs == recording.specs), None)
        if group is None:
            groups.append(group := [])
        group.append(recording)
    if len(groups) == 1:
        return
    specs, other_specs = groups[0][0].specs, groups[1][0].specs
    names = [name for name in specs if specs[name] != other_specs[name]]
    environments = "; ".join(
        f"{len(group)} of {group[0].environment or 'an unknown environment'!r:.200}, "
        f"such as {group[0].name}"
        for group in groups[:5]
    )
    raise ExportError(
        f"the episodes are of {len(groups)} environments, whose {' and '.join(names)} differ: "
        f"{environments}. Export each environment separately.",
        details="\n".join(f"{group[0].name}: {group[0].specs}" for group in groups[:5]),
    )
