"""Records of the store that `rlds_creator.model` does not have: queries, counts, statistics."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from rlds_creator.model import Consent, EpisodeState, Identifier, NewIdentifier, Role, prepare
from rlds_creator.store.errors import StoreError
from rlds_creator.type_errors import explain

__all__ = [
    "ConsentPage",
    "Counts",
    "EnvironmentStatistics",
    "EpisodeQuery",
    "Invite",
    "PersonConsent",
    "PersonStatistics",
    "Record",
    "StudyStatistics",
    "from_row",
    "to_row",
]

Record = TypeVar("Record", bound=msgspec.Struct)

_SORT_FIELDS = "started|environment|person|number|state|success|num_steps|total_reward|seconds"


class Invite(msgspec.Struct, frozen=True, kw_only=True):
    """An invite: a link with which people join. Only the link has its token.

    Attributes:
      id: Assigned by the store.
      role: The role of people who accept it.
      name: The name of the invited person, used if they enter no other name.
      creator: The identifier of the person who created the invite.
      created: The time of the creation.
      expires: The time at which the invite expires.
      uses_left: The number of people who can still accept it.
      study: The only study that the people see; "" for all enabled studies.
    """

    id: Identifier
    role: Role
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    creator: str = ""
    created: float = 0.0
    expires: float = 0.0
    uses_left: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    study: NewIdentifier = ""


class EpisodeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query for episodes: filters, sort order and range.

    Attributes:
      study: Only episodes of this study.
      environment: Only episodes of this environment.
      person: Only episodes of this player.
      state: Only episodes in this state, or in one of these states.
      label: Only episodes with this tag, on the episode or on steps.
      queue: Only episodes that need work. "unlabelled": without tags, or without the tag `label`.
        "unreviewed": with a verdict of the player only. "disagreement": with different verdicts of
        two people.
      success: Only episodes that the player judged a success, or a failure.
      is_practice: Only practice episodes, or only other episodes.
      since: Only episodes that started at this time or later.
      until: Only episodes that started before this time.
      sort: The field to sort by; a `-` before it sorts in descending order. Empty values are last.
      offset: The number of episodes to skip.
      limit: The maximum number of episodes to return.
    """

    study: str | None = None
    environment: str | None = None
    person: str | None = None
    state: EpisodeState | tuple[EpisodeState, ...] | None = None
    label: str | None = None
    queue: Literal["unlabelled", "unreviewed", "disagreement"] | None = None
    success: bool | None = None
    is_practice: bool | None = None
    since: float | None = None
    until: float | None = None
    sort: Annotated[str, msgspec.Meta(pattern=rf"^-?({_SORT_FIELDS})\Z")] = "-started"
    offset: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    limit: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 50


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a study: numbers of episodes, and the consent of a person.

    Attributes:
      num_episodes: The number of all episodes.
      num_completed: The number of completed episodes, without practice.
      mine: The number of episodes of the requesting person that count towards the quota.
      agreed: The time at which that person agreed to the current consent of the study.
    """

    num_episodes: int = 0
    num_completed: int = 0
    mine: int = 0
    agreed: float | None = None


class EnvironmentStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of an environment of a study.

    Attributes:
      id: The identifier of the environment.
      name: The name of the environment, which may be removed from the study.
      episodes: The number of episodes.
      completed: The number of completed episodes, without practice.
      success: The number of completed episodes that their players judged a success.
      steps: The number of steps of completed episodes, without resets.
      mean_reward: The mean return of the completed episodes; None if there are none.
    """

    id: str
    name: str
    episodes: int = 0
    completed: int = 0
    success: int = 0
    steps: int = 0
    mean_reward: float | None = None


class PersonStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a person in a study.

    Attributes:
      person: The identifier of the person.
      name: The name of the person.
      episodes: The number of episodes of the person.
      completed: The number of completed episodes, without practice.
      seconds: The total duration of the episodes.
    """

    person: str
    name: str
    episodes: int = 0
    completed: int = 0
    seconds: float = 0.0


class StudyStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a study, by environment and by person."""

    environments: tuple[EnvironmentStatistics, ...] = ()
    people: tuple[PersonStatistics, ...] = ()


class PersonConsent(Consent, frozen=True, kw_only=True):
    """A consent to a study, with the person who gave it.

    Attributes:
      id: Assigned by the store.
      person: The identifier of the person.
      name: The name of the person.
    """

    id: str
    person: str
    name: str


class ConsentPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the consents to a study, the newest first, and their total number."""

    consents: tuple[PersonConsent, ...]
    total: int


prepare(Invite, EpisodeQuery, Counts, StudyStatistics, ConsentPage)


def to_row(record: msgspec.Struct) -> dict[str, Any]:
    """Returns the fields of a record in the types of columns.

    Raises:
      StoreError: The type of a field does not allow its value; a stored row can always be read.
    """
    row: dict[str, Any] = msgspec.to_builtins(record)
    try:
        msgspec.convert(row, type(record))
    except msgspec.ValidationError as error:
        raise StoreError(explain(error)) from None
    return row


def check_names(*names: str) -> None:
    """Raises a StoreError if a new name is blank. Stored names are not checked."""
    if not all(map(str.strip, names)):
        raise StoreError("the name is empty")


def from_row(kind: type[Record], row: Any, **attributes: Any) -> Record:
    """Returns the record of a row, without the columns that are no fields of the record."""
    columns = row._mapping
    names = [name for name in kind.__struct_fields__ if name in columns]
    return msgspec.convert({**{name: columns[name] for name in names}, **attributes}, kind)
