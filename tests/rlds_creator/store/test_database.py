"""Databases: opening, migration, and use by several threads and processes."""

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import busy_store
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from rlds_creator.model import Role
from rlds_creator.store import InUseError, Store, StoreError, database, tables

# A migration of a later release, for which SQLite copies a table and drops the old one.
LATER_MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "0004"


def upgrade() -> None:
    with op.batch_alter_table("episodes", recreate="always") as table:
        table.add_column(sa.Column("more", sa.Text))
"""


def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    file = tmp_path / "creator.sqlite"
    for mode in (None, 0o644):  # A new file, and one of an earlier release.
        if mode is not None:
            file.chmod(mode)
        with Store.open(file) as store:
            store.add_person("ann", Role.OWNER)
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
            assert modes.keys() >= {file.name, f"{file.name}-wal"}
            assert set(modes.values()) == {0o600}


def test_migrations_create_the_declared_tables(location: str, store: Store) -> None:
    with store._reading() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, tables.metadata) == []
        names = sa.inspect(connection).get_table_names()
    assert {*names} == {"alembic_version", *tables.metadata.tables}


# The tables of tags and verdicts up to version 0003, with rows.
DOWNGRADE_TO_0003 = """
DROP TABLE labels;
CREATE TABLE tags (
  id TEXT NOT NULL PRIMARY KEY, episode TEXT NOT NULL, label TEXT NOT NULL, first BIGINT,
  last BIGINT, author TEXT NOT NULL, created DOUBLE NOT NULL, removed DOUBLE, removed_by TEXT,
  FOREIGN KEY(episode) REFERENCES episodes (id) ON DELETE CASCADE);
CREATE TABLE verdicts (
  id TEXT NOT NULL PRIMARY KEY, episode TEXT NOT NULL, state TEXT NOT NULL, success BOOLEAN,
  author TEXT NOT NULL, created DOUBLE NOT NULL,
  FOREIGN KEY(episode) REFERENCES episodes (id) ON DELETE CASCADE);
