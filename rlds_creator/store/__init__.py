"""The store: studies, people, episodes and labels in a database, SQLite or PostgreSQL.

    with Store.open("recordings/creator.sqlite") as store:
        study = store.save_study(Study(name="Walk", environments=(environment,)), by=person.id)

The steps of each episode are not in the database, but in a log of its own.
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
