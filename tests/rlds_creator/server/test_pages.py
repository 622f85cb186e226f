"""The files of the pages."""

import gzip
import re

import pytest
from creator_server import answered

from rlds_creator.server.pages import Pages
from rlds_creator.server.security import Application, Hosts


@pytest.fixture
def pages(tmp_path) -> Pages:
    (tmp_path / "parts").mkdir()
    (tmp_path / "index.html").write_text('<script type="module" src="{static}/app.js"></script>')
    (tmp_path / "app.js").write_text('import "./parts/keys.js";\n')
    (tmp_path / "parts" / "keys.js").write_text("export const keys = 1;\n" * 100)
    (tmp_path / "icon.png").write_bytes(b"\x89PNG")
    return Pages(tmp_path)


def test_the_page_names_the_files_and_they_never_change(pages, tmp_path) -> None:
    app = Application(pages.routes(), Hosts("127.0.0.1"))
    for address in ("/", "/studies/new", "/play/abc/def", "/enter", "/datasets/cartpole:1.0.0"):
        status, headers, page = answered(app, path=address)
        assert (status, headers["cache-control"]) == (200, "no-cache")
    (script,) = re.findall(rb'src="(.*?)"', page)
    assert script == f"/static/{pages.hash}/app.js".encode()

    status, headers, content = answered(app, path=script.decode())
    assert (status, content) == (200, b'import "./parts/keys.js";\n')
    assert headers["content-type"].startswith("text/javascript")
    assert "immutable" in headers["cache-control"]

    (tmp_path / "app.js").write_text("// Changed.")
    assert Pages(tmp_path).hash != pages.hash


def test_files_are_compressed_for_who_understands_it(pages) -> None:
    app = Application(pages.routes(), Hosts("127.0.0.1"))
    keys = f"/static/{pages.hash}/parts/keys.js"
    _, headers, content = answered(app, path=keys, headers={"accept-encoding": "br, gzip"})
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "accept-encoding")
    assert gzip.decompress(content) == answered(app, path=keys)[2] != content
    icon = f"/static/{pages.hash}/icon.png"
    _, headers, content = answered(app, path=icon, headers={"accept-encoding": "gzip"})
    assert (content, headers["content-type"]) == (b"\x89PNG", "image/png")
    assert "content-encoding" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/{hash}/../pages.py",
        "/static/{hash}//etc/passwd",
        "/static/{hash}/parts",
        "/static/{hash}/index.html",
        "/static/0123/app.js",
        "/static/app.js",
        "/static",
        "/api",
        "/api/nothing",
        "/favicon.ico",
    ],
)
def test_there_is_nothing_else(pages, path) -> None:
    app = Application(pages.routes(), Hosts("127.0.0.1"))
    status, headers, _ = answered(app, path=path.format(hash=pages.hash))
    assert status == 404
    assert headers["content-type"] == "application/json"


def test_the_files_of_the_package_are_there() -> None:
    app = Application((pages := Pages()).routes(), Hosts("127.0.0.1"))
    status, headers, _ = answered(app, path=f"/static/{pages.hash}/vendor/preact.js")
    assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
