"""HTTP routes of the pages that view and label episodes and datasets."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from rlds.sources import SourceError
from rlds_creator.server import errors
from rlds_creator.server.bodies import answer, body
from rlds_creator.server.errors import without_folders
from rlds_creator.viewing import Catalog, ViewedEpisode
from rlds_creator.viewing.labels import EpisodeLabels, LabelValue, ShownLayer
from rlds_ecosystem.model.errors import EnvLoggerError

__all__ = ["dataset_routes", "in_thread", "routes"]

T = TypeVar("T")

# The maximum number of reading threads, which share one disk and need memory.
_MAX_READ_THREADS = 4
_MAX_PICTURE_SIDE = 4096
_MAX_NAME_LENGTH = 200
_MAX_STRIP_FRAMES = 12
# The seconds that browsers cache a thumbnail.
_THUMBNAIL_CACHE_S = 300
# The maximum wait for the rewards of a long log, in seconds.
_MAX_WAIT_S = 5
# The maximum steps per second of a video.
_MAX_VIDEO_RATE = 10_000


class DamagedError(errors.ServerError):
    """The stored data is damaged."""

    status = 422
    code = "damaged"


def routes(
    base: str,
    find_episode: Callable[[Request], Awaitable[ViewedEpisode]],
    find_thumbnail: Callable[[Request], Awaitable[tuple[bytes, str] | None]],
    find_labels: Callable[[Request], Awaitable[EpisodeLabels]],
    extra_fields: Callable[[Request], Awaitable[Mapping[str, Any]]],
) -> list[Route]:
    """Returns the routes of an episode: its summary, steps, pictures, curves, video and labels.

    Args:
      base: The address of the summary, such as "/api/episodes/{id}/view".
      find_episode: Returns the episode of a request. The function raises a `ServerError` if the
        episode does not exist, or the user may not see it.
      find_thumbnail: Returns the thumbnail of the episode; the errors are those of `find_episode`.
      find_labels: Returns the labels of the episode, or raises a `ServerError`.
      extra_fields: Returns additional fields of the summary.
    """

    async def summary(request: Request) -> Response:
        view, seconds = await find_episode(request), _query_number(request, "wait", 0, _MAX_WAIT_S)
        description = await in_thread(view.summary, *([] if seconds is None else [seconds]))
        return answer({**description, **await extra_fields(request)})

    async def step(request: Request) -> Response:
        view, index = await find_episode(request), _path_index(request, "step")
        return answer(await in_thread(view.step, index))

    async def picture(request: Request) -> Response:
        view, index = await find_episode(request), _path_index(request, "step")
        side = _query_number(request, "side", 1, _MAX_PICTURE_SIDE)
        data, media_type = await in_thread(view.picture, index, request.path_params["path"], side)
        cache_control = f"private, max-age={view.cache_seconds}, immutable"
        return Response(data, media_type=media_type, headers={"cache-control": cache_control})

    async def thumbnail(request: Request) -> Response:
        try:
            image = await find_thumbnail(request)
        except (DamagedError, errors.MissingError):  # The page of the episode shows the error.
            image = None
        if image is None:
            return Response(status_code=204)
        etag = f'"{hashlib.sha256(image[0]).hexdigest()[:32]}"'
        headers = {"cache-control": f"private, max-age={_THUMBNAIL_CACHE_S}", "etag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(image[0], media_type=image[1], headers=headers)

    video_lock = asyncio.Semaphore(1)

    async def video(request: Request) -> Response:
        view, paths = await find_episode(request), request.query_params.getlist("path")
        rate = _parse_rate(request)
        file = tempfile.NamedTemporaryFile(suffix=".mp4")  # noqa: SIM115  Closed after sending.
        async with video_lock:
            await in_thread(view.video, paths, file.name, rate)
        close = BackgroundTask(file.close)
        return FileResponse(file.name, media_type="video/mp4", background=close)

    async def series(request: Request) -> Response:
        view = await find_episode(request)
        return answer(await in_thread(view.series, request.path_params["path"]))

    async def labels(request: Request) -> Response:
        episode_labels = await find_labels(request)
        return answer(await in_thread(_call, episode_labels, _describe_labels, episode_labels))

    async def add_label(request: Request) -> Response:
        episode_labels, label = await _writable_labels(request), await body(request, LabelValue)
        return answer(await in_thread(_call, episode_labels, episode_labels.add, label))

    async def declare(request: Request) -> Response:
        episode_labels, layer = await _writable_labels(request), await body(request, ShownLayer)
        await in_thread(_call, episode_labels, episode_labels.declare, layer)
        return await labels(request)

    async def change_label(request: Request) -> Response:
        episode_labels = await _writable_labels(request)
        change = episode_labels.retract if request.method == "DELETE" else episode_labels.restore
        return answer(await in_thread(_call, episode_labels, change, request.path_params["label"]))

    async def _writable_labels(request: Request) -> EpisodeLabels:
        episode_labels = await find_labels(request)
        if not episode_labels.may_label:
            raise errors.ForbiddenError(episode_labels.why_not or "You may not label episodes.")
        return episode_labels

    return [
        Route(f"{base}/labels", labels),
        Route(f"{base}/labels", add_label, methods=["POST"]),
        Route(f"{base}/labels/{{label}}", change_label, methods=["DELETE", "POST"]),
        Route(f"{base}/layers", declare, methods=["PUT"]),
        Route(base, summary),
        Route(f"{base}/steps/{{step}}", step),
        Route(f"{base}/pictures/{{step}}/{{path:path}}", picture),
        Route(f"{base}/series/{{path:path}}", series),
        Route(f"{base}/thumbnail", thumbnail),
        Route(f"{base}/video", video),
    ]


def _describe_labels(labels: EpisodeLabels) -> dict[str, Any]:
    return {
        "layers": labels.layers(),
        "labels": labels.labels(),
        "adds": labels.adds,
        "may_label": labels.may_label,
        "why_not": labels.why_not,
    }


def _call(labels: EpisodeLabels, method: Callable[..., T], *args: Any) -> T:
    """Calls a method of labels; converts its errors to error responses."""
    try:
        with labels.error_responses():
            return method(*args)
    except SourceError:
        raise
    except ValueError as error:
        raise errors.BadRequestError(without_folders(str(error))) from error
    except OSError as error:
        raise errors.ServiceUnavailableError(without_folders(str(error))) from error


def dataset_routes(catalog: Catalog) -> list[Route]:
    """Returns the routes of datasets, and of their episodes."""

    async def datasets(request: Request) -> Response:
        return answer(_without_folders(await in_thread(catalog.datasets), "datasets"))

    async def listing(request: Request) -> Response:
        offset, limit = _query_number(request, "offset", 0), _query_number(request, "limit", 0)
        limit = 50 if limit is None else limit
        where, sort = _get_filter_and_order(request)
        columns = request.query_params.getlist("columns")
        arguments = (*_get_split(request), offset or 0, limit, where, sort, columns)
        return answer(_without_folders(await in_thread(catalog.listing, *arguments), "episodes"))

    async def columns(request: Request) -> Response:
        return answer(await in_thread(catalog.columns, *_get_split(request)))

    async def find_episode(request: Request) -> ViewedEpisode:
        return await in_thread(catalog.view, *_get_split(request), _path_index(request, "episode"))

    async def find_thumbnail(request: Request) -> tuple[bytes, str] | None:
        index = _path_index(request, "episode")
        frames = _query_number(request, "frames", 1, _MAX_STRIP_FRAMES)
        return await in_thread(catalog.thumbnail, *_get_split(request), index, frames or 1)

    async def find_labels(request: Request) -> EpisodeLabels:
        by = request.query_params.get("by", "").strip()
        if len(by) > _MAX_NAME_LENGTH:
            raise errors.BadRequestError(f"by: expected at most {_MAX_NAME_LENGTH} characters.")
        index = _path_index(request, "episode")
        return await in_thread(catalog.labels, *_get_split(request), index, by)

    async def neighbours(request: Request) -> Mapping[str, Any]:
        index = _path_index(request, "episode")
        filters = _get_filter_and_order(request)
        return await in_thread(catalog.find_neighbours, *_get_split(request), index, *filters)

    return [
        Route("/api/datasets", datasets),
        Route("/api/datasets/{dataset}/{split}", listing),
        Route("/api/datasets/{dataset}/{split}/columns", columns),
        *routes(
            "/api/datasets/{dataset}/{split}/{episode}/view",
            find_episode,
            find_thumbnail,
            find_labels,
            neighbours,
        ),
    ]


def _without_folders(content: dict[str, Any], name: str) -> dict[str, Any]:
    for item in content[name]:
        if "error" in item:
            item["error"] = without_folders(item["error"])
    return content


_limiter = RunVar[anyio.CapacityLimiter]("_limiter")


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Calls a reading function in one of a few threads; its errors become error responses."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MAX_READ_THREADS)
        _limiter.set(limiter)
    try:
        return await anyio.to_thread.run_sync(function, *args, limiter=limiter)
    except (SourceError, EnvLoggerError) as error:
        raise DamagedError(_user_message(error)) from error
    except LookupError as error:
        text = error.args[0] if error.args else "This item does not exist."
        raise errors.MissingError(without_folders(str(text))) from error
    except ImportError as error:
        raise errors.ServiceUnavailableError(without_folders(str(error))) from error
    except ValueError as error:
        raise DamagedError(without_folders(str(error))) from error


def _user_message(error: Exception) -> str:
    """Returns the message of an error, without the folders of files."""
    if not isinstance(error, SourceError):
        return without_folders(str(error))
    field = None if error.field is None else repr(error.field)
    locations = {"episode": error.episode, "row": error.row, "field": field}
    location = ", ".join(f"{key} {value}" for key, value in locations.items() if value is not None)
    return without_folders(": ".join(filter(None, [location, error.problem])))


def _get_filter_and_order(request: Request) -> tuple[str, str]:
    """Returns the filter condition and the sort order of a request."""
    return request.query_params.get("where", "").strip(), request.query_params.get("sort", "")


def _get_split(request: Request) -> tuple[str, str]:
    """Returns the dataset and the split of a request."""
    return request.path_params["dataset"], request.path_params["split"]


def _path_index(request: Request, name: str) -> int:
    """Returns an index in the path of a request."""
    text = request.path_params[name]
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise errors.MissingError(f"There is no {name} {text[:40]!r}.")
    return int(text)


def _query_number(request: Request, name: str, minimum: int, maximum: int = 10**15) -> int | None:
    """Returns an optional number of the query of a request."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,15}", text) or not minimum <= int(text) <= maximum:
        raise errors.BadRequestError(f"{name}: expected a number from {minimum} to {maximum}.")
    return int(text)


def _parse_rate(request: Request) -> float | None:
    """Returns the optional steps per second of a request."""
    text = request.query_params.get("rate")
    if text is None:
        return None
    is_number = re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,20})?", text)
    if not is_number or not 0 < float(text) <= _MAX_VIDEO_RATE:
        raise errors.BadRequestError(f"rate: expected a number up to {_MAX_VIDEO_RATE:,}.")
    return float(text)
