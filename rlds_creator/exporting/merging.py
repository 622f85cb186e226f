"""Recorded episodes become one log, with their tags in the steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np

from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
from envlogger.converters.video_fields import KEY as VIDEO
from envlogger.step_data import StepData
from rlds_creator.exporting.recordings import ExportError, RecordedEpisode
from rlds_creator.recorded import STEP_FIELDS
from rlds_creator.worker.recording import total
from rlds_ecosystem.model.errors import EnvLoggerError

__all__ = ["Selection", "tag_field"]

# How many steps there are between two reports of progress.
_STEPS_PER_REPORT = 64


def tag_field(label: str) -> str:
    """Returns the name of the field of a label. In names of fields, slashes have a meaning.

    >>> tag_field("placed"), tag_field("left/right")
    ('tag:placed', 'tag:left%2Fright')
    """
    return f"tag:{label.replace('/', '%2F')}"


class Selection:
    """Episodes of one environment that become one log.

    Args:
      directories: The logs of the episodes, in the order in which they are written.
      keep_internal: Whether to keep what only the tool needs: `STEP_FIELDS` of the steps, and
        the notes of the episodes.
      end_at: Labels. An episode ends at the first step that has one of them.

    Attributes:
      episodes: The episodes.
      labels: The labels that steps have, sorted.
      num_steps: How many steps are written.
      num_cut: How many episodes end at a label before their last step.

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
        self.episodes = [RecordedEpisode.open(directory) for directory in directories]
        _check_specs(self.episodes)
        tagged = [episode.tagged_steps() for episode in self.episodes]
        self.labels = sorted({label for columns in tagged for label in columns})
        self._has_packets = VIDEO in self.metadata()
        # How many steps of each episode are written.
        self._lengths = [
            min(
                (int(columns[label].argmax()) + 1 for label in end_at if label in columns),
                default=episode.num_steps,
            )
            for episode, columns in zip(self.episodes, tagged, strict=True)
        ]
        self.num_steps = sum(self._lengths)
        self.num_cut = sum(
            length < episode.num_steps
            for length, episode in zip(self._lengths, self.episodes, strict=True)
        )

    def metadata(self) -> dict[str, Any]:
        """Returns what is recorded of the logs of all episodes alike, with the specs."""
        first, *others = (episode.log_metadata for episode in self.episodes)
        return {
            name: value
            for name, value in first.items()
            if name == "environment_specs"
            or all(name in other and _equal(value, other[name]) for other in others)
        }

    def write_log(self, directory: str, progress: Callable[[float], None]) -> None:
        """Writes the log.

        Args:
          directory: A new directory.
          progress: Called with how much is done, from 0 to 1.

        Raises:
          ExportError: An episode cannot be read, or has what a log cannot hold.
          StorageError: The log cannot be written.
        """
        num_written = 0
        # One flush in the end is enough: others do not see the directory before.
        with RiegeliBackendWriter(
            directory, metadata=self.metadata(), flush_interval=None
        ) as writer:
            for index, episode in enumerate(self.episodes):
                rewards = 0.0
                with writer.episode() as record_step:
                    for step in self._steps(index):
                        _record(record_step, step, episode)
                        rewards += total(step.timestep.reward)
                        num_written += 1
                        if num_written % _STEPS_PER_REPORT == 0:
                            progress(num_written / self.num_steps)
                writer.set_episode_metadata(self._episode_metadata(index, rewards))
        progress(1.0)

    def _steps(self, index: int) -> Iterator[StepData]:
        """The steps of an episode as they are exported."""
        episode, length = self.episodes[index], self._lengths[index]
        tagged = episode.tagged_steps()
        left_out = () if self.keep_internal else STEP_FIELDS
        # Packets are copied, unless others are of another video, or none.
        for number, step in enumerate(episode.steps(has_packets=self._has_packets)):
            custom = step.custom_data
            if isinstance(custom, Mapping):
                custom = {name: value for name, value in custom.items() if name not in left_out}
            elif self.labels:
                custom = {} if custom is None else {"custom_data": custom}
            for label in self.labels:
                custom[tag_field(label)] = bool(label in tagged and tagged[label][number])
            timestep = step.timestep
            is_last = number == length - 1
            if is_last and timestep.mid():
                timestep = timestep._replace(step_type=dm_env.StepType.LAST)
            yield StepData(timestep, step.action, custom or None)
            if is_last:
                return

    def _episode_metadata(self, index: int, total_reward: float) -> dict[str, Any]:
        episode, length = self.episodes[index], self._lengths[index]
        annotations = episode.annotations
        metadata = {
            **episode.metadata,
            "episode_index": np.int64(index),
            "num_steps": np.int64(length),
            "total_reward": np.float64(total_reward),
            "state": "" if annotations.state is None else annotations.state.value,
            "reason": annotations.reason or episode.metadata.get("reason", ""),
            "success": annotations.success,
        }
        if length < episode.num_steps:
            metadata["reason"] = "tag"
        if any(one.annotations.is_practice for one in self.episodes):
            metadata["is_practice"] = annotations.is_practice
        if any(one.annotations.consent for one in self.episodes):
            consent = annotations.consent
            metadata["consent"] = consent.text if consent else ""
            metadata["consent_time"] = np.float64(consent.created if consent else np.nan)
        metadata["tags"] = json.dumps(episode.episode_labels(), ensure_ascii=False)
        if self.keep_internal:
            metadata["notes"] = annotations.notes
        return metadata


def _record(
    record_step: Callable[[StepData], None], step: StepData, episode: RecordedEpisode
) -> None:
    try:
        record_step(step)
    except EnvLoggerError as error:
        raise ExportError(f"episode {episode.name} cannot be stored: {error}") from error


def _check_specs(episodes: Sequence[RecordedEpisode]) -> None:
    """Checks that all episodes are of one environment, as far as the specs say.

    Raises:
      ExportError: They are not; names an episode of each environment, and what is different.
    """
    first = episodes[0]
    kinds = [first]
    counts = [0]
    for episode in episodes:
        for number, kind in enumerate(kinds):
            if all(_equal(kind.specs[name], spec) for name, spec in episode.specs.items()):
                counts[number] += 1
                break
        else:
            kinds.append(episode)
            counts.append(1)
    if len(kinds) == 1:
        return
    names = [name for name in first.specs if not _equal(first.specs[name], kinds[1].specs[name])]
    described = "; ".join(
        f"{count} of {kind.environment or 'an unknown environment'!r:.200}, such as {kind.name}"
        for kind, count in zip(kinds[:5], counts, strict=False)
    )
    raise ExportError(
        f"the episodes are of {len(kinds)} environments, whose {' and '.join(names)} differ: "
        f"{described}. Export each environment separately.",
        details="\n".join(f"{kind.name}: {kind.specs}" for kind in kinds[:5]),
    )


def _equal(one: Any, other: Any) -> bool:
    """Whether two specs, or two recorded values, are the same; containers may be nested."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)
