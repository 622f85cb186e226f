"""Recorded episodes: their logs in the data directory, and their records in the store.

Both agree even after a crash: the next start adds logs that are missing in the store, and finishes
deletions, because the log of an episode is marked before the episode is deleted from the store.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import envlogger
from rlds_creator.exporting.recordings import (
    ANNOTATIONS_FILE,
    DELETED_FILE,
    Annotations,
    ExportError,
)
from rlds_creator.identifiers import is_identifier
from rlds_creator.labelling import PLAY_TOOL
from rlds_creator.model import EpisodeRecord, EpisodeState, LabelRow
from rlds_creator.recorded import ENVIRONMENT_ID
from rlds_creator.server.directory import DataDirectory
from rlds_creator.store import EpisodeQuery, RecordNotFoundError, Store, StoreError
from rlds_creator.viewing import ViewedEpisode
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.log_steps import LogSteps
from rlds_creator.viewing.thumbnails import Thumbnails, state_of
from rlds_creator.worker.recovery import recover_episode
from rlds_ecosystem.files.whole_files import write_atomically

__all__ = ["Recordings"]

logger = logging.getLogger(__name__)

_UNFINISHED = (None, EpisodeState.PLAYING, EpisodeState.ENDED)
_ANNOTATED_FIELDS = ("state", "reason", "success", "notes", "is_practice")
_MAX_CACHED_VIEWS = 16
_CACHE_BYTES = 64 << 20


class Recordings:
    """The logs of a data directory and their records in a store. Methods block on the disk."""

    def __init__(self, data: DataDirectory, store: Store) -> None:
        self._data = data
        self._store = store
        self._write_lock = threading.Lock()
        self._open_lock = threading.Lock()
        self._cache, self._thumbnails = Cache(_CACHE_BYTES), Thumbnails()
        self._get_view = functools.lru_cache(_MAX_CACHED_VIEWS)(self._open_view)

    # --- Episodes of plays.

    def save(
        self, episode: EpisodeRecord, *, needs_recovery: bool = False
    ) -> tuple[EpisodeRecord, bool]:
        """Stores the current state of an episode.

        Args:
          episode: The episode.
          needs_recovery: Whether the worker has died, so that the log may have to be repaired.

        Returns:
          The stored episode, and True if the quota allows the player another episode.
        """
        if needs_recovery:
            episode = self._update_from_log(episode)
        episode = self._store.save_episode(episode)
        self.annotate(episode.id)
        is_completed = episode.state is EpisodeState.COMPLETED
        ids = episode.study, episode.person, episode.environment
        return episode, not is_completed or self._store.wants_more(*ids)

    def annotate(self, episode_id: str) -> None:
        """Writes the annotations of an episode from the store next to its log."""
        with self._write_lock:  # An old state must not overwrite a newer state.
            episode = self._store.episode(episode_id)
            study = self._store.study(episode.study)
            environment = self._store.environments(episode.study).get(episode.environment)
            rows = self._store.labels(episode_id, history=True)
            annotations = {
                **{name: getattr(episode, name) for name in _ANNOTATED_FIELDS},
                "labels": [self._add_pseudonym(row, study.id) for row in rows],
                "consent": self._store.consent(study.id, episode.person, episode.started),
                "study": {"id": study.id, "name": study.name},
                "environment": environment or {"id": episode.environment, "name": ""},
            }
            directory = self._data.episode(episode_id)
            if directory.is_dir():
                content = msgspec.json.format(msgspec.json.encode(annotations), indent=1)
                write_atomically(directory / ANNOTATIONS_FILE, content + b"\n")

    def _add_pseudonym(self, row: LabelRow, study: str) -> LabelRow:
        """Returns a label row with the pseudonym of its annotator."""
        agent = row.annotator and self._data.agent_id(row.annotator, study)
        return replace(row, annotator=agent)

    # --- Views of episodes.

    def view(self, episode_id: str) -> ViewedEpisode:
        """Returns the view of an episode.

        Raises:
          LookupError: The log is missing or empty.
          envlogger.errors.EnvLoggerError: The log cannot be read.
        """
        with self._open_lock:
            return self._get_view(episode_id)

    def _open_view(self, episode_id: str) -> ViewedEpisode:
        directory = self._data.episode(episode_id)
        if not directory.is_dir():
            raise LookupError("The recording of this episode is missing.")
        reader = envlogger.Reader(directory)
        if len(reader.episodes) != 1:
            raise LookupError("The recording of this episode has no steps.")
        return ViewedEpisode(LogSteps(reader, 0, self._cache, episode_id), title=episode_id)

    def thumbnail(self, episode_id: str) -> tuple[bytes, str] | None:
        """Returns a small picture of an episode and its media type; None if it has no pictures.

        Raises the errors of `view`.
        """
        directory = self._data.episode(episode_id)
        state = f"{os.path.realpath(directory)} {state_of(directory.glob('*.riegeli'))}"
        return self._thumbnails.get(state, lambda: self.view(episode_id).thumbnail())

    # --- Deletion.

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Deletes episodes and their logs, see `Store.delete_episodes`."""
        ids = [id for id in ids if is_identifier(id)]
        with self._mark_as_deleted(ids):
            return self._store.delete_episodes(ids)

    def delete_study(self, study_id: str) -> list[str]:
        """Deletes a study and the logs of its episodes, see `Store.delete_study`."""
        with self._mark_as_deleted(self._store.episode_ids(EpisodeQuery(study=study_id))):
            return self._store.delete_study(study_id)

    @contextlib.contextmanager
    def _mark_as_deleted(self, ids: Iterable[str]) -> Any:
        directories = [d for d in map(self._data.episode, ids) if d.is_dir()]
        for directory in directories:
            (directory / DELETED_FILE).touch()
        try:
            yield
        finally:
            for directory in directories:
                self._finish_deletion(directory)

    def _finish_deletion(self, directory: Path) -> None:
        try:
            self._store.episode(directory.name)
        except RecordNotFoundError:
            self._get_view.cache_clear()
            shutil.rmtree(directory, ignore_errors=True)
        else:
            (directory / DELETED_FILE).unlink(missing_ok=True)

    # --- Recovery after a restart.

    def recover(self) -> list[EpisodeRecord]:
        """Reconciles the store with the logs after a crash of the server. No worker may be running.

        Returns:
          The recovered episodes: interrupted episodes, and episodes that were missing in the store.
        """
        recovered = []
        for episode in self._store.playing():
            changes = {"state": EpisodeState.ABANDONED, "reason": episode.reason or "stopped"}
            recovered.append(self.save(replace(episode, **changes), needs_recovery=True)[0])
        stored_ids = set(self._store.episode_ids(EpisodeQuery()))
        people = None
        for directory in sorted(self._data.episodes.iterdir()):
            if not is_identifier(directory.name) or not directory.is_dir():
                continue
            if (directory / DELETED_FILE).exists():
                self._finish_deletion(directory)
            elif directory.name not in stored_ids:
                people = people or self._people_by_pseudonym()
                recovered += self._add_recovered(directory, people)
        return recovered

    def _people_by_pseudonym(self) -> dict[str, tuple[str, str]]:
        """Returns the study and the person of each pseudonym."""
        people = [person.id for person in self._store.people()]
        return {
            self._data.agent_id(person, study.id): (study.id, person)
            for study in self._store.studies()
            for person in people
        }

    def _add_recovered(
        self, directory: Path, agents: Mapping[str, tuple[str, str]]
    ) -> Iterator[EpisodeRecord]:
        """Stores the episode of a log that is missing in the store, if its study exists."""
        try:
            has_files = any(directory.glob("[!.]*"))  # The names of drafts begin with a dot.
            log = recover_episode(directory) if has_files else None
        except Exception as error:  # No error may keep the server from starting.
            logger.warning("skipping %s, which cannot be read: %s", directory, error)
            return
        if log is None:  # The worker was killed before the first step.
            shutil.rmtree(directory, ignore_errors=True)
            return
        study, person = agents.get(str(log.metadata.get("agent_id")), ("", ""))
        if not study:
            logger.warning("skipping %s: its study or person is unknown", directory)
            return
        annotations = _read_annotations(directory)
        episode = EpisodeRecord(
            id=directory.name,
            study=study,
            environment=str(log.metadata.get(ENVIRONMENT_ID)),
            session="recovered",
            person=person,
            number=0,
            state=EpisodeState.ABANDONED if annotations.state in _UNFINISHED else annotations.state,
            reason=annotations.reason or str(log.metadata.get("reason") or "stopped"),
            success=annotations.success,
            num_steps=log.num_steps,
            total_reward=log.total_reward,
            started=log.start_time,
            seconds=log.end_time - log.start_time,
            is_practice=annotations.is_practice,
        )
        self._store.save_episode(episode)
        try:
            self._store.set_notes(episode.id, annotations.notes, 0)
            people = {agent: person for agent, (_, person) in agents.items()}
            rows = annotations.rows(episode.person)
            if not any(row.tool == PLAY_TOOL for row in rows):  # Earlier releases wrote no verdict.
                stored_rows = self._store.labels(episode.id)
                rows = [*(row for row in stored_rows if row.tool == PLAY_TOOL), *rows]
            annotators = [people.get(row.annotator, row.annotator) for row in rows]
            rows = [replace(row, annotator=name) for row, name in zip(rows, annotators)]
            self._store.replace_labels(episode.id, rows)
        except StoreError as error:
            logger.warning("could not restore all labels of %s: %s", episode.id, error)
        self.annotate(episode.id)
        yield self._store.episode(episode.id)

    def _update_from_log(self, episode: EpisodeRecord) -> EpisodeRecord:
        """Returns the episode with the length and the return of its log."""
        try:
            log = recover_episode(self._data.episode(episode.id))
        except Exception as error:  # The reported length stays.
            logger.warning("the log of episode %s cannot be read: %s", episode.id, error)
            return episode
        if log is None:
            return episode
        return replace(
            episode,
            num_steps=log.num_steps,
            total_reward=log.total_reward,
            seconds=episode.seconds or log.end_time - log.start_time,
        )


def _read_annotations(directory: Path) -> Annotations:
    """Returns the annotations in the directory of a log, which replace a lost database."""
    try:
        return Annotations.read(directory)
    except ExportError as error:
        logger.warning("%s", error)
        return Annotations()
