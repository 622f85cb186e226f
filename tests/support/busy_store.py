"""Threads that edit one store, and a check of the result.

python busy_store.py URL TOKEN    waits for a line of input, and edits in this process
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec

from rlds_creator.model import Environment, EpisodeRecord, EpisodeState, Role, Study
from rlds_creator.store import EpisodeQuery, StaleError, Store

NUM_THREADS = 3
NUM_EDITS = 3
NUM_USES = 1000
ALL = EpisodeQuery()


def fill(store: Store) -> str:
    """Adds a study and an episode with a tag; returns the token of an invite."""
    owner = store.add_person("Olga", Role.OWNER)
    study = store.save_study(Study(name="Walk", environments=(Environment(name="a", family="b"),)))
    episode = EpisodeRecord(
        id="episode",
        study=study.id,
        environment=study.environments[0].id,
        session="session",
        person=owner.id,
        number=0,
        state=EpisodeState.COMPLETED,
        num_steps=NUM_EDITS,
    )
    store.save_episode(episode)
    store.add_label(episode.id, "first")
    return store.invite(Role.PARTICIPANT, uses=NUM_USES)[1]


def edit(store: Store, process: str, token: str) -> None:
    """Edits in several threads the records that all processes edit."""
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        names = [f"{process}{thread}" for thread in range(NUM_THREADS)]
        list(threads.map(lambda name: _edit(store, name, token), names))


def _edit(store: Store, name: str, token: str) -> None:
    (study,) = store.studies()
    episode = store.episode("episode")
    for index in range(NUM_EDITS):
        word = f"{name}-{index} "
        while True:
            try:
                episode = store.set_notes(episode.id, episode.notes + word, episode.version)
                break
            except StaleError as error:
                episode = error.current
        while True:
            try:
                longer_study = msgspec.structs.replace(study, description=study.description + word)
                study = store.save_study(longer_study)
                break
            except StaleError as error:
                study = error.current
        rows = {"begin": index, "end": index + 1}
        store.add_label(episode.id, "same", **rows, by=name)
        own = store.add_label(episode.id, name, **rows, by=name)
        store.retract_label(own.id)
        if index % 2:
            store.restore_label(own.id)
        person, login = store.accept_invite(token, word)
        assert store.person_of(login) == person
        store.save_episode(episode)


def check(store: Store, processes: list[str]) -> None:
    """Fails if an edit is lost, or was done twice."""
    names = [f"{process}{thread}" for process in processes for thread in range(NUM_THREADS)]
    words = sorted(f"{name}-{index}" for name in names for index in range(NUM_EDITS))
    episode = store.episode("episode")
    assert sorted(episode.notes.split()) == words
    assert episode.version == len(words)
    (study,) = store.studies()
    assert sorted(study.description.split()) == words
    assert study.version == 1 + len(words)
    assert sorted(person.name.strip() for person in store.people()) == sorted(["Olga", *words])
    (invite,) = store.invites()
    assert invite.uses_left == NUM_USES - len(words)
    labels = store.labels("episode")
    tags = sorted((label.layer, label.begin) for label in labels if label.begin is not None)
    remaining_tags = [(name, index) for name in names for index in range(1, NUM_EDITS, 2)]
    assert tags == sorted([*remaining_tags, *(("same", index) for index in range(NUM_EDITS))])


def _main(url: str, token: str) -> None:
    with Store.open(url) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        edit(store, "there", token)


if __name__ == "__main__":
    _main(*sys.argv[1:])
