"""The files of the pages."""

import gzip
import re

import pytest
from creator_server import answered

from rlds_creator.server.pages import Pages
from rlds_creator.server.security import Application, Hosts


@pytest.fixture
def pages(tmp_path) -> Pages:
    (tmp_path / "modules").mkdir()
    (tmp_path / "index.html").write_text('<script type="module" src="{static}/app.js"></script>')
    (tmp_path / "app.js").write_text('import "./modules/keys.js";\n')
    (tmp_path / "modules" / "keys.js").write_text("export const keys = 1;\n" * 100)
    return Pages(tmp_path)


def test_page_links_files_by_hash_that_browsers_cache(pages, tmp_path) -> None:
    app = Application(pages.routes(), Hosts("127.0.0.1"))
    for address in ("/", "/studies/new", "/play/abc/def", "/enter", "/datasets/cartpole:1.0.0"):
        status, headers, page = answered(app, path=address)
        assert (status, headers["cache-control"]) == (200, "no-cache")
    (script,) = re.findall(rb'src="(.*?)"', page)
    assert script == f"/static/{pages.hash}/app.js".encode()

    status, headers, content = answered(app, path=script.decode())
    assert (status, content) == (200, b'import "./modules/keys.js";\n')
    assert headers["content-type"].startswith("text/javascript")
    assert "immutable" in headers["cache-control"]

    (tmp_path / "app.js").write_text("// Changed.")
    assert Pages(tmp_path).hash != pages.hash


def test_files_are_compressed_for_clients_that_accept_gzip(pages) -> None:
    app = Application(pages.routes(), Hosts("127.0.0.1"))
    keys = f"/static/{pages.hash}/modules/keys.js"
    _, headers, content = answered(app, path=keys, headers={"accept-encoding": "br, gzip"})
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "accept-encoding")
    assert gzip.decompress(content) == answered(app, path=keys)[2] != content


def test_unknown_addresses_return_404(pages) -> None:
    app = Application(pages.routes(), Hosts("127.0.0.1"))
    base = f"/static/{pages.hash}"
    paths = [f"{base}/../pages.py", f"{base}//etc/passwd", f"{base}/modules", f"{base}/index.html"]
    for path in (*paths, "/static/0123/app.js", "/static/app.js", "/api/nothing", "/favicon.ico"):
        status, headers, _ = answered(app, path=path)
        assert (status, headers["content-type"]) == (404, "application/json"), path
