"""The recipe of a download: recordings, in an order, with what changes of them.

The rest is an edit: recordings are episodes, and the recipe is operations on them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.editing import Drop, Operation
from rlds.editing.drafts import Draft
from rlds.formats.logs.source import EnvLoggerSource
from rlds.sources import Episodes
from rlds.sources.source import ALL_ROWS, SourceEpisode
from rlds.sources.wrapped import WrappedSource
from rlds_creator.exporting.recordings import ExportError, RecordedEpisode
from rlds_creator.recorded import STEP_FIELDS
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field

__all__ = ["Recipe", "tag_field"]

_DESCRIPTION = "Episodes that people played in the browser, recorded with `rlds create`."


def tag_field(label: str) -> str:
    """Returns the name of the field of a label. In names of fields, slashes have a meaning.

    >>> tag_field("placed"), tag_field("left/right")
    ('tag:placed', 'tag:left%2Fright')
    """
    return f"tag:{label.replace('/', '%2F')}"


class Recipe:
    """Recordings of one environment that become one dataset.

    Args:
      directories: The logs of the episodes, in the order in which they are written.
      keep_internal: Whether to keep what only the tool needs: `STEP_FIELDS` of the steps, and
        the notes of the episodes.
      end_at: Labels. An episode ends at the first step that has one of them.

    Attributes:
      recordings: The episodes as they were recorded.
      labels: The labels that steps have, sorted.
      lengths: The number of steps that each episode keeps.

    Raises:
      ExportError: There are no episodes, one cannot be read, or their environments differ.
    """

    def __init__(
        self,
        directories: Sequence[str],
        *,
        keep_internal: bool = False,
        end_at: Sequence[str] = (),
    ) -> None:
        if not directories:
            raise ExportError("no episodes to export")
        self.keep_internal = keep_internal
        self.recordings = [RecordedEpisode.open(directory) for directory in directories]
        _check_specs(self.recordings)
        self.tagged = [recording.tagged_steps() for recording in self.recordings]
        self.labels = sorted({label for columns in self.tagged for label in columns})
        self.lengths = [
            min(
                (int(columns[label].argmax()) + 1 for label in end_at if label in columns),
                default=recording.num_steps,
            )
            for recording, columns in zip(self.recordings, self.tagged, strict=True)
        ]

    @property
    def num_cut(self) -> int:
        """The number of episodes that end at a label before their last step."""
        pairs = zip(self.lengths, self.recordings, strict=True)
        return sum(length < recording.num_steps for length, recording in pairs)

    def facts(self) -> list[dict[str, Any]]:
        """Returns for each episode what its metadata has beside what was recorded."""
        notes_and_consents = [recording.annotations for recording in self.recordings]
        has_practice = any(each.is_practice for each in notes_and_consents)
        has_consent = any(each.consent for each in notes_and_consents)
        found = []
        for index, (recording, length) in enumerate(
            zip(self.recordings, self.lengths, strict=True)
        ):
            annotations, metadata = recording.annotations, recording.metadata
            tags = annotations.tags_that_hold()
            whole = [*dict.fromkeys(tag.layer for tag in tags if tag.begin is None)]
            is_cut = length < recording.num_steps
            rewards = None if is_cut else metadata.get("total_reward")
            facts: dict[str, Any] = {
                "episode_index": np.int64(index),
                "num_steps": np.int64(length),
                "total_reward": np.float64(
                    recording.total_reward(length) if rewards is None else rewards
                ),
                "state": annotations.state.value if annotations.state else "",
                "reason": annotations.reason or str(metadata.get("reason") or ""),
                "success": annotations.success,
                "tags": json.dumps(whole, ensure_ascii=False),
            }
            if is_cut:
                facts["reason"] = "tag"
            if has_practice:
                facts["is_practice"] = np.bool_(annotations.is_practice)
            if has_consent:
                consent = annotations.consent
                facts["consent"] = consent.text if consent else ""
                facts["consent_time"] = np.float64(consent.created if consent else np.nan)
            if self.keep_internal:
                facts["notes"] = annotations.notes
            found.append(facts)
        return found

    def episodes(self, progress: Callable[[float], None]) -> Episodes:
        """Returns the episodes of the download.

        Args:
          progress: Called when an episode is read, with the fraction that has been read by then.

        Raises:
          SourceError: A log has what a dataset has no place for; says which, and what.
        """
        source = _Annotated(self, progress)
        draft = Draft(Episodes(source, "train", format="envlogger"), "recordings")
        for operation in self._operations(source):
            operation.apply(draft)
        return Episodes(draft.view(), "all", format="envlogger")

    def _operations(self, source: _Annotated) -> Iterator[Operation]:
        yield _EndAt(self.lengths)
        if not self.keep_internal:
            for name in STEP_FIELDS:
                if name in source.step_fields():
                    yield Drop(f"steps/{name}")


@dataclasses.dataclass(frozen=True)
class _EndAt(Operation):
    """Keeps some of the first steps of each episode.

    Attributes:
      lengths: The number of steps of each.
    """

    do = "end_at"
    lengths: Sequence[int]

    @override
    def apply(self, draft: Draft) -> None:
        lengths = np.array(self.lengths)
        draft.end = np.where(lengths < draft.num_steps(), lengths, draft.end)


class _Annotated(WrappedSource):
    """Recordings with their tags and facts as fields; their keys are their identifiers."""

    def __init__(self, recipe: Recipe, progress: Callable[[float], None]) -> None:
        super().__init__(EnvLoggerSource([each.directory for each in recipe.recordings]))
        self.description = _DESCRIPTION
        self._recipe, self._progress, self._read = recipe, progress, 0
        self._facts = list(_with_marks(recipe.facts()))

    @override
    def step_fields(self) -> Mapping[str, Any]:
        tags = dict.fromkeys(map(tag_field, self._recipe.labels), Field(np.bool_))
        return {**self.source.step_fields(), **tags}

    @override
    def episode_fields(self) -> Mapping[str, Any]:
        facts = self._facts[0].items()
        fields = {name: Field(str if isinstance(it, str) else it.dtype) for name, it in facts}
        return {**self._recorded(self.source.episode_fields()), **fields}

    def _recorded(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Metadata without the marks of what is known of all episodes now."""
        marks = map(known_field, self._facts[0])
        return {name: it for name, it in metadata.items() if name not in {*marks}}

    @override
    def key(self, split: str, index: int) -> str:
        return self._recipe.recordings[index].name

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        self._read = max(self._read, index)
        self._progress(self._read / len(self._facts))
        episode = super().read(split, index, fields)
        tagged = self._recipe.tagged[index]
        nowhere = np.zeros(episode.num_steps, np.bool_)
        tags = {tag_field(one): tagged.get(one, nowhere) for one in self._recipe.labels}
        return dataclasses.replace(
            episode,
            key=self.key(split, index),
            steps={**episode.steps, **tags},
            metadata={**self._recorded(episode.metadata), **self._facts[index]},
            complete=True,  # What was left before its end is truncated.
        )


