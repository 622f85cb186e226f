"""The methods of a store, on every database that it runs on."""

import math
from collections.abc import Callable

import msgspec
import pytest

from rlds_creator.identifiers import is_identifier
from rlds_creator.model import (
    Assignment,
    Environment,
    EpisodeRecord,
    EpisodeState,
    ExportState,
    Mode,
    Person,
    Role,
    Study,
    StudyState,
    StudyTag,
)
from rlds_creator.store import (
    EpisodeQuery,
    InUseError,
    QuotaError,
    RecordNotFoundError,
    StaleError,
    Store,
    StoreError,
    episodes,
)
from rlds_creator.store.records import Counts, EnvironmentStatistics, PersonStatistics

Play = Callable[..., EpisodeRecord]
DAY = 86_400.0
replace = msgspec.structs.replace


def ids_of(store: Store, **query: object) -> list[str]:
    episodes, total = store.episodes(msgspec.convert(query, EpisodeQuery))
    assert total >= len(episodes)
    return [episode.id for episode in episodes]


def test_people_change_and_an_owner_remains(store: Store, owner: Person) -> None:
    viewer = store.add_person("Vera", Role.VIEWER)

    assert is_identifier(viewer.id)
    assert store.people() == [owner, viewer]
    changed = store.change_person(viewer.id, role=Role.ANNOTATOR)
    assert changed == replace(viewer, role=Role.ANNOTATOR)
    assert changed in store.people()
    with pytest.raises(RecordNotFoundError, match="this person does not exist"):
        store.change_person("nobody")
    for change in ({"role": Role.VIEWER}, {"is_disabled": True}):
        with pytest.raises(InUseError, match="Olga"):
            store.change_person(owner.id, **change)
    store.change_person(viewer.id, role=Role.OWNER)
    assert store.change_person(owner.id, is_disabled=True).is_disabled
    with pytest.raises(InUseError, match="Vera"):
        store.change_person(viewer.id, role=Role.ANNOTATOR)


def test_invites_let_people_in_until_used_up_or_revoked(store: Store, owner: Person, clock) -> None:
    single_id, token = store.invite(Role.PARTICIPANT, "Paul", 1, clock.now + DAY, owner.id)
    double_id, shared_token = store.invite(Role.ANNOTATOR, uses=2, by=owner.id)

    invites = store.invites()
    assert [invite.id for invite in invites] == [double_id, single_id]
    assert invites[1].name == "Paul"
    assert invites[1].role is Role.PARTICIPANT
    assert invites[1].creator == owner.id
    assert token not in msgspec.json.encode(invites).decode()

    paul, login = store.accept_invite(token)
    assert (paul.name, paul.role) == ("Paul", Role.PARTICIPANT)
    assert store.person_of(login) == paul
    assert paul in store.people()
    anna, _ = store.accept_invite(shared_token, "Anna")
    assert (anna.name, anna.role) == ("Anna", Role.ANNOTATOR)
    assert [(invite.id, invite.uses_left) for invite in store.invites()] == [(double_id, 1)]

    for invalid_token in (token, "", "guessed", shared_token + "x", "\ud800"):
        with pytest.raises(RecordNotFoundError, match="Ask for a new one"):
            store.accept_invite(invalid_token, "Eve")
    with pytest.raises(StoreError, match="name"):  # An invalid name does not use the invite up.
        store.accept_invite(shared_token, "")
    with pytest.raises(RecordNotFoundError, match="this invite does not exist"):
        store.revoke_invite(single_id)
    store.revoke_invite(double_id)
    with pytest.raises(RecordNotFoundError, match="Ask for a new one"):
        store.accept_invite(shared_token, "Anton")
    assert len(store.people()) == 3

    _, late_token = store.invite(Role.VIEWER, "Vera", uses=5, expires=clock.now + DAY)
    clock.now += 2 * DAY
    assert store.invites() == []
    with pytest.raises(RecordNotFoundError):
        store.accept_invite(late_token)


