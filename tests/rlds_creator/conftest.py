"""Fixtures: the family "drawn" in child processes, and a PostgreSQL server."""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import drawn_family
import psycopg
import pytest


@pytest.fixture(autouse=True, scope="session")
def _drawn_in_processes() -> Iterator[None]:
    """Child processes find the family "drawn", too."""
    support = str(Path(drawn_family.__file__).parent)
    path = os.pathsep.join(filter(None, [support, os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        yield


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stores labels and thumbnails outside the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLDS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def _find_programs() -> Path | None:
    """Returns the folder of PostgreSQL, which is not in PATH on Debian."""
    initdb = shutil.which("initdb")
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    folders += [Path(initdb).resolve().parent] if initdb else []
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def _unprivileged_user() -> dict[str, int]:
    """Returns the user that runs PostgreSQL, which refuses to run as root."""
    if os.geteuid():
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid}
    pytest.skip("root cannot run PostgreSQL, and there is no other user")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Callable[[], str]]:
    """A temporary server; a call returns the URL of an empty database."""
    programs = _find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    user = _unprivileged_user()
    root = Path(tempfile.mkdtemp(prefix="postgresql-"))
    if user:
        os.chown(root, user["user"], user["group"])
    data = root / "data"

    def run(*command: str) -> None:
        result = subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, check=True, **user)
        assert result.returncode == 0

    try:
        initdb = ("--auth=trust", "--username=tester", "--no-sync", "--encoding=UTF8")
        run(str(programs / "initdb"), "-D", str(data), *initdb, "--locale=C.UTF-8")
        # Without a port, no other server can conflict.
        options = f"-c listen_addresses='' -k {root} -c fsync=off"
        control = (str(programs / "pg_ctl"), "-D", str(data), "-w")
        run(*control, "-l", str(root / "log"), "-o", options, "start")
        indices = itertools.count()

        def make_database() -> str:
            name = f"store{next(indices)}"
            server = f"host={root} user=tester dbname=postgres"
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return f"postgresql://tester@/{name}?host={root}"

        try:
            yield make_database
        finally:
            run(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(root)
