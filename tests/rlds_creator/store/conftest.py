"""Stores in memory, in a file, and in PostgreSQL: the same tests run on each."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from rlds_creator.model import Environment, EpisodeRecord, EpisodeState, Person, Role, Study
from rlds_creator.store import Store, tables

# The databases of all tests.
DATABASES = ["memory", "file", pytest.param("postgresql", marks=pytest.mark.slow)]


class Clock:
    """A clock that advances a little with each reading."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture(scope="session", params=DATABASES)
def location(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store."""
    if request.param == "memory":
        return "sqlite://"
    if request.param == "file":
        return str(tmp_path_factory.mktemp("store") / "what? 100%.sqlite")
    url: str = request.getfixturevalue("postgresql")()
    return url


@pytest.fixture(scope="session")
def store_and_clock(location: str) -> Iterator[tuple[Store, Clock]]:
    clock = Clock()
    with Store.open(location, clock=clock) as store:
        yield store, clock


@pytest.fixture
def clock(store_and_clock: tuple[Store, Clock]) -> Clock:
    return store_and_clock[1]


@pytest.fixture
def store(store_and_clock: tuple[Store, Clock]) -> Store:
    """An empty store; tests share it, because opening one takes most of the time."""
    store, clock = store_and_clock
    clock.now = 1_700_000_000.0
    with store._writing() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            connection.execute(table.delete())
    return store


@pytest.fixture
def owner(store: Store) -> Person:
    return store.add_person("Olga", Role.OWNER)


@pytest.fixture
def study(store: Store, owner: Person) -> Study:
    environments = tuple(Environment(name=name, family="toy") for name in ("first", "second"))
    return store.save_study(Study(name="Walk", environments=environments), by=owner.id)


@pytest.fixture
def play(store: Store, owner: Person, study: Study) -> Callable[..., EpisodeRecord]:
    """Function that saves an episode."""
    indices = itertools.count()

    def save(**fields: object) -> EpisodeRecord:
        index = next(indices)
        defaults = {
            "id": f"episode{index}",
            "study": study.id,
            "environment": study.environments[0].id,
            "session": "session",
            "person": owner.id,
            "number": index,
            "state": EpisodeState.COMPLETED,
            "num_steps": 10,
            "started": 1000.0 + index,
        }
        return store.save_episode(EpisodeRecord(**{**defaults, **fields}))  # type: ignore[arg-type]

    return save
