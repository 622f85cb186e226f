"""The base class of all routes of `rlds create`, with their shared services."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlds_creator.model import Person
from rlds_creator.server.bodies import answer
from rlds_creator.server.directory import DataDirectory
from rlds_creator.server.permissions import May
from rlds_creator.server.plays import Plays
from rlds_creator.server.recordings import Recordings
from rlds_creator.server.requests import Authentication
from rlds_creator.server.workers import Interpreters, WorkerFactory
from rlds_creator.store import Store

__all__ = ["Routes"]


@dataclasses.dataclass(eq=False)
class Routes:
    """A group of routes, and the services of the server that they use.

    Attributes:
      people: The authentication of requests.
      store: Studies, people, episodes and tags.
      data: The directories of the logs and of the downloads.
      recordings: The steps of episodes.
      plays: The running plays.
      interpreters: The Python interpreters of workers.
      create_worker: Creates the worker of an environment.
      address: The base URL of links.
    """

    people: Authentication
    store: Store
    data: DataDirectory
    recordings: Recordings
    plays: Plays
    interpreters: Interpreters
    create_worker: WorkerFactory
    address: str

    def __post_init__(self) -> None:
        """Creates the state that the routes keep between requests."""

    def route(
        self,
        path: str,
        handler: Callable[[Request, Person], Awaitable[Any]],
        method: str = "GET",
        may: May | None = None,
    ) -> Route:
        """Returns a route for people who are logged in.

        Args:
          path: The path of the route.
          handler: Handles a request of a person; returns a response, or a value for its JSON body.
          method: The HTTP method.
          may: The required permission.
        """

        async def respond(request: Request) -> Response:
            value = await handler(request, await self.people.require_person(request, may))
            return value if isinstance(value, Response) else answer(value)

        return Route(path, respond, methods=[method])
