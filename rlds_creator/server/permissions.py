"""Who may do what: one table, and what is a person's own."""

from __future__ import annotations

import enum

from rlds_creator.model import EpisodeRecord, Person, Role, Study, StudyState

__all__ = ["ROLES", "May", "may", "of_episode", "sees_episode", "sees_study"]


class May(enum.StrEnum):
    """The permissions of roles.

    PLAY studies that are enabled. SEE all studies, all episodes and their tags. TAG them, write
    notes on them, and change their verdicts. DELETE episodes. EXPORT them. MANAGE studies: make,
    change, try, enable and delete them. Invite PEOPLE, and change what they may do.
    """

    PLAY = "play"
    SEE = "see"
    TAG = "tag"
    DELETE = "delete"
    EXPORT = "export"
    MANAGE = "manage"
    PEOPLE = "people"


ROLES: dict[Role, frozenset[May]] = {
    Role.OWNER: frozenset(May),
    Role.ANNOTATOR: frozenset({May.PLAY, May.SEE, May.TAG, May.EXPORT}),
    # What participants have played themselves they may see and delete.
    Role.PARTICIPANT: frozenset({May.PLAY}),
    Role.VIEWER: frozenset({May.SEE, May.EXPORT}),
}


def may(person: Person, what: May) -> bool:
    """Whether a person may do something."""
    return not person.is_disabled and what in ROLES[person.role]


def sees_study(person: Person, study: Study) -> bool:
    """Whether a person may know of a study."""
    if may(person, May.SEE):
        return True
    is_open = study.state is StudyState.ENABLED and person.study in ("", study.id)
    return is_open and may(person, May.PLAY)


def sees_episode(person: Person, episode: EpisodeRecord) -> bool:
    """Whether a person may see an episode: all, or what they have played."""
    return may(person, May.SEE) or (may(person, May.PLAY) and episode.person == person.id)


def of_episode(person: Person, episode: EpisodeRecord) -> list[May]:
    """Returns what a person may do with an episode that they see, beside that."""
    own = may(person, May.PLAY) and episode.person == person.id
    allowed = [May.DELETE] if own or may(person, May.DELETE) else []
    return [*allowed, May.TAG] if may(person, May.TAG) else allowed
