"""Records of a store apart from those of `rlds_creator.model`: queries, counts, statistics."""

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

_SORTS = "started|environment|person|number|state|success|num_steps|total_reward|seconds"


class Invite(msgspec.Struct, frozen=True, kw_only=True):
    """A link that lets people in. Its token is known to those who have the link only.

    Attributes:
      id: Made by the store.
      role: The role of people who accept it.
      name: For whom it is; also the name of a person who comes with it and gives none.
      creator: Who made it: the identifier of a person.
      created: When.
      expires: Until when it can be used.
      uses_left: The number of people who can still accept it.
      study: The only study that they see; "" for all that are enabled.
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
      study: Only those of this study.
      environment: Only those of this environment.
      person: Only those of this player.
      state: Only those in this state, or in one of these.
      label: Only those with this tag, on the episode or on steps of it.
      queue: Only those with work to do: "unlabelled" ones have no tag, or not that of `label`;
        "unreviewed" ones were judged by their player only; of those in "disagreement", two people
        say different things of what they are worth.
      success: Only those that the player called a success, or a failure.
      is_practice: Only those that are practice, or none of them.
      since: Only those that began then or later.
      until: Only those that began before.
      sort: One of its fields; the largest first with a `-` before it. What is not known comes last.
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
    sort: Annotated[str, msgspec.Meta(pattern=rf"^-?({_SORTS})\Z")] = "-started"
    offset: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    limit: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 50


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a study: numbers of episodes, and the consent of a person.

    Attributes:
      num_episodes: All of its episodes.
      num_completed: The completed ones that are no practice.
      mine: The episodes of the requesting person that count towards the quota.
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
      name: Its name, also when it is not in the study any more.
      episodes: The number of its episodes.
      completed: The number of completed episodes, without practice.
      success: The number of completed episodes that their players judged a success.
      steps: The steps that players made in the completed ones.
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
      name: Their name.
      episodes: The number of their episodes.
      completed: The number of completed episodes, without practice.
      seconds: The total duration of their episodes.
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
      id: Made by the store.
      person: The identifier of the person.
      name: Their name.
    """

    id: str
    person: str
    name: str


class ConsentPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some consents to a study, the newest first, and the number of all."""

    consents: tuple[PersonConsent, ...]
    total: int


prepare(Invite, EpisodeQuery, Counts, StudyStatistics, ConsentPage)


def to_row(record: msgspec.Struct) -> dict[str, Any]:
    """Returns the fields of a record as columns take them.

    Raises:
      StoreError: One is not what its type allows: what is stored can always be read.
    """
    row: dict[str, Any] = msgspec.to_builtins(record)
    try:
        msgspec.convert(row, type(record))
    except msgspec.ValidationError as error:
        raise StoreError(explain(error)) from None
    return row


def check_names(*names: str) -> None:
    """Raises a StoreError if one of some names has nothing to read.

    What is stored already is read whatever its name is.
    """
    if not all(map(str.strip, names)):
        raise StoreError("the name is empty")


def from_row(kind: type[Record], row: Any, **more: Any) -> Record:
    """Returns the record of a row; columns that it has no field for are left out."""
    columns = row._mapping
    names = [name for name in kind.__struct_fields__ if name in columns]
    return msgspec.convert({**{name: columns[name] for name in names}, **more}, kind)
