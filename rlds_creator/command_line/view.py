"""`rlds view`."""

from __future__ import annotations

import getpass
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rlds_creator.command_line.serving import serving_options
from rlds_ecosystem import import_extra
from rlds_tools.command_line.printing import Command, invocation, opens_source, option, where_option


def _get_login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # The user of a container may have no name.
        return ""


@click.command(cls=Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@option("--episode N", "Episode to show first.", type=click.IntRange(0))
@option("--split TEXT", "Show only this split, or a slice of it.")
@where_option
@option(
    "--by NAME",
    "Annotator of the labels that you add in the page. Default: your login name, or, with --host, "
    "the name that each person enters.",
)
@option("--read-only", "Disable labeling in the page.")
@opens_source
@serving_options(
    port=0,
    host="With 0.0.0.0, other people in the network can open the printed link. Its token gives "
    "access; do not publish it.",
    allowed_host="",
    verbose="messages of libraries",
)
def command(
    paths: Sequence[str],
    episode: int | None,
    split: str | None,
    where: str | None,
    by: str | None,
    read_only: bool,
    format: str | None,
    options: Mapping[str, Any],
    host: str,
    port: int,
    allowed_hosts: Sequence[str],
    opens_browser: bool | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Show episodes in the browser, step by step.

    The page plays cameras as video, draws values and rewards as curves, and shows all fields of a
    step. PATH is a dataset, or a folder of datasets. Data is neither copied nor changed; long
    episodes open at once, as steps are read on demand. Labels of episodes and steps are stored
    next to the data, see `rlds.labels`. Ctrl-C stops the server.

    Examples:
      rlds view data/walker2d --by ann
      rlds view logs/run7 logs/run8 ~/tensorflow_datasets --port 8000 --no-open
    """
    command_line = invocation()
    command_line.quiet, command_line.verbose = quiet, verbose
    for module in ("starlette", "uvicorn", "msgspec"):
        try:
            import_extra(module)
        except ImportError:
            from rlds_ecosystem.files import stores

            for path in paths:  # Missing paths are reported first.
                if not stores.as_path(path).exists():
                    raise FileNotFoundError(f"{path!r} does not exist.") from None
            raise
    from rlds_creator.server import running
    from rlds_creator.server.security import Hosts, is_loopback
    from rlds_creator.server.view_app import view_app
    from rlds_creator.viewing import Catalog

    catalog = Catalog(
        paths, format=format, options=options, split=split, where=where, may_label=not read_only
    )
    page = catalog.page_of(episode) if episode is not None else "/"
    token = "" if is_loopback(host) else secrets.token_urlsafe(24)
    if by is None:
        by = "" if token else _get_login_name()
    with running.listen(host, port) as listener:
        address = running.address_of(listener)
        if token and host in ("0.0.0.0", "::"):  # Other machines need the name.
            name = allowed_hosts[0] if allowed_hosts else socket.gethostname()
            address = f"http://{name}:{listener.getsockname()[1]}"
        link = f"{address}/enter#{token}" if token else f"{address}{page}"
        app = view_app(catalog, Hosts(host, allowed_hosts), token=token, by=by)
        running.serve(app, listener, link, opens_browser=opens_browser, quiet=quiet)
