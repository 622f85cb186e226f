"""The application of `rlds create`: all routes of the server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Any

from rlds_creator.model import EpisodeRecord, Person, Role
from rlds_creator.server.api.episodes import EpisodeRoutes
from rlds_creator.server.api.exports import ExportRoutes
from rlds_creator.server.api.people import PeopleRoutes
from rlds_creator.server.api.plays import PlayRoutes
from rlds_creator.server.api.studies import StudyRoutes
from rlds_creator.server.directory import DataDirectory
from rlds_creator.server.pages import Pages
from rlds_creator.server.plays import Limits, Plays
from rlds_creator.server.recordings import Recordings
from rlds_creator.server.requests import Authentication, in_thread
from rlds_creator.server.sample_studies import sample_studies
from rlds_creator.server.security import Application, Hosts
from rlds_creator.server.workers import Interpreters, Worker, WorkerTimeouts
from rlds_creator.store import EpisodeQuery, Store, StoreError
from rlds_tools.results import count

__all__ = ["Creator", "ServerSettings", "creator"]

logger = logging.getLogger(__name__)

# The name of the only person of a server without logins.
YOU = "you"


@dataclasses.dataclass(frozen=True)
class ServerSettings:
    """The settings of a server: address, hosts, interpreters, limits and timeouts.

    Attributes:
      address: The base URL of links.
      hosts: The allowed host names.
      is_single_user: Whether all requests are from one person, who has all permissions.
      is_secure: Whether browsers use https only.
      interpreters: The paths of additional Python interpreters for environments, by name.
      limits: The limits of plays, and of requests.
      timeouts: The timeouts of workers.
    """

    address: str = "http://127.0.0.1:8000"
    hosts: Hosts = dataclasses.field(default_factory=lambda: Hosts("127.0.0.1"))
    is_single_user: bool = True
    is_secure: bool = False
    interpreters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limits: Limits = dataclasses.field(default_factory=Limits)
    timeouts: WorkerTimeouts = dataclasses.field(default_factory=WorkerTimeouts)


@contextlib.contextmanager
def creator(
    data: DataDirectory, database: str = "", settings: ServerSettings | None = None
) -> Iterator[Creator]:
    """Opens a data directory to serve it.

    Args:
      data: The directory.
      database: The URL of the database; by default a file in the directory.
      settings: The settings of the server.

    Raises:
      RuntimeError: Another server uses the directory, or the database cannot be opened.
    """
    with data.server_lock(), data.worker_lock() as lock:
        try:
            opened_store = Store.open(database or data.database)
        except StoreError as error:
            raise RuntimeError(str(error)) from error
        with opened_store as store:
            yield Creator(data, store, settings or ServerSettings(), lock)


class Creator:
    """A server; `creator` opens it.

    Attributes:
      store: Studies, people, episodes and tags.
      recordings: The logs of episodes.
      recovered: The episodes recovered after a crash of an earlier server.
      app: The application.
    """

    def __init__(
        self, data: DataDirectory, store: Store, settings: ServerSettings, lock: int
    ) -> None:
        self.store = store
        self._settings = settings
        if not store.people() and not store.studies():
            for study in reversed([*sample_studies()]):  # Pages show the newest study first.
                store.save_study(study, by="")
        self.recordings = Recordings(data, store)
        self.recovered = self.recordings.recover()
        single_user = self._find_single_user() if settings.is_single_user else None
        create_worker = functools.partial(Worker, timeouts=settings.timeouts, pass_fds=[lock])
        people = Authentication(
            store,
            single_user,
            cookie=f"rlds_creator_{data.name}",  # Cookies ignore ports.
            is_secure=settings.is_secure,
        )
        self.plays = Plays(str(data.episodes), self._save_episode, create_worker, settings.limits)
        services: dict[str, Any] = {
            "people": people,
            "store": store,
            "data": data,
            "recordings": self.recordings,
            "plays": self.plays,
            "interpreters": Interpreters(settings.interpreters),
            "create_worker": create_worker,
            "address": settings.address,
        }
        self._exports = ExportRoutes(**services)
        self._exports.recover()
        classes = (PeopleRoutes, StudyRoutes, PlayRoutes, EpisodeRoutes)
        groups = (*(routes(**services) for routes in classes), self._exports, Pages())
        routes = [route for group in groups for route in group.routes()]
        self.app = Application(routes, settings.hosts, self._lifespan)

    def _find_single_user(self) -> Person:
        for person in self.store.people():
            if person.role is Role.OWNER and not person.is_disabled:
                return person
        return self.store.add_person(YOU, Role.OWNER)

    def summary(self) -> Iterator[str]:
        """Yields lines with the numbers of studies, episodes and recovered episodes."""
        studies, episodes = len(self.store.studies()), self.store.episodes(EpisodeQuery(limit=0))[1]
        yield f"{studies} {'study' if studies == 1 else 'studies'}, {count(episodes, 'episode')}"
        if self.recovered:
            yield f"{count(len(self.recovered), 'episode')} recovered after a crash"

    def invite_owner(self) -> str:
        """Returns a link that makes one person an owner; it is valid for a week."""
        _, token = self.store.invite(Role.OWNER)
        return f"{self._settings.address}/enter#{token}"

    def needs_owner(self) -> bool:
        """True if no owner can log in."""
        people = self.store.people()
        return not any(person.role is Role.OWNER and person.name != YOU for person in people)

    def _save_episode(
        self, episode: EpisodeRecord, needs_recovery: bool
    ) -> Awaitable[tuple[EpisodeRecord, bool]]:
        return in_thread(self.recordings.save, episode, needs_recovery=needs_recovery)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        timer = asyncio.create_task(self.plays.run())
        try:
            yield
        finally:
            timer.cancel()
            await self.plays.end_all()
            await self._exports.end_all()
