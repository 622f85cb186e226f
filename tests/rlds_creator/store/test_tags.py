"""Tags that are set, taken away and brought back, beside a plain list of them."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rlds_creator.identifiers import new_identifier
from rlds_creator.model import AnnotatedRange, Environment, Episode, EpisodeState, Role, Study
from rlds_creator.store import EpisodeQuery, Store

NUM_STEPS = 4
LABELS = ["fall", "jump", "Jump", "ü"]


class Tags(RuleBasedStateMachine):
    """Two episodes of one store; what is undone is the last thing that was done."""

    store: Store
    episode: Episode
    started = 0.0

    def __init__(self) -> None:
        super().__init__()
        Tags.started += 1.0  # Those before are not found.
        self.ids = [new_identifier() for _ in range(2)]
        for id_ in self.ids:
            new = msgspec.structs.replace(self.episode, id=id_, started=self.started)
            self.store.save_episode(new)
        self.all: dict[str, AnnotatedRange] = {}
        self.there: set[str] = set()
        self.done: list[tuple[Any, str]] = []

    @rule(
        which=st.integers(0, 1),
        label=st.sampled_from(LABELS),
        steps=st.none() | st.lists(st.integers(0, NUM_STEPS - 1), min_size=2, max_size=2),
    )
    def add(self, which: int, label: str, steps: list[int] | None) -> None:
        first, last = sorted(steps) if steps else (None, None)
        key = (self.ids[which], label, first, last)
        same = [id_ for id_ in self.there if self.key(id_) == key]
        tag = self.store.add_tag(*key, by="me")
        if same:
            assert tag in [self.all[id_] for id_ in same]
        else:
            assert tag.id not in self.all
            self.all[tag.id] = tag
            assert self.key(tag.id) == key
            self.there.add(tag.id)
            self.done.append((self.store.remove_tag, tag.id))

    @precondition(lambda self: self.all)
    @rule(data=st.data(), restores=st.booleans())
    def remove_or_restore(self, data: st.DataObject, restores: bool) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.all)))
        back, forth = self.store.remove_tag, self.store.restore_tag
        if restores:
            back, forth = forth, back
        if (id_ in self.there) != restores:
            self.done.append((forth, id_))
        assert back(id_, by="you") == self.all[id_]
        self.mark(id_, restores)

    @precondition(lambda self: self.done)
    @rule()
    def undo(self) -> None:
        action, id_ = self.done.pop()
        assert action(id_, by="me") == self.all[id_]
        self.mark(id_, action == self.store.restore_tag)

    def mark(self, id_: str, is_there: bool) -> None:
        (self.there.add if is_there else self.there.discard)(id_)

    def key(self, id_: str) -> tuple[str, str, int | None, int | None]:
        tag = self.all[id_]
        return tag.episode, tag.label, tag.first, tag.last

    @invariant()
    def the_store_has_the_same(self) -> None:
        expected = [self.all[id_] for id_ in self.there]
        for id_ in self.ids:
            tags = [tag for tag in expected if tag.episode == id_]
            found = self.store.tags(id_)
            assert sorted(found, key=lambda tag: tag.id) == sorted(tags, key=lambda tag: tag.id)
            order = [-1 if tag.first is None else tag.first for tag in found]
            assert order == sorted(order)
        mine = EpisodeQuery(since=self.started)
        labels = {
            id_: tuple(sorted({tag.label for tag in expected if tag.episode == id_}))
            for id_ in self.ids
        }
        found = self.store.episodes(mine)[0]
        assert {episode.id: episode.labels for episode in found} == labels
        fell = {tag.episode for tag in expected if tag.label == "fall"}
        tagged = msgspec.structs.replace(mine, label="fall")
        assert {*self.store.episode_ids(tagged)} == fell


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as opened:
        yield opened


def test_tags_are_those_of_a_plain_list(store: Store) -> None:
    study = store.save_study(Study(name="Walk", environments=(Environment(name="a", family="b"),)))
    Tags.store = store
    Tags.episode = Episode(
        id="any",
        study=study.id,
        environment=study.environments[0].id,
        session="session",
        person=store.add_person("Olga", Role.OWNER).id,
        number=0,
        state=EpisodeState.COMPLETED,
        num_steps=NUM_STEPS,
    )
    test = Tags.TestCase
    test.settings = settings(max_examples=6, stateful_step_count=10)
    test("runTest").runTest()
