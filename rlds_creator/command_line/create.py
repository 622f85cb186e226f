"""`rlds create`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

import click

from rlds_creator.command_line.serving import serving_options
from rlds_ecosystem import import_extra
from rlds_tools.command_line.printing import Command, invocation, option


def _parse_interpreters(
    ctx: click.Context, param: click.Parameter, values: Iterable[str]
) -> Mapping[str, str]:
    pythons: dict[str, str] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not name or not equals or len(name) > 64:
            raise click.BadParameter(f"got {value!r}, expected NAME=PYTHON.", ctx, param)
        python = shutil.which(os.path.expanduser(path))
        if python is None:
            raise click.BadParameter(f"the program {path!r} does not exist.", ctx, param)
        pythons[name] = os.path.abspath(python)
    return pythons


@click.command(cls=Command)
@click.argument("directory", metavar="[DIRECTORY]", default="recordings")
@option(
    "--database URL",
    "Database of studies, people and tags: postgresql://USER:PASSWORD@HOST/NAME, or an SQLite "
    "file, such as lab.sqlite. Default: creator.sqlite in DIRECTORY.",
    default="",
)
@option(
    "--interpreter interpreters NAME=PYTHON...",
    "Another Python, for environments whose packages conflict with this one's. Studies select it "
    "by NAME.",
    callback=_parse_interpreters,
)
@option(
    "--max-players N",
    "Maximum number of people who play at the same time.",
    type=click.IntRange(1),
    default=16,
    show_default=True,
)
@option("--behind-proxy", "Serve behind an HTTPS proxy on this machine.")
@option("--login", "Require invitations also on this machine's address.")
@option("--invite", "Print an invitation for another owner.")
@serving_options(
    port=8000,
    host="On an address that other machines can reach, such as 0.0.0.0, people need an "
    "invitation; the first start prints one for you.",
    allowed_host=" Invitations use the first one.",
    verbose="the log of the server",
)
def command(
    directory: str,
    port: int,
    host: str,
    opens_browser: bool | None,
    database: str,
    interpreters: Mapping[str, str],
    max_players: int,
    allowed_hosts: Sequence[str],
    behind_proxy: bool,
    login: bool,
    invite: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Record people who play environments in the browser.

    Each episode becomes an EnvLogger log in DIRECTORY/episodes; DIRECTORY is `recordings` by
    default. Export episodes as a dataset in the pages, or with `rlds export`. The first start
    creates sample studies. Ctrl-C stops the server, and records running episodes up to their last
    step.

    Examples:
      rlds create recordings --interpreter robosuite=venvs/robosuite/bin/python
      rlds create lab --host 0.0.0.0 --allowed-host lab.example.org --behind-proxy
    """
    command_line = invocation()
    command_line.quiet, command_line.verbose = quiet, verbose
    if sys.platform == "win32":  # Windows cannot pass sockets to workers.
        raise RuntimeError("`rlds create` needs Linux or macOS. On Windows, run it in WSL.")
    for module in ("msgspec", "sqlalchemy", "alembic", "starlette", "uvicorn", "websockets"):
        import_extra(module)
    if database.startswith("postgres"):
        import_extra("psycopg")
    from rlds_creator.server import running
    from rlds_creator.server.app import ServerSettings, creator
    from rlds_creator.server.directory import DataDirectory
    from rlds_creator.server.plays import Limits
    from rlds_creator.server.security import Hosts, is_loopback

    with running.listen(host, port) as listener:
        address = running.address_of(listener)
        name = allowed_hosts[0] if allowed_hosts else ""
        if behind_proxy:
            address = f"https://{name or 'localhost'}"
        elif name:
            address = f"http://{name}:{listener.getsockname()[1]}"
        settings = ServerSettings(
            address=address,
            hosts=Hosts(host, allowed_hosts),
            is_single_user=is_loopback(host) and not behind_proxy and not login,
            is_secure=behind_proxy,
            interpreters=interpreters,
            limits=Limits(players=max_players),
        )
        with creator(DataDirectory(directory), database, settings) as server:
            link = address
            if not settings.is_single_user and (invite or server.needs_owner()):
                link = server.invite_owner()
            if not quiet:
                if database:
                    click.echo(f"database {server.store.location}")
                for line in server.summary():
                    click.echo(line)
            running.serve(
                server.app,
                listener,
                link,
                opens_browser=opens_browser,
                quiet=quiet,
                behind_proxy=behind_proxy,
                verbose=verbose,
            )
