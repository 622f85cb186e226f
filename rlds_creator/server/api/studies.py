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
from rlds_creator.server.workers import run_worker
from rlds_creator.store import Store

__all__ = ["StudyRoutes"]

# The maximum number of concurrent tests of environments.
_MAX_TRIALS = 2


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
        self._slots = asyncio.Semaphore(_MAX_TRIALS)

    def routes(self) -> list[BaseRoute]:
        """Returns the routes."""
        return [
            self.route("/api/families", self.families, may=May.MANAGE),
            self.route("/api/environments/test", self.test, "POST", May.MANAGE),
            self.route("/api/studies", self.get_all),
            self.route("/api/studies", self.add, "POST", May.MANAGE),
            self.route("/api/studies/{id}", self.get),
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
        """Creates an environment, and returns its first picture."""
        environment = (await body(request, _Trial)).environment
        if self._trials.take(person.id):
            raise TooManyError("Too many tests. Wait a few seconds, then try again.")
        async with self._slots:
            return await self._test_environment(environment)

    async def _test_environment(self, environment: Environment) -> dict[str, Any]:
        outcome: dict[str, Any] = {"ok": False, "error": "", "picture": None}
        outcome |= {"controls": [], "cameras": []}

        def handle(message: dict[str, Any] | bytes) -> bool:
            if isinstance(message, bytes):
                frame = Frame.decode(message)
                picture = base64.b64encode(frame.picture).decode()
                outcome.update(ok=True, picture=f"data:image/{frame.codec};base64,{picture}")
            elif message["op"] == "ready":
                outcome.update(controls=message["controls"], cameras=message["cameras"])
            elif message["op"] == "error" and message["fatal"]:
                outcome.update(error=without_folders(message["message"]))
            return bool(outcome["ok"] or outcome["error"])

        ids = dict.fromkeys(("agent_id", "study_id", "env_id"), "")
        with tempfile.TemporaryDirectory() as directory:
            message = {"op": "start", "directory": directory, **ids}
            message["environment"] = msgspec.to_builtins(environment)
            try:
                python = self.interpreters.path(environment.interpreter)
                end_reason = await run_worker(self.create_worker, python, message, handle)
            except ServerError as error:
                outcome["error"] = str(error)
            else:
                if end_reason == "hung":
                    outcome["error"] = "The environment did not start in time."
                elif end_reason:
                    outcome["error"] = "The process of the environment ended unexpectedly."
        return outcome

    async def get_all(self, request: Request, person: Person) -> Any:
        """Returns the studies that a person may see, with their progress."""
        studies = await in_thread(self.store.studies)
        studies = [study for study in studies if sees_study(person, study)]
        counts = await in_thread(self.store.counts, [study.id for study in studies], person.id)
        as_dict = msgspec.structs.asdict
        rows = (as_dict(_redact(person, study)) | as_dict(counts[study.id]) for study in studies)
        return {"studies": [*rows]}

    async def add(self, request: Request, person: Person) -> Any:
        """Adds a study."""
        study = msgspec.structs.replace(await body(request, Study), id="", version=0)
        return await in_thread(self.store.save_study, study, by=person.id)

    async def get(self, request: Request, person: Person) -> Any:
        """Returns a study."""
        study = await find_visible_study(self.store, person, request.path_params["id"])
        return _redact(person, study)

    async def change(self, request: Request, person: Person) -> Any:
        """Changes a study."""
        study = msgspec.structs.replace(await body(request, Study), id=request.path_params["id"])
        return await in_thread(self.store.save_study, study, by=person.id)

    async def delete(self, request: Request, person: Person) -> Any:
        """Deletes a study and its episodes."""
        study = request.path_params["id"]
        ids = await in_thread(self.recordings.delete_study, study)
        await self.plays.end_plays(study=study)
        return {"deleted": len(ids)}

    async def set_state(self, request: Request, person: Person) -> Any:
        """Enables or disables a study."""
        content, identifier = await body(request, _State), request.path_params["id"]
        return await in_thread(self.store.set_study_state, identifier, content.state)

    async def agree(self, request: Request, person: Person) -> Any:
        """Stores the consent of a person to a study."""
        content = await body(request, _Consent)
        study = await find_visible_study(self.store, person, request.path_params["id"])
        return await in_thread(self.store.agree, study.id, person.id, content.text)

    async def consents(self, request: Request, person: Person) -> Any:
        """Returns the consents to a study, with persons, texts and times."""
        page, study = query(request, _Page), request.path_params["id"]
        return await in_thread(self.store.consents, study, offset=page.offset, limit=page.limit)

    async def statistics(self, request: Request, person: Person) -> Any:
        """Returns the statistics of a study: episodes, steps and success."""
        return await in_thread(self.store.statistics, request.path_params["id"])


async def find_visible_study(store: Store, person: Person, study_id: str) -> Study:
    """Returns a study that a person may see.

    Raises:
      MissingError: The study does not exist, or the person may not see it.
      ForbiddenError: The study of a participant is not enabled.
    """
    study = await in_thread(store.study, study_id)
    if not sees_study(person, study):
        if person.study == study.id:
            raise ForbiddenError(
                "This study is closed. Ask the person who invited you.", code="not_enabled"
            )
        raise MissingError("This study does not exist. It may have been deleted.")
    return study


def _redact(person: Person, study: Study) -> Study:
    """Returns a study without its description, unless the person may see all studies."""
    if may(person, May.SEE):
        return study
    return msgspec.structs.replace(study, description="")
