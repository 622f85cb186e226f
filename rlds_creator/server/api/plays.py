"""Playing: where it begins, and the socket on which it happens."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from rlds_creator.model import Assignment, Environment, Person, Study, StudyState
from rlds_creator.server.api.routes import Routes
from rlds_creator.server.api.studies import seen_study
from rlds_creator.server.bodies import answer, body
from rlds_creator.server.errors import BadRequestError, ForbiddenError, MissingError
from rlds_creator.server.permissions import May, may
from rlds_creator.server.plays import Play, Turn
from rlds_creator.server.requests import in_thread
from rlds_creator.store import EpisodeQuery

__all__ = ["PlayRoutes"]

_Id = Annotated[str, msgspec.Meta(max_length=64)]


class _Wish(msgspec.Struct, forbid_unknown_fields=True):
    study: _Id
    environment: _Id | None = None


class PlayRoutes(Routes):
    """The routes of players."""

    def routes(self) -> list[BaseRoute]:
        """Returns the routes."""
        return [
            Route("/api/plays", self.begin, methods=["POST"]),
            Route("/api/plays/{id}", self.end, methods=["DELETE"]),
            WebSocketRoute("/api/plays/{id}", self.socket),
        ]

    async def begin(self, request: Request) -> Response:
        """Begins to play, or goes on with what the person plays already."""
        person = await self._people.required(request, May.PLAY)
        wish = await body(request, _Wish)
        study = await seen_study(self._store, person, wish.study)
        if study.state is not StudyState.ENABLED and not may(person, May.MANAGE):
            raise ForbiddenError("This study is not enabled. Ask its owner.", code="not_enabled")
        counts = await in_thread(self._store.counts, [study.id], person.id)
        if study.consent and counts[study.id].agreed is None:
            text = "Read the consent text on the page of the study, and agree to it."
            raise ForbiddenError(text, code="consent")
        async with self._plays.turn(person):
            play = self._plays.of(person)
            if play is None or not _is_wished(play, study, wish.environment):
                play = await self._begin(person, study, wish.environment)
        return answer(play.described())

    async def _begin(self, person: Person, study: Study, wished: str | None) -> Play:
        self._plays.check_room(person)
        wished = wished or None
        is_assigned = study.assignment is not Assignment.CHOICE and len(study.environments) > 1
        if wished and is_assigned and not may(person, May.MANAGE):
            raise BadRequestError("This study chooses the environment for you.")

        async def choose() -> Turn:
            environment = await in_thread(
                self._store.choose_environment, study.id, person.id, wished
            )
            return Turn(
                environment,
                self._interpreters.path(environment.interpreter),
                await self._next_seed(person, study, environment),
            )

        agent_id = self._data.agent_id(person.id, study.id)
        return await self._plays.start(
            person, study, choose, agent_id=agent_id, is_chosen=wished is not None
        )

    async def _next_seed(
        self, person: Person, study: Study, environment: Environment
    ) -> int | None:
        if environment.seed is None:
            return None
        mine = EpisodeQuery(study=study.id, environment=environment.id, person=person.id, limit=0)
        _, played = await in_thread(self._store.episodes, mine)
        return (environment.seed + played) % 2**31

    async def end(self, request: Request) -> Response:
        """Ends a play."""
        person = await self._people.required(request, May.PLAY)
        play = self._plays.find(request.path_params["id"], person)
        if play is None:
            raise MissingError("This game does not exist, or has ended.")
        await play.end()
        return answer({})

    async def socket(self, websocket: WebSocket) -> None:
        """Plays."""
        person = await self._people.required(websocket, May.PLAY)
        play = self._plays.find(websocket.path_params["id"], person)
        await self._plays.serve(play, websocket)


def _is_wished(play: Play, study: Study, environment: str | None) -> bool:
    """Whether a play is what a person asks for, and its environment was not edited since."""
    return (
        not play.is_ending
        and play.study.id == study.id
        and play.environment in study.environments
        and environment in (None, "", play.environment.id)
        and play.is_chosen == (bool(environment) or study.assignment is Assignment.CHOICE)
    )