def test_logins_expire_and_end(store: Store, owner: Person, clock) -> None:
    (anna, desk), (_, phone) = (
        store.accept_invite(store.invite(Role.PARTICIPANT, name)[1]) for name in ("Anna", "Otto")
    )

    clock.now += 29 * DAY
    assert store.person_of(desk) == anna  # The use of a login extends it.
    clock.now += 2 * DAY
    assert store.person_of(desk) == anna
    assert store.person_of(phone) is None
    assert store.person_of("guessed") is None
    store.change_person(anna.id, is_disabled=True)
    assert store.person_of(desk) is None
    store.change_person(anna.id, is_disabled=False)
    assert store.person_of(desk) == anna
    store.end_login(desk)
    store.end_login(desk)
    assert store.person_of(desk) is None


def test_saved_study_is_read_back_unchanged(store: Store, owner: Person) -> None:
    environment = Environment(
        name="Pole «ü» 🎈",
        family="gymnasium",
        options={"id": "CartPole-v1", "nested": [1, 2.5, None, {"deep": True}]},
        instructions="Stay up.",
        mode=Mode.ASYNC,
        fps=30.0,
        max_episode_steps=500,
        seed=7,
        interpreter="other",
        keys={"KeyA": 0},
    )
    new = Study(
        name="Balance",
        description="For us",
        instructions="For you",
        environments=(environment,),
        assignment=Assignment.RANDOM,
        quota=3,
        labels=(
            StudyTag(name="good", key="Digit1", description="When it is"),
            StudyTag(name="bad"),
        ),
    )

    saved = store.save_study(new, by=owner.id)

    assert is_identifier(saved.id)
    assert is_identifier(saved.environments[0].id)
    assert (saved.creator, saved.version) == (owner.id, 1)
    expected = replace(
        new,
        id=saved.id,
        environments=(replace(environment, id=saved.environments[0].id),),
        creator=owner.id,
        created=saved.created,
        version=1,
    )
    assert saved == expected == store.study(saved.id)
    later = store.save_study(Study(name="Later"))
    assert store.studies() == [later, saved]


def test_edits_of_a_study_keep_its_environments(store: Store, study: Study) -> None:
    enabled = store.set_study_state(study.id, StudyState.ENABLED)
    assert enabled == replace(study, state=StudyState.ENABLED)

    first, second = study.environments
    third = Environment(id="of_another", name="third", family="toy")
    edit = replace(
        study, name="Run", environments=(second, third), creator="me", created=1.0, quota=2
    )
    edited = store.save_study(edit, by="somebody")

    assert edited.environments[0] == second
    assert edited.environments[1].id not in {"", "of_another", first.id, second.id}
    new = (second, replace(third, id=edited.environments[1].id))
    assert edited == replace(enabled, name="Run", environments=new, quota=2, version=2)
    assert store.study(study.id) == edited
    assert list(store.environments(study.id)) == [second.id, new[1].id, first.id]

    with pytest.raises(StaleError, match="edited this study") as caught:
        store.save_study(replace(study, name="Jump"))
    assert caught.value.current == edited
    # A removed environment is restored with its identifier.
    restored = store.save_study(replace(edited, environments=(first, *new)))
    assert restored.environments == (first, *new)
    assert list(store.environments(study.id).values()) == list(restored.environments)
    with pytest.raises(StoreError, match="same identifier"):
        store.save_study(replace(restored, environments=(first, first)))
    with pytest.raises(RecordNotFoundError, match="this study does not exist"):
        store.save_study(replace(restored, id="other"))
    assert store.study(study.id) == restored


def test_invalid_values_are_not_stored(store: Store, study: Study, play: Play) -> None:
    for value in ("", "x" * 201, "half \ud800 of it", "NUL \0"):
        with pytest.raises(StoreError):
            store.add_person(value, Role.VIEWER)
        with pytest.raises(StoreError):
            store.save_study(replace(study, name=value))
    for value in ("", "../salt", "-rf", "a/b", "x" * 65, "line\n", "ä"):
        with pytest.raises(StoreError):
            play(id=value)
    assert len(store.people()) == 1
    assert store.studies() == [study]
    assert store.episodes() == ([], 0)


