"""Routes of logins, people and invites."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rlds_creator.model import NewIdentifier, Person, Role
from rlds_creator.server.api.routes import Routes
from rlds_creator.server.bodies import LoginRequest, answer, body
from rlds_creator.server.errors import BadRequestError, LoginError, MissingError, TooManyError
from rlds_creator.server.limits import Buckets
from rlds_creator.server.permissions import ROLES, May, may
from rlds_creator.server.requests import in_thread
from rlds_ecosystem import version

__all__ = ["PeopleRoutes"]

_Name = Annotated[str, msgspec.Meta(max_length=200)]
_DAY_S = 86_400.0


class _Change(msgspec.Struct, forbid_unknown_fields=True):
    role: Role | None = None
    is_disabled: bool | None = None


class _Invitation(msgspec.Struct, forbid_unknown_fields=True):
    role: Role
    name: _Name = ""
    uses: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    days: Annotated[float, msgspec.Meta(gt=0, le=3650)] = 7.0
    study: NewIdentifier = ""


class PeopleRoutes(Routes):
    """The routes of people."""

    def __post_init__(self) -> None:
        self._attempts = Buckets(20, 0.2)

    def routes(self) -> list[BaseRoute]:
        """Returns the routes."""
        return [
            Route("/api/me", self.me),
            Route("/api/enter", self.enter, methods=["POST"]),
            Route("/api/leave", self.leave, methods=["POST"]),
            self.route("/api/people", self.get_all, may=May.PEOPLE),
            self.route("/api/people/{id}", self.change, "PATCH", May.PEOPLE),
            self.route("/api/invites", self.invite, "POST", May.PEOPLE),
            self.route("/api/invites/{id}", self.revoke, "DELETE", May.PEOPLE),
        ]

    async def me(self, request: Request) -> Response:
        """Returns the person who sends the request, and their permissions."""
        person = await self.people.authenticate(request)
        return answer(
            {
                "person": person,
                "may": [permission for permission in May if person and may(person, permission)],
                "mode": "create",
                "single_user": self.people.single_user is not None,
                "version": version(),
            }
        )

    async def enter(self, request: Request) -> Response:
        """Logs in a person with an invite."""
        if self._attempts.take(request.client.host if request.client else ""):
            raise TooManyError("Too many attempts. Wait a minute, then try again.")
        entry = await body(request, LoginRequest)
        try:
            name = entry.name.strip()
            person, token = await in_thread(self.store.accept_invite, entry.token, name)
        except MissingError as error:
            raise LoginError(str(error), code="invite") from None
        except BadRequestError:  # The invite without a name stays valid.
            raise BadRequestError("Please enter your name.", code="name") from None
        response = answer({"person": person})
        self.people.log_in(response, token)
        return response

    async def leave(self, request: Request) -> Response:
        """Ends the login of the browser."""
        response = answer({})
        await self.people.log_out(request, response)
        return response

    async def get_all(self, request: Request, person: Person) -> Any:
        """Returns all people, and the valid invites."""
        people = await in_thread(self.store.people)
        return {"people": people, "invites": await in_thread(self.store.invites)}

    async def change(self, request: Request, person: Person) -> Any:
        """Changes the permissions of a person."""
        change = await body(request, _Change)
        person = await in_thread(
            self.store.change_person, request.path_params["id"], change.role, change.is_disabled
        )
        if person.is_disabled or May.PLAY not in ROLES[person.role]:
            await self.plays.end_plays(person=person.id)
        return person

    async def invite(self, request: Request, person: Person) -> Any:
        """Creates an invite; returns its link."""
        content = await body(request, _Invitation)
        if content.study:
            if content.role is not Role.PARTICIPANT:
                raise BadRequestError("Only participants enter for one study.")
            await in_thread(self.store.study, content.study)
        identifier, token = await in_thread(
            self.store.invite,
            content.role,
            content.name.strip(),
            content.uses,
            time.time() + content.days * _DAY_S,
            person.id,
            content.study,
        )
        return {"id": identifier, "link": f"{self.address}/enter#{token}"}

    async def revoke(self, request: Request, person: Person) -> Any:
        """Revokes an invite."""
        await in_thread(self.store.revoke_invite, request.path_params["id"])
        return {}
