"""`rlds create`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

import click

from rlds_ecosystem import import_extra
from rlds_tools.command_line.printing import invocation

EXAMPLES = """\b
Examples:
  rlds create recordings --interpreter robosuite=venvs/robosuite/bin/python
  rlds create lab --host 0.0.0.0 --allowed-host lab.example.org --behind-proxy
"""


def _interpreters(
    ctx: click.Context, param: click.Parameter, values: Iterable[str]
) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not name or not equals or len(name) > 64:
            raise click.BadParameter(f"expected NAME=PYTHON, got {value!r}.", ctx, param)
        python = shutil.which(os.path.expanduser(path))
        if python is None:
            raise click.BadParameter(f"there is no program {path!r}.", ctx, param)
        found[name] = os.path.abspath(python)
    return found


@click.command(epilog=EXAMPLES)
@click.argument("directory", metavar="[DIRECTORY]", default="recordings")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    metavar="N",
    help="The port to serve on; 0 for any that is free.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The address to serve on. With any but this machine's own, such as 0.0.0.0, people need "
    "an invite to enter; the first start prints one for you.",
)
@click.option(
    "--open/--no-open",
    "opens",
    default=None,
    help="Whether to open the page in a browser; by default, if there is a screen.",
)
@click.option(
    "--database",
    metavar="URL",
    default="",
    help="Where studies, people and tags are: postgresql://USER:PASSWORD@HOST/NAME. By default in "
    "a file in DIRECTORY.",
)
@click.option(
    "--interpreter",
    "interpreters",
    metavar="NAME=PYTHON",
    multiple=True,
    callback=_interpreters,
    help="Another Python for environments whose packages do not go with those of this one. "
    "Environments of studies name it. May be given several times.",
)
@click.option(
    "--max-players",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    metavar="N",
    help="How many people may play at the same time.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="Another name by which browsers know this machine. May be given several times; the first "
    "one is that in invites.",
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Browsers reach this by https, through a proxy on this machine.",
)
@click.option(
    "--login", is_flag=True, help="Have people enter by invites, on this machine's own address too."
)
@click.option("--invite", is_flag=True, help="Print an invite for one more owner.")
@click.option("-q", "--quiet", is_flag=True, help="Print the address only.")
@click.option("-v", "--verbose", is_flag=True, help="Show what happens, and tracebacks.")
def command(
    directory: str,
    port: int,
    host: str,
    opens: bool | None,
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
    """Have people play environments in the browser, and record what they do.

    Each episode becomes a log of EnvLogger in DIRECTORY/episodes, which `rlds export` makes
    datasets of; the pages do so too. By default, DIRECTORY is `recordings`. The first start makes
    studies to try. Ctrl-C ends the server: episodes that are being played are recorded up to their
    last step.
    """
    called = invocation()
    called.quiet, called.verbose = quiet, verbose
    if sys.platform == "win32":  # Processes there cannot be limited, nor be given sockets.
        raise RuntimeError("`rlds create` needs Linux or macOS; on Windows it runs in WSL")
    for module in ("msgspec", "sqlalchemy", "alembic", "starlette", "uvicorn", "websockets"):
        import_extra(module)
    if database.startswith("postgres"):
        import_extra("psycopg")
    from rlds_creator.server import running
    from rlds_creator.server.app import Settings, creator
    from rlds_creator.server.directory import DataDirectory
    from rlds_creator.server.plays import Limits
    from rlds_creator.server.security import Hosts, is_loopback
    from rlds_creator.store import StoreError

    with running.bound(host, port) as listener:
        address = running.address_of(listener)
        name = allowed_hosts[0] if allowed_hosts else ""
        if behind_proxy:
            address = f"https://{name or 'localhost'}"
        elif name:
            address = f"http://{name}:{listener.getsockname()[1]}"
        settings = Settings(
            address=address,
            hosts=Hosts(host, allowed_hosts),
            is_single_user=is_loopback(host) and not behind_proxy and not login,
            is_secure=behind_proxy,
            interpreters=interpreters,
            limits=Limits(players=max_players),
        )
        with contextlib.ExitStack() as opened:
            try:
                server = opened.enter_context(creator(DataDirectory(directory), database, settings))
            except StoreError as error:
                raise RuntimeError(str(error)) from error
            link = address
            if not settings.is_single_user and (invite or server.needs_owner()):
                link = server.invite_owner()
            if not quiet:
                for line in server.summary():
                    click.echo(line)
            running.serve(
                server.app,
                listener,
                when_ready=lambda: click.echo(link if quiet else f"{link}   (Ctrl-C ends it)"),
                opens=link if (running.wants_browser() if opens is None else opens) else None,
                behind_proxy=behind_proxy,
                verbose=verbose,
            )