def test_deleting_a_study_deletes_its_episodes(store: Store, study: Study, play: Play) -> None:
    other_study = store.save_study(Study(name="Kept", environments=study.environments))
    other_episode = play(study=other_study.id)
    running = play(state=EpisodeState.PLAYING, number=1)
    completed = play()
    tag = store.add_label(completed.id, "good")

    with pytest.raises(InUseError, match="playing"):
        store.delete_study(study.id)
    assert store.labels(completed.id)[-1] == tag
    running = store.save_episode(replace(running, state=EpisodeState.ABANDONED))
    assert store.delete_study(study.id) == [running.id, completed.id]

    assert store.studies() == [other_study]
    assert store.episodes() == ([other_episode], 1)
    for access in (
        lambda: store.study(study.id),
        lambda: store.delete_study(study.id),
        lambda: store.set_study_state(study.id, StudyState.ENABLED),
        lambda: store.statistics(study.id),
        lambda: store.environments(study.id),
        lambda: store.choose_environment(study.id, "me"),
        lambda: store.episode(completed.id),
        lambda: store.labels(completed.id),
        lambda: store.retract_label(tag.id),
        lambda: play(),
    ):
        with pytest.raises(RecordNotFoundError):
            access()


def test_player_chooses_the_environment(store: Store, study: Study, owner: Person) -> None:
    first, second = study.environments

    assert store.choose_environment(study.id, owner.id, second.id) == second
    with pytest.raises(StoreError, match="choose one"):
        store.choose_environment(study.id, owner.id)
    single = store.save_study(replace(study, environments=(first,)))
    assert store.choose_environment(single.id, owner.id) == first
    with pytest.raises(RecordNotFoundError, match="does not have this environment"):
        store.choose_environment(single.id, owner.id, second.id)
    store.save_study(replace(single, environments=()))
    with pytest.raises(RecordNotFoundError, match="no environments"):
        store.choose_environment(single.id, owner.id)


def test_random_assignment_uses_all_environments(store: Store, study: Study, owner: Person) -> None:
    store.save_study(replace(study, assignment=Assignment.RANDOM))

    chosen = {store.choose_environment(study.id, owner.id).id for _ in range(64)}

    assert chosen == {environment.id for environment in study.environments}
    for environment in study.environments:
        assert store.choose_environment(study.id, owner.id, environment.id) == environment


def test_round_robin_takes_turns(store: Store, study: Study, owner: Person, play: Play) -> None:
    names = ("third", "fourth")
    more = tuple(Environment(name=name, family="toy") for name in names)
    edit = replace(
        study, environments=(*study.environments, *more), assignment=Assignment.ROUND_ROBIN
    )
    study = store.save_study(edit)
    anna = store.add_person("Anna", Role.PARTICIPANT)
    states = [state for state in EpisodeState if state is not EpisodeState.REJECTED]

    turns = []
    for state in [*states, *states]:
        chosen = store.choose_environment(study.id, owner.id)
        turns.append(chosen.name)
        play(environment=chosen.id, state=state)
    assert turns == ["first", "second", "third", "fourth"] * 3
    play(environment=study.environments[0].id, state=EpisodeState.REJECTED)
    play(environment=study.environments[0].id, person=anna.id)
    assert store.choose_environment(study.id, owner.id).name == "first"
    assert store.choose_environment(study.id, anna.id).name == "second"


