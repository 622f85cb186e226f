"""Migrations of databases of older releases to the tables of this one: a module each.

A module has `revision`, the `down_revision` that it follows, and `upgrade`. It never changes once
it is released. A new database has all of `rlds_creator.store.tables` at once.
"""

__all__: list[str] = []