INSERT INTO tags VALUES ('t1', 'episode', 'fall', 1, 2, 'anna', 10, 11, 'bao');
INSERT INTO tags VALUES ('t2', 'episode', 'fall', 1, 2, 'anna', 12, NULL, NULL);
INSERT INTO tags VALUES ('t3', 'episode', 'verdict', NULL, NULL, '', 13, NULL, NULL);
INSERT INTO verdicts VALUES ('v1', 'episode', 'completed', 1, 'olga', 20);
INSERT INTO verdicts VALUES ('v2', 'episode', 'rejected', 1, 'anna', 21);
INSERT INTO verdicts VALUES ('v3', 'episode', 'rejected', 0, 'bao', 22);
INSERT INTO verdicts VALUES ('v4', 'episode', 'rejected', NULL, 'bao', 23);
INSERT INTO verdicts VALUES ('v5', 'episode', 'rejected', NULL, 'bao', 24);
UPDATE episodes SET notes = 'odd', state = 'rejected', person = (SELECT id FROM people);
UPDATE alembic_version SET version_num = '0003';
"""
DOWNGRADE_TO_0001 = """
DROP TABLE consents;
ALTER TABLE people DROP study;
ALTER TABLE invites DROP study;
ALTER TABLE episodes DROP is_practice;
ALTER TABLE studies DROP practice;
ALTER TABLE studies DROP consent;
ALTER TABLE studies DROP total_quota;
UPDATE alembic_version SET version_num = '0001';
"""


@pytest.mark.parametrize("release", ["0003", "0001"])
def test_database_of_an_earlier_release_keeps_notes_and_labels(
    release: str, tmp_path: Path
) -> None:
    path = tmp_path / "creator.sqlite"
    with Store.open(path) as store:
        busy_store.fill(store)
        ids = store.episode_ids(busy_store.ALL)
    with sqlite3.connect(path) as connection:
        connection.executescript(DOWNGRADE_TO_0003)
        if release == "0001":
            connection.executescript(f"DROP TABLE verdicts;{DOWNGRADE_TO_0001}")
    connection.close()
    with Store.open(path) as store:
        test_migrations_create_the_declared_tables("", store)
        assert store.episode_ids(busy_store.ALL) == ids
        episode, rows = store.episode("episode"), store.labels("episode", history=True)
        tags = [
            (row.id, row.layer, row.begin, row.end, row.tool) for row in rows if row.type == "flag"
        ]
        assert tags[0] == ("t1", "fall", 1, 3, "rlds create")
        assert tags[1][1:] == ("fall", 1, 3, "rlds create, by bao")
        assert tags[2:] == [
            ("t2", "fall", 1, 3, "rlds create"),
            ("t3", "verdict", None, None, "rlds create"),
        ]
        assert (episode.notes, episode.labels) == ("odd", ("fall", "verdict"))
        labels = {(row.layer, row.value, row.annotator) for row in store.labels("episode")}
        assert ("note", "odd", "") in labels
        if release == "0003":
            assert labels >= {("verdict", "completed", "olga"), ("verdict", "rejected", "anna")}
            assert ("verdict", "rejected", "bao") in labels
            assert not any(layer == "success" for layer, _, _ in labels)
            values = [row.value for row in rows if row.layer == "success"]
            assert sorted(map(str, values)) == ["None", "None", "no", "yes"]
        else:  # It has only the verdict of the player.
            assert ("verdict", "rejected", episode.person) in labels
        store.add_label("episode", "verdict", "completed", by="somebody")
        assert store.labels("episode")[-1].annotator == "somebody"


def test_many_threads_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(Store.open, [tmp_path / "creator.sqlite"] * 8))
    person = stores[0].add_person("Olga", Role.OWNER)
    assert all(store.people() == [person] for store in stores)
    for store in stores:
        store.close()


def test_rows_survive_a_later_release_which_this_one_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "creator.sqlite"
    with Store.open(path) as store:
        busy_store.fill(store)
        ids = store.episode_ids(busy_store.ALL)
        before = store.episode(ids[0]), store.labels(ids[0])
        assert before[1]
    later = tmp_path / "migrations"
    shutil.copytree(database._MIGRATIONS_FOLDER, later)
    (later / "version_9999.py").write_text(LATER_MIGRATION)

    with monkeypatch.context() as patch:
        patch.setattr(database, "_MIGRATIONS_FOLDER", later)
        with Store.open(path) as store:
            assert (store.episode(ids[0]), store.labels(ids[0])) == before
            assert store.delete_episodes(ids) == ids
            with store._reading() as connection:  # Foreign keys are enforced again.
                assert connection.scalar(sa.select(sa.func.count(tables.labels.c.id))) == 0

    with pytest.raises(StoreError, match=r"newer release: its version is 9999, .* up to 0004"):
        Store.open(path)


def test_unusable_databases_raise_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG" * 100)
    for location, message in (
        (tmp_path / "picture.png", "file is not a database"),
        (tmp_path / "missing" / "creator.sqlite", "unable to open"),
        ("creator", "'creator' is neither a URL, such as postgresql:"),
        ("postgresql:/creator", "nor a file that ends in .sqlite, .sqlite3, .db"),
        ("mysql://me@there/creator", "got mysql"),
        ("://creator", "expected a URL"),
        ("postgresql://there:port/creator", "expected a URL"),
        ("postgresql://me:secret@127.0.0.1:1/creator", "cannot be opened"),
    ):
        with pytest.raises(StoreError, match=message) as caught:
            Store.open(location)
        assert "secret" not in str(caught.value)
    assert not Path("creator").exists()


def test_the_location_has_no_password(tmp_path: Path, postgresql: Callable[[], str]) -> None:
    for location in (tmp_path / "lab.db", f"sqlite:///{tmp_path / 'lab.db'}"):
        with Store.open(location) as store:
            assert store.location == str(tmp_path / "lab.db")
    url = postgresql()
    with Store.open(url.replace("tester@", "tester:secret@") + "&password=secret") as store:
        assert store.location == url.partition("?")[0].replace("tester@", "tester:***@")


def test_tables_of_another_program_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()

    with pytest.raises(StoreError, match="people already exists"):
        Store.open(path)

    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert rows == [("people",)]


@pytest.mark.parametrize("database", ["file", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_threads_and_processes_lose_no_change(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    location = str(tmp_path / "creator.sqlite")
    if database == "postgresql":
        location = request.getfixturevalue("postgresql")()
    with Store.open(location) as store:
        token = busy_store.fill(store)
        command = [sys.executable, busy_store.__file__, location, token]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.stdin.write("go\n")
            child.stdin.close()
            busy_store.edit(store, "here", token)
        assert child.returncode == 0
        busy_store.check(store, ["here", "there"])


@pytest.mark.parametrize("database", ["file", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_an_owner_remains_when_two_disable_each_other(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    location = str(tmp_path / "creator.sqlite")
    if database == "postgresql":
        location = request.getfixturevalue("postgresql")()
    with Store.open(location) as first, Store.open(location) as second:
        owners = [first.add_person(name, Role.OWNER) for name in ("Olga", "Otto")]
        barrier = threading.Barrier(2)

        def disable(store: Store, person_id: str) -> bool:
            barrier.wait()
            try:
                return store.change_person(person_id, is_disabled=True).is_disabled
            except InUseError:
                return False

        for _ in range(5):
            with ThreadPoolExecutor(2) as threads:
                results = threads.map(disable, (first, second), (owner.id for owner in owners))
                assert sorted(results) == [False, True]
            for owner in owners:
                first.change_person(owner.id, is_disabled=False)