def test_balanced_assignment_plays_all_environments_equally_often(
    store: Store, study: Study, play: Play
) -> None:
    more = [Environment(name=name, family="gymnasium") for name in ("third", "fourth")]
    edit = replace(
        study, environments=(*study.environments, *more), assignment=Assignment.BALANCED, practice=2
    )
    study = store.save_study(edit)
    orders = set()
    for index in range(6):
        person = store.add_person(f"Person {index}", Role.PARTICIPANT).id
        turns = []
        for _ in range(2 + 8):
            chosen = store.choose_environment(study.id, person)
            assert store.choose_environment(study.id, person) == chosen  # Asking costs no turn.
            turns.append(chosen.name)
            episode = play(environment=chosen.id, person=person, state=EpisodeState.PLAYING)
            assert episode.is_practice == (len(turns) <= 2)
            store.save_episode(replace(episode, state=EpisodeState.COMPLETED))
        assert len(set(turns[:2])) == 2
        for start in (2, 6):  # Practice leaves the balance of the data alone.
            assert sorted(turns[start : start + 4]) == ["first", "fourth", "second", "third"]
        orders.add(tuple(turns[2:6]))
    assert len(orders) > 1


def test_quota_counts_completed_episodes(
    store: Store, study: Study, owner: Person, play: Play
) -> None:
    study = store.save_study(replace(study, quota=2))
    environment = study.environments[0].id
    for state in EpisodeState:
        play(state=state)
    play(person=store.add_person("Anna", Role.PARTICIPANT).id)

    assert store.choose_environment(study.id, owner.id, environment).id == environment
    play()
    with pytest.raises(QuotaError, match="no more episodes of this study"):
        store.choose_environment(study.id, owner.id, environment)


def test_counts_and_statistics_follow_the_episodes(
    store: Store, study: Study, owner: Person, play: Play
) -> None:
    first, second = study.environments
    anna = store.add_person("Anna", Role.PARTICIPANT)
    play(success=True, num_steps=10, total_reward=3.0, seconds=2.0)
    play(success=False, num_steps=20, total_reward=5.0, seconds=3.0, person=anna.id)
    play(total_reward=math.nan, num_steps=1)
    play(state=EpisodeState.CANCELLED, success=True, seconds=7.5, num_steps=100)
    study = store.save_study(replace(study, environments=(second,)))
    empty = store.save_study(Study(name="Empty"))

    assert store.counts([study.id, empty.id], owner.id) == {
        study.id: Counts(num_episodes=4, num_completed=3, mine=2),
        empty.id: Counts(),
    }
    assert store.counts([study.id])[study.id].mine == 0
    assert store.counts([]) == {}
    statistics = store.statistics(study.id)
    assert statistics.environments == (
        EnvironmentStatistics(id=second.id, name="second"),
        EnvironmentStatistics(
            id=first.id,
            name="first",
            episodes=4,
            completed=3,
            success=1,
            steps=28,
            mean_reward=4.0,
        ),
    )
    assert statistics.people == (
        PersonStatistics(person=anna.id, name="Anna", episodes=1, completed=1, seconds=3.0),
        PersonStatistics(person=owner.id, name="Olga", episodes=3, completed=2, seconds=9.5),
    )


def test_reports_of_workers_keep_notes_and_labels(store: Store, study: Study, play: Play) -> None:
    episode = play(state=EpisodeState.PLAYING, num_steps=1, notes="not the worker's", version=5)
    assert (episode.notes, episode.version, episode.labels) == ("", 0, ())
    noted = store.set_notes(episode.id, "odd", 0)
    store.add_label(episode.id, "good")

    report = replace(
        episode,
        session="other",
        state=EpisodeState.FAILED,
        reason="failed",
        success=False,
        num_steps=1_000_000_000_000,
        total_reward=-math.inf,
        seconds=12.5,
        error="it broke",
    )
    saved = store.save_episode(report)

    assert saved == replace(
        report, session=episode.session, notes="odd", version=noted.version, labels=("good",)
    )
    assert store.episode(episode.id) == saved
    store.save_episode(replace(report, total_reward=math.nan))
    assert math.isnan(store.episode(episode.id).total_reward)
    assert store.episodes()[1] == 1
    for field in ("study", "person"):
        with pytest.raises(RecordNotFoundError, match="was deleted"):
            play(**{field: "other"})


