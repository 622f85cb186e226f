"""The store: studies, people, episodes and downloads in one database."""

from __future__ import annotations

from rlds_creator.store.episodes import EpisodeDatabase
from rlds_creator.store.exports import Exports
from rlds_creator.store.people import People
from rlds_creator.store.studies import Studies

__all__ = ["Store"]


class Store(People, Studies, EpisodeDatabase, Exports):
    """The database of a server, see `open`.

    Threads can share a store, and processes a database. Each method is one transaction: if it
    raises, nothing has changed. A method that changes a missing record raises
    `RecordNotFoundError`.
    """
