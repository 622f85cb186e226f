"""The routes by which pages look at episodes and datasets."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlds.sources import SourceError
from rlds_creator.server import errors
from rlds_creator.server.bodies import answer
from rlds_creator.server.errors import without_folders
from rlds_creator.viewing import EpisodeView, Shelf
from rlds_ecosystem.errors import EnvLoggerError

__all__ = ["dataset_routes", "in_thread", "routes"]

T = TypeVar("T")

# How many requests read at a time: what they read is on one disk, and takes memory.
_THREADS = 4
_MOST_SIDE = 4096
# How long a request may wait for the rewards of a long log.
_MOST_SECONDS = 5


class DamagedError(errors.ServerError):
    """What is stored cannot be read."""

    status = 422
    code = "damaged"


def routes(
    base: str,
    locate: Callable[[Request], Awaitable[EpisodeView]],
    more: Callable[[Request], Awaitable[Mapping[str, Any]]] | None = None,
) -> list[Route]:
    """Returns the routes of an episode: its outline, steps, pictures and curves.

    Args:
      base: The address of the outline, such as "/api/episodes/{id}/view".
      locate: Finds the episode of a request. It raises a `ServerError` if there is none, or if who
        asks may not see it.
      more: What else the outline has, such as tags.
    """

    async def outline(request: Request) -> Response:
        view, seconds = await locate(request), _query(request, "wait", 0, _MOST_SECONDS)
        found = await (
            in_thread(view.outline) if seconds is None else in_thread(view.outline, seconds)
        )
        return answer({**found, **(await more(request) if more else {})})

    async def step(request: Request) -> Response:
        view, number = await locate(request), _number(request, "step")
        return answer(await in_thread(view.step, number))

    async def picture(request: Request) -> Response:
        view, number = await locate(request), _number(request, "step")
        side = _query(request, "side", 1, _MOST_SIDE)
        data, kind = await in_thread(view.picture, number, request.path_params["path"], side)
        keep = f"private, max-age={view.cache_seconds}, immutable"
        return Response(data, media_type=kind, headers={"cache-control": keep})

    async def series(request: Request) -> Response:
        view = await locate(request)
        return answer(await in_thread(view.series, request.path_params["path"]))

    return [
        Route(base, outline),
        Route(f"{base}/steps/{{step}}", step),
        Route(f"{base}/pictures/{{step}}/{{path:path}}", picture),
        Route(f"{base}/series/{{path:path}}", series),
    ]


def dataset_routes(shelf: Shelf) -> list[Route]:
    """Returns the routes of datasets, and of their episodes."""

    async def datasets(request: Request) -> Response:
        return answer(await in_thread(_without_folders_in, shelf))

    async def listing(request: Request) -> Response:
        offset, limit = _query(request, "offset", 0), _query(request, "limit", 0)
        where = request.path_params["dataset"], request.path_params["split"]
        found = await in_thread(shelf.listing, *where, offset or 0, 50 if limit is None else limit)
        for episode in found["episodes"]:
            if "error" in episode:
                episode["error"] = without_folders(episode["error"])
        return answer(found)

    async def locate(request: Request) -> EpisodeView:
        where = request.path_params["dataset"], request.path_params["split"]
        return await in_thread(shelf.view, *where, _number(request, "episode"))

    return [
        Route("/api/datasets", datasets),
        Route("/api/datasets/{dataset}/{split}", listing),
        *routes("/api/datasets/{dataset}/{split}/{episode}/view", locate),
    ]


def _without_folders_in(shelf: Shelf) -> dict[str, Any]:
    found = shelf.datasets()
    for dataset in found["datasets"]:
        if "error" in dataset:
            dataset["error"] = without_folders(dataset["error"])
    return found


_limiter = RunVar[anyio.CapacityLimiter]("_limiter")


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Calls what reads, in a thread; what it raises becomes an error of the server.

    No more than a few threads read at a time; others wait.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_THREADS)
        _limiter.set(limiter)
    try:
        return await anyio.to_thread.run_sync(function, *args, limiter=limiter)
    except (SourceError, EnvLoggerError) as error:
        raise DamagedError(_in_words(error)) from error
    except LookupError as error:
        text = error.args[0] if error.args else "There is no such thing."
        raise errors.NotFoundError(without_folders(str(text))) from error
    except ImportError as error:
        raise errors.UnavailableError(without_folders(str(error))) from error
    except ValueError as error:
        raise DamagedError(without_folders(str(error))) from error


def _in_words(error: Exception) -> str:
    """What is wrong, without the files that it is in: these may be many."""
    if not isinstance(error, SourceError):
        return without_folders(str(error))
    where = [f"episode {error.episode}"] if error.episode is not None else []
    where += [f"row {error.row}"] if error.row is not None else []
    where += [f"field {error.field!r}"] if error.field is not None else []
    return without_folders(": ".join(filter(None, [", ".join(where), error.what])))


def _number(request: Request, name: str) -> int:
    """A number of an address."""
    text = request.path_params[name]
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise errors.NotFoundError(f"There is no {name} {text[:40]!r}.")
    return int(text)


def _query(request: Request, name: str, least: int, most: int = 10**15) -> int | None:
    """A number that a request may have."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,15}", text) or not least <= int(text) <= most:
        raise errors.BadRequestError(f"{name}: expected a number from {least} to {most}.")
    return int(text)
