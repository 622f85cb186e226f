"""Routes of episodes: the table, notes, steps and labels."""

from __future__ import annotations

import functools
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute

from rlds_creator.model import EpisodeRecord, EpisodeState, Identifier, Person, Text
from rlds_creator.server.api.routes import Routes
from rlds_creator.server.bodies import body, query
from rlds_creator.server.errors import ConflictError, ForbiddenError, MissingError
from rlds_creator.server.permissions import May, episode_permissions, may, sees_episode
from rlds_creator.server.recorded_labels import RecordedLabels
from rlds_creator.server.requests import in_thread
from rlds_creator.server.viewing_routes import in_thread as read_in_thread
from rlds_creator.server.viewing_routes import routes as viewing_routes
from rlds_creator.store import EpisodeQuery
from rlds_creator.viewing import ViewedEpisode
from rlds_creator.viewing.catalog import link_neighbours

__all__ = ["EpisodeRoutes", "restrict_query"]


class _Ids(msgspec.Struct, forbid_unknown_fields=True):
    ids: Annotated[tuple[Identifier, ...], msgspec.Meta(max_length=10_000)]


class _Notes(msgspec.Struct, forbid_unknown_fields=True):
    notes: Text
    version: int


class EpisodeRoutes(Routes):
    """The routes of episodes."""

    def routes(self) -> list[BaseRoute]:
        """Returns the routes."""
        return [
            self.route("/api/episodes", self.get_all),
            self.route("/api/episodes/delete", self.delete_many, "POST"),
            self.route("/api/episodes/{id}", self.get),
            self.route("/api/episodes/{id}", self.delete, "DELETE"),
            self.route("/api/episodes/{id}/notes", self.set_notes, "PUT", May.TAG),
            *viewing_routes(
                "/api/episodes/{id}/view",
                self._open_view,
                self._create_thumbnail,
                self._open_labels,
                self._describe_page,
            ),
        ]

    async def get_all(self, request: Request, person: Person) -> Any:
        """Returns a page of the table of episodes."""
        episode_query = restrict_query(person, query(request, EpisodeQuery))
        episodes, total = await in_thread(self.store.episodes, episode_query)
        return {"episodes": await in_thread(self._create_rows, person, episodes), "total": total}

    def _create_rows(self, person: Person, episodes: list[EpisodeRecord]) -> list[dict[str, Any]]:
        """Returns episodes with the names of their study, environment and player."""
        studies = {study.id: study.name for study in self.store.studies()}
        environments = {
            (study, environment.id): environment.name
            for study in {episode.study for episode in episodes}
            for environment in self.store.environments(study).values()
        }
        people = {person.id: person.name for person in self.store.people()}
        return [
            {
                **msgspec.structs.asdict(episode),
                "study_name": studies.get(episode.study, ""),
                "environment_name": environments.get((episode.study, episode.environment), ""),
                "person_name": people.get(episode.person, ""),
                "may": episode_permissions(person, episode),
            }
            for episode in episodes
        ]

    async def _find_visible(self, request: Request, person: Person) -> EpisodeRecord:
        episode = await in_thread(self.store.episode, request.path_params["id"])
        if not sees_episode(person, episode):
            raise MissingError("This episode does not exist. It may have been deleted.")
        return episode

    async def _authorize(
        self, request: Request, permission: May | None = None
    ) -> tuple[Person, EpisodeRecord]:
        person = await self.people.require_person(request, permission)
        return person, await self._find_visible(request, person)

    async def get(self, request: Request, person: Person) -> Any:
        """Returns an episode."""
        episode = await self._find_visible(request, person)
        [row] = await in_thread(self._create_rows, person, [episode])
        return row

    async def delete(self, request: Request, person: Person) -> Any:
        """Deletes an episode."""
        episode = await self._find_visible(request, person)
        if May.DELETE not in episode_permissions(person, episode):
            raise ForbiddenError("You may delete only your own episodes.")
        return {"deleted": len(await in_thread(self.recordings.delete, [episode.id]))}

    async def delete_many(self, request: Request, person: Person) -> Any:
        """Deletes episodes, or no episode if one of them may not be deleted."""
        content = await body(request, _Ids)
        if not may(person, May.DELETE):
            own_ids = await in_thread(self.store.episode_ids, EpisodeQuery(person=person.id))
            if not may(person, May.PLAY) or not set(content.ids).issubset(own_ids):
                raise ForbiddenError("You may delete only your own episodes.")
        return {"deleted": len(await in_thread(self.recordings.delete, content.ids))}

    async def set_notes(self, request: Request, person: Person) -> Any:
        """Replaces the notes on an episode."""
        episode = await self._find_visible(request, person)
        content = await body(request, _Notes)
        set_notes = functools.partial(self.store.set_notes, by=person.id)
        changed = await in_thread(set_notes, episode.id, content.notes, content.version)
        await in_thread(self.recordings.annotate, episode.id)
        return changed

    async def _open_labels(self, request: Request) -> RecordedLabels:
        permission = None if request.method in ("GET", "HEAD") else May.TAG
        person, episode = await self._authorize(request, permission)
        return RecordedLabels(self.store, self.recordings, person, episode)

    async def _create_thumbnail(self, request: Request) -> tuple[bytes, str] | None:
        _, episode = await self._authorize(request)
        return await read_in_thread(self.recordings.thumbnail, episode.id)

    async def _open_view(self, request: Request) -> ViewedEpisode:
        _, episode = await self._authorize(request)
        if episode.state is EpisodeState.PLAYING:
            raise ConflictError("This episode is still being played. End it first.", code="playing")
        return await read_in_thread(self.recordings.view, episode.id)

    async def _describe_page(self, request: Request) -> dict[str, Any]:
        """Returns the title of the page of an episode, and the links to its neighbours."""
        person, episode = await self._authorize(request)
        return {
            "title": (await in_thread(self._create_rows, person, [episode]))[0]["environment_name"],
            **await self._find_neighbours(request, person, episode),
        }

    async def _find_neighbours(
        self, request: Request, person: Person, episode: EpisodeRecord
    ) -> dict[str, Any]:
        """Returns the pages of the previous and the next episode, in the list of the request.

        "place" is the number of episodes before it in the list, "listed" the query of the list. By
        default it is the list of the episodes of the study.
        """
        names = EpisodeQuery.__struct_fields__
        params = {name: value for name, value in request.query_params.items() if name in names}
        list_query = EpisodeQuery(study=episode.study, sort="started")
        if params:
            list_query = query(request, EpisodeQuery)
        ids = await in_thread(self.store.episode_ids, restrict_query(person, list_query))
        position = ids.index(episode.id) if episode.id in ids else len(ids)
        pages = link_neighbours(ids, position, position + 1, "/replay/{}".format, urlencode(params))
        filters: dict[str, Any] = params or {"study": list_query.study, "sort": list_query.sort}
        return {**pages, "place": position if episode.id in ids else None, "listed": filters}


def restrict_query(person: Person, episode_query: EpisodeQuery) -> EpisodeQuery:
    """Returns a query restricted to the episodes that a person may see."""
    if may(person, May.SEE):
        return episode_query
    if episode_query.person not in (None, person.id) or not may(person, May.PLAY):
        raise ForbiddenError("You may see only your own episodes.")
    return msgspec.structs.replace(episode_query, person=person.id)
