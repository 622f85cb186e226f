"""Routes of studies, and of the available environments."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute

from rlds_creator.frames import Frame
from rlds_creator.model import Environment, Person, Study, StudyState, Text
from rlds_creator.server.api.routes import Routes
from rlds_creator.server.bodies import body, query
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
from rlds_creator.server.workers import hear_worker
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

    def __post_init__(self) -> None:
        self._trials = Buckets(10, 0.5)
        self._turns = asyncio.Semaphore(_TRIALS)

    def routes(self) -> list[BaseRoute]:
        """Returns the routes."""
        return [
            self.route("/api/families", self.families, may=May.MANAGE),
            self.route("/api/environments/test", self.test, "POST", May.MANAGE),
            self.route("/api/studies", self.all),
            self.route("/api/studies", self.add, "POST", May.MANAGE),
            self.route("/api/studies/{id}", self.one),
            self.route("/api/studies/{id}", self.change, "PUT", May.MANAGE),
            self.route("/api/studies/{id}", self.delete, "DELETE", May.MANAGE),
            self.route("/api/studies/{id}/state", self.set_state, "POST", May.MANAGE),
            self.route("/api/studies/{id}/consent", self.agree, "POST", May.PLAY),
            self.route("/api/studies/{id}/consents", self.consents, may=May.SEE),
            self.route("/api/studies/{id}/statistics", self.statistics, may=May.SEE),
        ]

    async def families(self, request: Request, person: Person) -> Any:
        """Returns the supported environments of an interpreter, by family."""
        families = await self.interpreters.describe(request.query_params.get("interpreter", ""))
        return {"interpreters": self.interpreters.names, "families": families}

    async def test(self, request: Request, person: Person) -> Any:
        """Makes an environment, and shows its first picture."""
        environment = (await body(request, _Trial)).environment
        if self._trials.take(person.id):
            raise TooManyError("Too many tests. Wait a few seconds, then try again.")
        async with self._turns:
            return await self._try(environment)

    async def _try(self, environment: Environment) -> dict[str, Any]:
        tried: dict[str, Any] = {"ok": False, "error": "", "picture": None}
        tried |= {"controls": [], "cameras": []}

        def hear(message: dict[str, Any] | bytes) -> bool:
            if isinstance(message, bytes):
                frame = Frame.decode(message)
                picture = base64.b64encode(frame.picture).decode()
                tried.update(ok=True, picture=f"data:image/{frame.codec};base64,{picture}")
            elif message["op"] == "ready":
                tried.update(controls=message["controls"], cameras=message["cameras"])
            elif message["op"] == "error" and message["fatal"]:
                tried.update(error=without_folders(message["message"]))
            return bool(tried["ok"] or tried["error"])

        of = dict.fromkeys(("agent_id", "study_id", "env_id"), "")
        with tempfile.TemporaryDirectory() as directory:
            message = {"op": "start", "directory": directory, **of}
            message["environment"] = msgspec.to_builtins(environment)
            try:
                python = self.interpreters.path(environment.interpreter)
                why = await hear_worker(self.make_worker, python, message, hear)
            except ServerError as error:
                tried["error"] = str(error)
            else:
                if why == "hung":
                    tried["error"] = "The environment did not start in time."
                elif why:
                    tried["error"] = "The process of the environment ended unexpectedly."
        return tried

    async def all(self, request: Request, person: Person) -> Any:
        """All studies that a person may know of, and how far they are."""
        studies = [one for one in await in_thread(self.store.studies) if sees_study(person, one)]
        counts = await in_thread(self.store.counts, [one.id for one in studies], person.id)
        as_dict = msgspec.structs.asdict
        shown = [{**as_dict(_for(person, one)), **as_dict(counts[one.id])} for one in studies]
        return {"studies": shown}

    async def add(self, request: Request, person: Person) -> Any:
        """Adds a study."""
        study = msgspec.structs.replace(await body(request, Study), id="", version=0)
        return await in_thread(self.store.save_study, study, by=person.id)

    async def one(self, request: Request, person: Person) -> Any:
        """A study."""
        return _for(person, await seen_study(self.store, person, request.path_params["id"]))

    async def change(self, request: Request, person: Person) -> Any:
        """Changes a study."""
        study = msgspec.structs.replace(await body(request, Study), id=request.path_params["id"])
        return await in_thread(self.store.save_study, study, by=person.id)

    async def delete(self, request: Request, person: Person) -> Any:
        """Deletes a study and its episodes."""
        study = request.path_params["id"]
        ids = await in_thread(self.recordings.delete_study, study)
        await self.plays.end_of(study=study)
        return {"deleted": len(ids)}

    async def set_state(self, request: Request, person: Person) -> Any:
        """Enables or disables a study."""
        content, identifier = await body(request, _State), request.path_params["id"]
        return await in_thread(self.store.set_study_state, identifier, content.state)

    async def agree(self, request: Request, person: Person) -> Any:
        """Keeps that a person agrees to the consent of a study."""
        content = await body(request, _Consent)
        study = await seen_study(self.store, person, request.path_params["id"])
        return await in_thread(self.store.agree, study.id, person.id, content.text)

    async def consents(self, request: Request, person: Person) -> Any:
        """Who agreed to which text of a study, and when."""
        page, identifier = query(request, _Page), request.path_params["id"]
        return await in_thread(
            self.store.consents, identifier, offset=page.offset, limit=page.limit
        )

    async def statistics(self, request: Request, person: Person) -> Any:
        """Returns the statistics of a study: episodes, steps and success."""
        return await in_thread(self.store.statistics, request.path_params["id"])


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
