"""Migrations of databases of older releases, a module for each version of the tables.

A module has `revision`, the `down_revision` that it follows, and `upgrade`. The module never
changes after its release. A new database needs no migration: it gets the current tables.
"""

__all__: list[str] = []
