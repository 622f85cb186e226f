"""What all routes of `rlds create` have at hand."""

from __future__ import annotations

import dataclasses

from rlds_creator.server.directory import DataDirectory
from rlds_creator.server.plays import Plays
from rlds_creator.server.recordings import Recordings
from rlds_creator.server.requests import Authentication
from rlds_creator.server.workers import Interpreters, WorkerMaker
from rlds_creator.store import Store

__all__ = ["Routes", "Services"]


@dataclasses.dataclass(frozen=True)
class Services:
    """The parts of a server.

    Attributes:
      people: Who sends requests.
      store: Studies, people, episodes and tags.
      data: Where the logs of episodes and the downloads are.
      recordings: The steps of episodes.
      plays: What is played.
      interpreters: Those in which environments live.
      make_worker: Makes the worker of an environment.
      address: Where pages of this server are, for links.
    """

    people: Authentication
    store: Store
    data: DataDirectory
    recordings: Recordings
    plays: Plays
    interpreters: Interpreters
    make_worker: WorkerMaker
    address: str


class Routes:
    """Routes that belong together.

    Args:
      services: The parts of the server.
    """

    def __init__(self, services: Services) -> None:
        self._people, self._store = services.people, services.store
        self._data, self._recordings = services.data, services.recordings
        self._plays, self._interpreters = services.plays, services.interpreters
        self._make_worker, self._address = services.make_worker, services.address
