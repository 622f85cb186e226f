"""The static files of the pages: one HTML page, and immutable scripts and style sheets."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rlds_creator.server import errors

__all__ = ["Pages"]

# The placeholder in `index.html` for the folder of the static files.
_STATIC_PLACEHOLDER = b"{static}"

_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Pages:
    """The static files of the pages: HTML, JavaScript and style sheets.

    All files are read once. A request looks up a name in a dict, and never opens a path.

    Attributes:
      hash: The hash of the content of all files. URLs contain the hash, so that browsers may cache
        files forever.
    """

    def __init__(self, directory: Traversable | None = None) -> None:
        """Reads the files of the package, or of another directory."""
        directory = directory or resources.files("rlds_creator").joinpath("static")
        self._files = dict(sorted(_read_files(directory)))
        digest = hashlib.sha256()
        for name, content in self._files.items():
            digest.update(b"%d %s %d " % (len(name), name.encode(), len(content)) + content)
        self.hash = digest.hexdigest()[:16]
        page = self._files.pop("index.html", b"")
        self._page = page.replace(_STATIC_PLACEHOLDER, f"/static/{self.hash}".encode())
        files = self._files.items()
        self._gzip_files = {name: gzip.compress(content, 6, mtime=0) for name, content in files}

    def routes(self) -> list[BaseRoute]:
        """Returns the routes. They must come last, because they match nearly every path."""
        return [
            Route("/static/{hash}/{name:path}", self._file),
            Route("/{address:path}", self._html_page),
        ]

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if request.path_params["hash"] != self.hash or name not in self._files:
            raise errors.MissingError("This file does not exist.")
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        headers["vary"] = "accept-encoding"
        content = self._files[name]
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            content = self._gzip_files[name]
        kind = _MEDIA_TYPES.get(name.rpartition(".")[2], "text/plain")
        return Response(content, headers=headers, media_type=kind)

    async def _html_page(self, request: Request) -> Response:
        address = request.path_params["address"]
        if address.partition("/")[0] in ("api", "static", "favicon.ico", "robots.txt"):
            raise errors.MissingError("This address does not exist.")
        # Browsers must not cache this page, because it has the current URLs of the static files.
        return Response(self._page, headers={"cache-control": "no-cache"}, media_type="text/html")


def _read_files(directory: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _read_files(entry, f"{prefix}{entry.name}/")
        elif not entry.name.startswith("."):
            yield prefix + entry.name, entry.read_bytes()
