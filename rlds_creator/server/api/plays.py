"""Routes of plays: start, end, and the WebSocket of the page."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from rlds_creator.model import Assignment, Environment, Person, Study, StudyState
from rlds_creator.server.api.routes import Routes
from rlds_creator.server.api.studies import find_visible_study
from rlds_creator.server.bodies import body
from rlds_creator.server.errors import BadRequestError, ForbiddenError, MissingError
from rlds_creator.server.permissions import May, may
from rlds_creator.server.plays import EpisodePlan, Play
from rlds_creator.server.requests import in_thread
from rlds_creator.store import EpisodeQuery

__all__ = ["PlayRoutes"]

_Id = Annotated[str, msgspec.Meta(max_length=64)]


class _PlayRequest(msgspec.Struct, forbid_unknown_fields=True):
    study: _Id
    environment: _Id | None = None


class PlayRoutes(Routes):
    """The routes of players."""

    def routes(self) -> list[BaseRoute]:
        """Returns the routes."""
        return [
            self.route("/api/plays", self.begin, "POST", May.PLAY),
            self.route("/api/plays/{id}", self.end, "DELETE", May.PLAY),
            WebSocketRoute("/api/plays/{id}", self.socket),
        ]

    async def begin(self, request: Request, person: Person) -> Any:
        """Starts a play, or continues the running play of the person."""
        content = await body(request, _PlayRequest)
        study = await find_visible_study(self.store, person, content.study)
        if study.state is not StudyState.ENABLED and not may(person, May.MANAGE):
            raise ForbiddenError("This study is not enabled. Ask its owner.", code="not_enabled")
        counts = await in_thread(self.store.counts, [study.id], person.id)
        if study.consent and counts[study.id].agreed is None:
            text = "Read the consent text on the page of the study, and agree to it."
            raise ForbiddenError(text, code="consent")
        async with self.plays.lock(person):
            play = self.plays.current_play(person)
            if play is None or not _is_requested(play, study, content.environment):
                play = await self._begin_play(person, study, content.environment)
        return play.describe()

    async def _begin_play(self, person: Person, study: Study, requested: str | None) -> Play:
        self.plays.check_capacity(person)
        requested = requested or None
        is_assigned = study.assignment is not Assignment.CHOICE and len(study.environments) > 1
        if requested and is_assigned and not may(person, May.MANAGE):
            raise BadRequestError("This study chooses the environment for you.")

        async def choose() -> EpisodePlan:
            ids = study.id, person.id, requested
            environment = await in_thread(self.store.choose_environment, *ids)
            return EpisodePlan(
                environment,
                self.interpreters.path(environment.interpreter),
                await self._seed(person, study, environment),
            )

        agent_id = self.data.agent_id(person.id, study.id)
        return await self.plays.start(
            person, study, choose, agent_id=agent_id, is_chosen=requested is not None
        )

    async def _seed(self, person: Person, study: Study, environment: Environment) -> int | None:
        if environment.seed is None:
            return None
        query = EpisodeQuery(study=study.id, environment=environment.id, person=person.id, limit=0)
        _, num_played = await in_thread(self.store.episodes, query)
        return (environment.seed + num_played) % 2**31

    async def end(self, request: Request, person: Person) -> Any:
        """Ends a play and waits until its episodes are stored."""
        play = self.plays.find(request.path_params["id"], person)
        if play is None:
            raise MissingError("This game does not exist, or has ended.")
        await play.end()
        return {}

    async def socket(self, websocket: WebSocket) -> None:
        """Serves the WebSocket of a play."""
        person = await self.people.require_person(websocket, May.PLAY)
        play = self.plays.find(websocket.path_params["id"], person)
        await self.plays.serve(play, websocket)


def _is_requested(play: Play, study: Study, environment: str | None) -> bool:
    """True if a play has the requested environment, and the environment has not been edited."""
    return (
        not play.is_ending
        and play.study.id == study.id
        and play.environment in study.environments
        and environment in (None, "", play.environment.id)
        and play.is_chosen == (bool(environment) or study.assignment is Assignment.CHOICE)
    )
