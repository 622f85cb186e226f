"""Studies, and what their environments can be."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rlds_creator.frames import Frame
from rlds_creator.model import Environment, Person, Study, StudyState, Text
from rlds_creator.server.api.routes import Routes, Services
from rlds_creator.server.bodies import answer, body, query
from rlds_creator.server.errors import (
    ForbiddenError,
    MissingError,
    ServerError,
    TooManyError,
    without_folders,
)
from rlds_creator.server.limits import Buckets
from rlds_creator.server.permissions import May, may, sees_study
from rlds_creator.server.requests import in_thread
from rlds_creator.store import Store

__all__ = ["StudyRoutes"]

# So many environments are tried at a time.
_TRIALS = 2


class _State(msgspec.Struct, forbid_unknown_fields=True):
    state: StudyState


class _Consent(msgspec.Struct, forbid_unknown_fields=True):
    text: Text


class _Page(msgspec.Struct, forbid_unknown_fields=True):
    offset: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50


class _Trial(msgspec.Struct, forbid_unknown_fields=True):
    environment: Environment


class StudyRoutes(Routes):
    """The routes of studies."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._trials = Buckets(10, 0.5)
        self._turns = asyncio.Semaphore(_TRIALS)

    def routes(self) -> list[BaseRoute]:
        """Returns the routes."""
        return [
            Route("/api/families", self.families),
            Route("/api/environments/test", self.test, methods=["POST"]),
            Route("/api/studies", self.all),
            Route("/api/studies", self.add, methods=["POST"]),
            Route("/api/studies/{id}", self.one),
            Route("/api/studies/{id}", self.change, methods=["PUT"]),
            Route("/api/studies/{id}", self.delete, methods=["DELETE"]),
            Route("/api/studies/{id}/state", self.set_state, methods=["POST"]),
            Route("/api/studies/{id}/consent", self.agree, methods=["POST"]),
            Route("/api/studies/{id}/consents", self.consents),
            Route("/api/studies/{id}/statistics", self.statistics),
        ]

    async def families(self, request: Request) -> Response:
        """What environments can be made, in the interpreter of the server or in another one."""
        await self._people.required(request, May.MANAGE)
        families = await self._interpreters.describe(request.query_params.get("interpreter", ""))
        return answer({"interpreters": self._interpreters.names, "families": families})

    async def test(self, request: Request) -> Response:
        """Makes an environment, and shows its first picture."""
        person = await self._people.required(request, May.MANAGE)
        environment = (await body(request, _Trial)).environment
        if self._trials.take(person.id):
            raise TooManyError("Too many tests. Wait a few seconds, then try again.")
        async with self._turns:
            return answer(await self._try(environment))

    async def _try(self, environment: Environment) -> dict[str, Any]:
        tried: dict[str, Any] = {
            "ok": False,
            "error": "",
            "controls": [],
            "cameras": [],
            "picture": None,
        }
        over = asyncio.Event()

        def hear(message: dict[str, Any] | bytes) -> None:
            if isinstance(message, bytes):
                frame = Frame.decode(message)
                picture = base64.b64encode(frame.picture).decode()
                tried.update(ok=True, picture=f"data:image/{frame.codec};base64,{picture}")
                over.set()
            elif message["op"] == "ready":
                tried.update(controls=message["controls"], cameras=message["cameras"])
            elif message["op"] == "error" and message.get("fatal"):
                tried.update(error=without_folders(str(message["message"])))
                over.set()

        def end(why: str) -> None:
            if not tried["ok"] and not tried["error"]:
                tried["error"] = {
                    "hung": "The environment did not start in time.",
                }.get(why, "The process of the environment ended unexpectedly.")
            over.set()

        worker = self._make_worker(hear, end)
        with tempfile.TemporaryDirectory() as directory:
            try:
                await worker.start(
                    self._interpreters.path(environment.interpreter),
                    {
                        "op": "start",
                        "environment": msgspec.to_builtins(environment),
                        "directory": directory,
                        "agent_id": "",
                        "study_id": "",
                        "env_id": "",
                        "next_seed": None,
                    },
                )
                await over.wait()
            except ServerError as error:
                tried["error"] = str(error)
            finally:
                await worker.stop()
        return tried

    async def all(self, request: Request) -> Response:
        """All studies that a person may know of, and how far they are."""
        person = await self._people.required(request)
        studies = [one for one in await in_thread(self._store.studies) if sees_study(person, one)]
        counts = await in_thread(self._store.counts, [one.id for one in studies], person.id)
        return answer(
            {
                "studies": [
                    {
                        **msgspec.structs.asdict(_for(person, one)),
                        **msgspec.structs.asdict(counts[one.id]),
                    }
                    for one in studies
                ]
            }
        )

    async def add(self, request: Request) -> Response:
        """Adds a study."""
        person = await self._people.required(request, May.MANAGE)
        study = msgspec.structs.replace(await body(request, Study), id="", version=0)
        return answer(await in_thread(self._store.save_study, study, by=person.id))

    async def one(self, request: Request) -> Response:
        """A study."""
        person = await self._people.required(request)
        return answer(
            _for(person, await seen_study(self._store, person, request.path_params["id"]))
        )

    async def change(self, request: Request) -> Response:
        """Changes a study."""
        person = await self._people.required(request, May.MANAGE)
        study = msgspec.structs.replace(await body(request, Study), id=request.path_params["id"])
        return answer(await in_thread(self._store.save_study, study, by=person.id))

    async def delete(self, request: Request) -> Response:
        """Deletes a study and its episodes."""
        await self._people.required(request, May.MANAGE)
        study = request.path_params["id"]
        ids = await in_thread(self._recordings.delete_study, study)
        await self._plays.end_of(study=study)
        return answer({"deleted": len(ids)})

    async def set_state(self, request: Request) -> Response:
        """Enables or disables a study."""
        await self._people.required(request, May.MANAGE)
        said = await body(request, _State)
        identifier = request.path_params["id"]
        return answer(await in_thread(self._store.set_study_state, identifier, said.state))

    async def agree(self, request: Request) -> Response:
        """Keeps that a person agrees to the consent of a study."""
        person = await self._people.required(request, May.PLAY)
        said = await body(request, _Consent)
        study = await seen_study(self._store, person, request.path_params["id"])
        return answer(await in_thread(self._store.agree, study.id, person.id, said.text))

    async def consents(self, request: Request) -> Response:
        """Who agreed to which text of a study, and when."""
        await self._people.required(request, May.SEE)
        page = query(request, _Page)
        identifier = request.path_params["id"]
        found = in_thread(self._store.consents, identifier, offset=page.offset, limit=page.limit)
        return answer(await found)

    async def statistics(self, request: Request) -> Response:
        """What was played of a study."""
        await self._people.required(request, May.SEE)
        return answer(await in_thread(self._store.statistics, request.path_params["id"]))


async def seen_study(store: Store, person: Person, study_id: str) -> Study:
    """Returns a study that a person may know of.

    Raises:
      MissingError: There is none.
      ForbiddenError: It is that of a participant, and not enabled.
    """
    study = await in_thread(store.study, study_id)
    if not sees_study(person, study):
        if person.study == study.id:
            raise ForbiddenError("This study is closed. Ask who invited you.", code="not_enabled")
        raise MissingError("This study does not exist. It may have been deleted.")
    return study


def _for(person: Person, study: Study) -> Study:
    """A study as a person sees it: the description is for those who run it."""
    if may(person, May.SEE):
        return study
    return msgspec.structs.replace(study, description="")