def test_delete_episodes_deletes_all_or_none(
    store: Store, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes, "_MAX_STATEMENT_VALUES", 3)
    running = [play(state=state) for state in (EpisodeState.PLAYING, EpisodeState.ENDED)]
    first, second, third = (play().id for _ in range(3))
    tag = store.add_label(first, "good")

    assert store.playing() == running
    for episode in running:  # Nothing is deleted.
        with pytest.raises(InUseError):
            store.delete_episodes([first, episode.id])
    unknown = [f"unknown{index}" for index in range(7)]
    assert store.delete_episodes([third, *unknown, first, first]) == [first, third]
    assert ids_of(store, state="completed") == [second]
    assert store.delete_episodes([first]) == []
    with pytest.raises(RecordNotFoundError):
        store.restore_label(tag.id)


def test_episodes_are_selected_by_every_filter_and_order(
    store: Store, study: Study, owner: Person, play: Play
) -> None:
    anna = store.add_person("Anna", Role.PARTICIPANT)
    other = store.save_study(Study(name="Other"))
    second = study.environments[1].id
    play(id="a", success=True, total_reward=1.0, num_steps=5)
    play(id="b", success=False, total_reward=math.nan, num_steps=7, person=anna.id)
    play(id="c", environment=second, state=EpisodeState.CANCELLED, total_reward=-2.0)
    play(id="d", study=other.id, state=EpisodeState.REJECTED, total_reward=9.0, seconds=4.0)
    for episode, label in (("a", "good"), ("b", "good"), ("b", "bad"), ("c", "bad")):
        store.add_label(episode, label, begin=1, end=3)
    store.retract_label(store.labels("c")[-1].id)

    assert ids_of(store) == ["d", "c", "b", "a"]
    assert ids_of(store, study=study.id) == ["c", "b", "a"]
    assert ids_of(store, environment=second) == ["c"]
    assert ids_of(store, person=anna.id) == ["b"]
    assert ids_of(store, state="completed") == ["b", "a"]
    assert ids_of(store, state=["cancelled", "rejected"]) == ["d", "c"]
    assert ids_of(store, state=[]) == []
    assert ids_of(store, label="good") == ["b", "a"]
    assert ids_of(store, label="bad", person=anna.id) == ["b"]
    assert ids_of(store, label="bad", person=owner.id) == []
    assert ids_of(store, success=True) == ["a"]
    assert ids_of(store, success=False) == ["b"]
    assert ids_of(store, since=1001.0, until=1003.0) == ["c", "b"]

    assert ids_of(store, sort="started") == ["a", "b", "c", "d"]
    assert ids_of(store, sort="total_reward") == ["c", "a", "d", "b"]
    assert ids_of(store, sort="-total_reward") == ["d", "a", "c", "b"]
    assert ids_of(store, sort="success") == ["b", "a", "c", "d"]
    assert ids_of(store, sort="-success") == ["a", "b", "d", "c"]
    assert ids_of(store, sort="person") == ["b", "a", "c", "d"]
    assert ids_of(store, sort="-seconds")[0] == "d"
    assert ids_of(store, sort="num_steps") == ["a", "b", "c", "d"]
    assert ids_of(store, sort="-state") == ["d", "b", "a", "c"]
    assert ids_of(store, sort="environment", environment=second) == ["c"]
    assert ids_of(store, sort="-number", study=study.id) == ["c", "b", "a"]

    query = EpisodeQuery(study=study.id, offset=1, limit=1)
    page, total = store.episodes(query)
    assert total == 3
    assert page == [store.episode("b")]
    assert page[0].labels == ("bad", "good")
    assert store.episode_ids(query) == ["c", "b", "a"]
    assert store.episodes(EpisodeQuery(offset=10)) == ([], 4)
    for fields in ({"sort": "notes"}, {"sort": "started; --"}, {"limit": -1}, {"offset": 2**63}):
        with pytest.raises(StoreError):
            store.episodes(EpisodeQuery(**fields))


