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
from rlds_creator.server.security import Application, Hosts
from rlds_creator.server.starters import starters
from rlds_creator.server.workers import Interpreters, Worker, WorkerTimeouts
from rlds_creator.store import EpisodeQuery, Store, StoreError
from rlds_tools.results import count

__all__ = ["Creator", "ServerSettings", "creator"]

logger = logging.getLogger(__name__)

# The name of the single person of a server without logins.
YOU = "you"


@dataclasses.dataclass(frozen=True)
class ServerSettings:
    """The settings of a server: address, hosts, interpreters, limits and timeouts.

    Attributes:
      address: The base URL of links.
      hosts: The names by which it may be called.
      is_single_user: Whether all requests are from one person, who may do everything.
      is_secure: Whether browsers reach it by https only.
      interpreters: The paths of other Pythons for environments, by their names.
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
      database: The URL of the database; that in the directory by default.
      settings: The settings of the server.

    Raises:
      RuntimeError: Another server is running there, or the database cannot be opened.
    """
    with data.locked(), data.worked_in() as lock:
        try:
            opened = Store.open(database or data.database)
        except StoreError as error:
            raise RuntimeError(str(error)) from error
        with opened as store:
            yield Creator(data, store, settings or ServerSettings(), lock)


class Creator:
    """A server; `creator` opens it.

    Attributes:
      store: Studies, people, episodes and tags.
      recordings: The logs of episodes.
      recovered: The episodes that were cut short when a server before was killed.
      app: The application.
    """

    def __init__(
        self, data: DataDirectory, store: Store, settings: ServerSettings, lock: int
    ) -> None:
        self.store = store
        self._settings = settings
        if not store.people() and not store.studies():
            for study in reversed([*starters()]):  # Pages show the newest first.
                store.save_study(study, by="")
        self.recordings = Recordings(data, store)
        self.recovered = self.recordings.recover()
        everybody = self._everybody() if settings.is_single_user else None
        make_worker = functools.partial(Worker, timeouts=settings.timeouts, inherits=[lock])
        people = Authentication(
            store,
            everybody,
            cookie=f"rlds_creator_{data.name}",  # Of this server, not of one on another port.
            is_secure=settings.is_secure,
        )
        self.plays = Plays(str(data.episodes), self._save, make_worker, settings.limits)
        services: dict[str, Any] = {
            "people": people,
            "store": store,
            "data": data,
            "recordings": self.recordings,
            "plays": self.plays,
            "interpreters": Interpreters(settings.interpreters),
            "make_worker": make_worker,
            "address": settings.address,
        }
        self._exports = ExportRoutes(**services)
        self._exports.recover()
        kinds = (PeopleRoutes, StudyRoutes, PlayRoutes, EpisodeRoutes)
        parts = (*(kind(**services) for kind in kinds), self._exports, Pages())
        routes = [route for part in parts for route in part.routes()]
        self.app = Application(routes, settings.hosts, self._lifespan)

    def _everybody(self) -> Person:
        owners = [one for one in self.store.people() if one.role is Role.OWNER]
        return next((one for one in owners if not one.is_disabled), None) or self.store.add_person(
            YOU, Role.OWNER
        )

    def summary(self) -> Iterator[str]:
        """Yields a summary: the numbers of studies, of episodes and of recovered episodes."""
        studies, episodes = len(self.store.studies()), self.store.episodes(EpisodeQuery(limit=0))[1]
        yield f"{studies} {'study' if studies == 1 else 'studies'}, {count(episodes, 'episode')}"
        if self.recovered:
            yield f"{count(len(self.recovered), 'episode')} recovered after a crash"

    def invite_owner(self) -> str:
        """Returns a link with which one person becomes an owner, for a week."""
        _, token = self.store.invite(Role.OWNER)
        return f"{self._settings.address}/enter#{token}"

    def needs_owner(self) -> bool:
        """True if no owner can log in."""
        people = self.store.people()
        return not any(one.role is Role.OWNER and one.name != YOU for one in people)

    def _save(self, episode: EpisodeRecord, is_cut: bool) -> Awaitable[tuple[EpisodeRecord, bool]]:
        return in_thread(self.recordings.save, episode, is_cut=is_cut)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        ticking = asyncio.create_task(self.plays.run())
        try:
            yield
        finally:
            ticking.cancel()
            await self.plays.end_all()
            await self._exports.end_all()