def _with_marks(facts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields facts with a mark in place of `None`; without what is None in all of them."""
    kinds = {name: type(it) for each in facts for name, it in each.items() if it is not None}
    unsure = {name for each in facts for name, it in each.items() if it is None}
    for each in facts:
        values = {name: kinds[name]() if each[name] is None else each[name] for name in kinds}
        marks = {known_field(name): each[name] is not None for name in unsure & kinds.keys()}
        yield {
            name: it if isinstance(it, str) else np.asarray(it)[()]
            for name, it in {**values, **marks}.items()
        }


def _check_specs(recordings: Sequence[RecordedEpisode]) -> None:
    """Checks that all episodes are of one environment, as far as the specs say.

    Raises:
      ExportError: They are not; names an episode of each environment, and what is different.
    """
    kinds: list[list[RecordedEpisode]] = []
    for recording in recordings:
        alike = (kind for kind in kinds if _equal(kind[0].specs, recording.specs))
        kind = next(alike, None)
        if kind is None:
            kinds.append([recording])
        else:
            kind.append(recording)
    if len(kinds) == 1:
        return
    first, other = kinds[0][0].specs, kinds[1][0].specs
    names = [name for name in first if not _equal(first[name], other[name])]
    described = "; ".join(
        f"{len(kind)} of {kind[0].environment or 'an unknown environment'!r:.200}, "
        f"such as {kind[0].name}"
        for kind in kinds[:5]
    )
    raise ExportError(
        f"the episodes are of {len(kinds)} environments, whose {' and '.join(names)} differ: "
        f"{described}. Export each environment separately.",
        details="\n".join(f"{kind[0].name}: {kind[0].specs}" for kind in kinds[:5]),
    )


def _equal(one: Any, other: Any) -> bool:
    """Whether two specs are the same; containers may be nested."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
