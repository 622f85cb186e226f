"""Permissions of roles, and of people over their own episodes."""

from __future__ import annotations

import enum

from rlds_creator.model import EpisodeRecord, Person, Role, Study, StudyState

__all__ = ["ROLES", "May", "episode_permissions", "may", "sees_episode", "sees_study"]


class May(enum.StrEnum):
    """The permissions of roles.

    PLAY: play enabled studies. SEE: see all studies, episodes and labels. TAG: tag episodes, write
    notes on them and change their verdicts. DELETE: delete episodes. EXPORT: export episodes.
    MANAGE: create, change, test, enable and delete studies. PEOPLE: invite people and change their
    roles.
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
    # Participants may see and delete their own episodes without these permissions.
    Role.PARTICIPANT: frozenset({May.PLAY}),
    Role.VIEWER: frozenset({May.SEE, May.EXPORT}),
}


def may(person: Person, permission: May) -> bool:
    """True if a person has a permission."""
    return not person.is_disabled and permission in ROLES[person.role]


def sees_study(person: Person, study: Study) -> bool:
    """True if a person may see a study."""
    if may(person, May.SEE):
        return True
    is_open = study.state is StudyState.ENABLED and person.study in ("", study.id)
    return is_open and may(person, May.PLAY)


def sees_episode(person: Person, episode: EpisodeRecord) -> bool:
    """True if a person may see an episode."""
    return may(person, May.SEE) or (may(person, May.PLAY) and episode.person == person.id)


def episode_permissions(person: Person, episode: EpisodeRecord) -> list[May]:
    """Returns the permissions of a person on a visible episode."""
    is_own = may(person, May.PLAY) and episode.person == person.id
    allowed = [May.DELETE] if is_own or may(person, May.DELETE) else []
    return [*allowed, May.TAG] if may(person, May.TAG) else allowed
