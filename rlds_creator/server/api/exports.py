"""API of downloads: background exports and their files."""

from __future__ import annotations

import asyncio
import functools
import logging
import shutil
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import BaseRoute

from rlds_creator.exporting.exports import Download
from rlds_creator.exporting.jobs import ExportRequest, run_export
from rlds_creator.exporting.recordings import ExportError
from rlds_creator.exporting.targets import FORMATS
from rlds_creator.model import ExportRecord, ExportState, Person
from rlds_creator.server.api.episodes import restrict_query
from rlds_creator.server.api.routes import Routes
from rlds_creator.server.bodies import body, convert
from rlds_creator.server.errors import (
    BadRequestError,
    ConflictError,
    MissingError,
    ServerError,
    TooManyError,
    without_folders,
)
from rlds_creator.server.permissions import May
from rlds_creator.server.requests import in_thread
from rlds_creator.store import EpisodeQuery

__all__ = ["ExportRoutes"]

logger = logging.getLogger(__name__)

_MAX_EXPORTS_PER_PERSON = 50
_RUNNING_STATES = (ExportState.QUEUED, ExportState.RUNNING)


class ExportRoutes(Routes):
    """The routes of downloads, and their export jobs."""

    def __post_init__(self) -> None:
        self._jobs: dict[str, asyncio.Task[Download]] = {}
        self._progress: dict[str, float] = {}  # The progress of running exports.
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._slot = asyncio.Semaphore(1)

    def routes(self) -> list[BaseRoute]:
        """Returns the routes."""
        return [
            self.route(path, handler, method, May.EXPORT)
            for path, handler, method in (
                ("/api/formats", self.formats, "GET"),
                ("/api/exports", self.get_all, "GET"),
                ("/api/exports", self.begin, "POST"),
                ("/api/exports/{id}", self.get, "GET"),
                ("/api/exports/{id}", self.drop, "DELETE"),
                ("/api/exports/{id}/file", self.file, "GET"),
            )
        ]

    async def formats(self, request: Request, person: Person) -> Any:
        """Returns the export formats: names, titles, and the extras they require."""
        names = ("name", "title", "installed", "requires")
        formats = FORMATS.values()
        return {"formats": [{name: getattr(format, name) for name in names} for format in formats]}

    async def get_all(self, request: Request, person: Person) -> Any:
        """Returns the downloads of the user."""
        exports = await in_thread(self.store.exports, person.id)
        return {"exports": [self._with_progress(export) for export in exports]}

    async def get(self, request: Request, person: Person) -> Any:
        """Returns a download."""
        return self._with_progress(await self._find_own_export(request, person))

    async def _find_own_export(self, request: Request, person: Person) -> ExportRecord:
        export = await in_thread(self.store.export, request.path_params["id"])
        if export.person != person.id:
            raise MissingError("This download does not exist. It may have been deleted.")
        return export

    def _with_progress(self, export: ExportRecord) -> ExportRecord:
        """Returns a download with the progress of its running job."""
        progress = self._progress.get(export.id)
        if progress is None or export.state is not ExportState.QUEUED:
            return export
        return msgspec.structs.replace(export, state=ExportState.RUNNING, progress=progress)

    async def begin(self, request: Request, person: Person) -> Any:
        """Starts an export."""
        content = await body(request, ExportRequest)
        ids = await in_thread(self._select_episodes, person, content)
        if len(await in_thread(self.store.exports, person.id)) >= _MAX_EXPORTS_PER_PERSON:
            raise TooManyError("You have too many downloads. Delete some of them first.")
        export = await in_thread(self.store.add_export, person.id, msgspec.to_builtins(content))
        self._jobs[export.id] = asyncio.create_task(self._run(export.id, content, ids))
        self._watchers[export.id] = asyncio.create_task(self._watch(export.id))
        return export

    async def _run(self, identifier: str, content: ExportRequest, ids: list[str]) -> Download:
        async with self._slot:
            report = functools.partial(self._progress.__setitem__, identifier)
            report(0.0)
            directories = [self.data.episode(id) for id in ids]
            return await run_export(content, directories, self.data.export(identifier), report)

    def _select_episodes(self, person: Person, content: ExportRequest) -> list[str]:
        """Returns the identifiers of the episodes of a request, in their order."""
        if content.format not in FORMATS:
            raise BadRequestError(f"Unknown format {content.format!r:.80}.")
        if (content.episodes is None) == (content.filter is None):
            raise BadRequestError("An export needs either `episodes` or `filter`.")
        episode_query = convert(content.filter or {}, EpisodeQuery, strict=False)
        episode_query = restrict_query(person, episode_query)
        visible_ids = self.store.episode_ids(episode_query)
        playing = {episode.id for episode in self.store.playing()}
        if not set(visible_ids).issuperset(content.episodes or ()):
            raise MissingError("One of these episodes was deleted. Load the list again.")
        if not playing.isdisjoint(content.episodes or ()):
            raise ConflictError("One of these episodes is still being played.", code="playing")
        if not content.practice and episode_query.is_practice is None:
            episode_query = msgspec.structs.replace(episode_query, is_practice=False)
        exportable_ids = {*self.store.episode_ids(episode_query)} - playing
        ids = [*dict.fromkeys(visible_ids if content.episodes is None else content.episodes)]
        ids = [id for id in ids if id in exportable_ids]
        if not ids:
            raise BadRequestError("No episode matches the filter.")
        return ids

    async def _watch(self, identifier: str) -> None:
        try:
            changes = await self._await_outcome(identifier)
            await in_thread(self.store.update_export, identifier, **changes)
        except ServerError as error:
            logger.warning("export %s: %s", identifier, error)
        finally:  # The last action: a stopping server waits for the tasks.
            for tasks in (self._jobs, self._progress, self._watchers):
                tasks.pop(identifier, None)

    async def _await_outcome(self, identifier: str) -> dict[str, Any]:
        error = "The export failed, see the log of the server."
        try:
            download = await self._jobs[identifier]
        except asyncio.CancelledError:
            return {"state": ExportState.CANCELLED}
        except ExportError as failure:
            logger.warning("export %s: %s\n%s", identifier, failure, failure.details)
            error = without_folders(str(failure))
        except Exception:
            logger.exception("export %s", identifier)
        else:
            logger.info("export %s has %d episodes", identifier, download.episodes)
            return {"state": ExportState.DONE, "progress": 1.0, "num_bytes": download.bytes}
        return {"state": ExportState.FAILED, "error": error}

    async def drop(self, request: Request, person: Person) -> Any:
        """Cancels a running export; deletes a finished export."""
        export = await self._find_own_export(request, person)
        watcher = self._watchers.get(export.id)
        if watcher is not None:
            self._jobs[export.id].cancel()
            await asyncio.wait([watcher])
            return await in_thread(self.store.export, export.id)
        await in_thread(self.store.delete_export, export.id)
        await in_thread(shutil.rmtree, self.data.export(export.id), ignore_errors=True)
        return {}

    def _find_file(self, identifier: str) -> Path:
        files = sorted(self.data.export(identifier).glob("*.zip"))
        if len(files) != 1:
            raise MissingError("The file of this download was deleted. Prepare it again.")
        return files[0]

    async def file(self, request: Request, person: Person) -> Any:
        """Returns the file, or a range of it to resume a download."""
        export = await self._find_own_export(request, person)
        if export.state is not ExportState.DONE:
            raise ConflictError("This download is not ready yet.", code="not_ready")
        path = await in_thread(self._find_file, export.id)
        return FileResponse(path, media_type="application/zip", filename=path.name)

    async def end_all(self) -> None:
        """Cancels all running exports."""
        for job in self._jobs.values():
            job.cancel()
        await asyncio.gather(*self._watchers.values())

    def recover(self) -> None:
        """Fails the unfinished exports of a killed server, and removes files without a record."""
        export_ids = set()
        for export in self.store.exports():
            export_ids.add(export.id)
            if export.state in _RUNNING_STATES:
                error = "The server was stopped."
                self.store.update_export(export.id, state=ExportState.FAILED, error=error)
                shutil.rmtree(self.data.export(export.id), ignore_errors=True)
        for directory in self.data.exports.iterdir():
            if directory.name not in export_ids and directory.is_dir():
                shutil.rmtree(directory, ignore_errors=True)