def test_notes_are_shared_and_keep_their_history(store: Store, owner: Person, play: Play) -> None:
    episode = play()

    first = store.set_notes(episode.id, "ein Überschlag", 0, by="anna")
    assert first == replace(episode, notes="ein Überschlag", version=1)
    store.set_notes(episode.id, "zwei", 1, by=owner.id)
    note = store.labels(episode.id)[-1]
    assert (note.layer, note.value, note.annotator) == ("note", "zwei", owner.id)
    # Annotators share notes: a new note retracts earlier ones, which stay in the history.
    rows = [row for row in store.labels(episode.id, history=True) if row.type == "text"]
    assert [(row.value, row.annotator) for row in rows] == [
        ("ein Überschlag", "anna"),
        (None, "anna"),
        ("zwei", owner.id),
    ]
    assert store.set_notes(episode.id, "", 2).version == 3
    assert [row.type for row in store.labels(episode.id)] == ["choice"]
    with pytest.raises(StaleError, match="edited these notes") as caught:
        store.set_notes(episode.id, "mine", 1)
    assert caught.value.current == replace(episode, version=3) == store.episode(episode.id)
    with pytest.raises(RecordNotFoundError):
        store.set_notes("other", "", 0)
    with pytest.raises(StoreError):
        store.set_notes(episode.id, "x" * 20_001, 3)
    assert store.episode(episode.id).version == 3


def test_tags_are_added_once_and_can_be_retracted(store: Store, owner: Person, play: Play) -> None:
    episode = play(num_steps=10, state=EpisodeState.ABANDONED)
    anna = store.add_person("Anna", Role.ANNOTATOR)

    late = store.add_label(episode.id, "fall", begin=4, end=10, by=anna.id)
    early = store.add_label(episode.id, "jump", begin=0, end=1, by=anna.id)
    episode_tag = store.add_label(episode.id, "fall", by=owner.id)

    assert (episode_tag.begin, episode_tag.end, episode_tag.annotator) == (None, None, owner.id)
    assert store.labels(episode.id) == [late, early, episode_tag]
    assert store.episode(episode.id).labels == ("fall", "jump")
    assert store.add_label(episode.id, "fall", begin=4, end=10, by=owner.id) == late
    assert store.add_label(episode.id, "fall", by=anna.id) == episode_tag

    assert store.retract_label(episode_tag.id, by=anna.id) == episode.id
    assert store.retract_label(episode_tag.id, by=anna.id) == episode.id
    last = store.labels(episode.id, history=True)[-1]
    assert (last.annotator, last.tool, last.retracts) == (
        owner.id,
        f"rlds create, by {anna.id}",
        episode_tag.id,
    )
    store.retract_label(early.id)
    assert store.labels(episode.id) == [late]
    assert store.episode(episode.id).labels == ("fall",)
    _, restored = store.restore_label(early.id)
    assert replace(restored, id=early.id, at=early.at) == early
    assert store.restore_label(early.id) == (episode.id, restored)
    assert store.labels(episode.id) == [late, restored]

    for begin, end in ((-1, 3), (0, 11), (3, 3), (None, 3), (2**63, 2**63 + 1), (0, 2**70)):
        with pytest.raises(StoreError):
            store.add_label(episode.id, "fall", begin=begin, end=end)
    for label in ("", " \n", "x" * 201, "\0"):
        with pytest.raises(StoreError):
            store.add_label(episode.id, label)
    for access in (
        lambda: store.add_label("other", "fall"),
        lambda: store.labels("other"),
        lambda: store.retract_label("other"),
        lambda: store.restore_label("other"),
        lambda: store.restore_label(last.id),
    ):
        with pytest.raises(RecordNotFoundError):
            access()
    assert store.labels(episode.id) == [late, restored]


