"""Studies, people, episodes and labels in a database: a file of SQLite, or PostgreSQL.

    with Store.open("recordings/creator.sqlite") as store:
        study = store.save_study(Study(name="Walk", environments=(environment,)), by=person.id)

The steps of episodes are not here but in logs, one for each episode.
"""

from rlds_creator.store.errors import (
    InUseError,
    QuotaError,
    RecordNotFoundError,
    StaleError,
    StoreError,
)
from rlds_creator.store.records import EpisodeQuery
from rlds_creator.store.store import Store

__all__ = [
    "EpisodeQuery",
    "InUseError",
    "QuotaError",
    "RecordNotFoundError",
    "StaleError",
    "Store",
    "StoreError",
]