def test_latest_verdicts_decide_states_and_queues(store: Store, owner: Person, play: Play) -> None:
    anna, bao = (store.add_person(name, Role.ANNOTATOR).id for name in ("Anna", "Bao"))
    first, second, abandoned = play(), play(success=True), play(state=EpisodeState.ABANDONED)

    def ids_in(queue: str, **more: str) -> set[str]:
        query = msgspec.convert({"queue": queue, **more}, EpisodeQuery)
        return {*store.episode_ids(query)}

    def values(episode: EpisodeRecord) -> list[tuple[object, ...]]:
        return [(row.layer, row.value, row.annotator) for row in store.labels(episode.id)]

    assert values(first) == [("verdict", "completed", owner.id)]
    store.save_episode(first)
    assert len(store.labels(first.id, history=True)) == 1
    assert ids_in("unreviewed") == {first.id, second.id}
    store.add_label(first.id, "verdict", "rejected", by=anna)
    assert store.episode(first.id) == replace(first, state=EpisodeState.REJECTED)
    assert values(first)[1:] == [("verdict", "rejected", anna)]
    assert (ids_in("unreviewed"), ids_in("disagreement")) == ({second.id}, {first.id})
    # The last label of each person is valid.
    store.add_label(first.id, "verdict", "completed", by=anna)
    store.add_label(second.id, "verdict", "completed", by=anna)
    assert (ids_in("unreviewed"), ids_in("disagreement")) == (set(), set())
    label = store.add_label(second.id, "success", "no", by=bao)
    assert store.episode(second.id).success is False
    assert ids_in("disagreement") == {second.id}
    # After a retraction, the earlier label is valid.
    store.retract_label(label.id, by=anna)
    assert store.episode(second.id).success is True
    store.restore_label(label.id)
    assert store.episode(second.id).success is False
    times = [row.at for row in store.labels(second.id, history=True)]
    assert times == sorted({*times})
    # An abandoned episode has no verdict of the player.
    store.add_label(abandoned.id, "verdict", "cancelled", by=bao)
    assert values(abandoned) == [("verdict", "cancelled", bao)]

    store.add_label(first.id, "fall", begin=1, end=2, by=anna)
    assert ids_in("unlabelled") == {second.id, abandoned.id}
    assert ids_in("unlabelled", label="jump") == {first.id, second.id, abandoned.id}
    assert ids_in("unlabelled", label="fall") == {second.id, abandoned.id}
    for verdict in ("playing", "failed", ""):
        with pytest.raises(StoreError):
            store.add_label(first.id, "verdict", verdict, by=anna)
    with pytest.raises(StoreError, match="not kept or discarded"):
        store.add_label(play(state=EpisodeState.ENDED).id, "verdict", "rejected")
    assert store.delete_episodes([first.id]) == [first.id]


def test_exports_keep_their_request_and_progress(store: Store, owner: Person) -> None:
    anna = store.add_person("Anna", Role.PARTICIPANT)
    request = {"episodes": ["a", "b"], "format": "log", "filter": None, "end_at": []}

    first = store.add_export(owner.id, request)
    second = store.add_export(anna.id, {})

    assert (first.state, first.request, first.person) == (ExportState.QUEUED, request, owner.id)
    assert store.exports() == [second, first]
    assert store.exports(owner.id) == [first]
    running = store.update_export(first.id, state=ExportState.RUNNING, progress=0.25)
    assert running == replace(first, state=ExportState.RUNNING, progress=0.25)
    finished = store.update_export(
        first.id, state=ExportState.DONE, progress=1.0, num_bytes=5_000_000_000
    )
    assert store.export(first.id) == finished
    with pytest.raises(TypeError, match="person of a download"):
        store.update_export(first.id, person=anna.id)
    store.delete_export(first.id)
    for method in (store.export, store.update_export, store.delete_export):
        with pytest.raises(RecordNotFoundError, match="this download does not exist"):
            method(first.id)
    with pytest.raises(RecordNotFoundError, match="this person does not exist"):
        store.add_export("nobody", {})
    assert store.exports() == [second]
