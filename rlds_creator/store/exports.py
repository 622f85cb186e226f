"""Records of downloads, running and finished."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from rlds_creator.identifiers import new_identifier
from rlds_creator.model import ExportRecord
from rlds_creator.store import tables
from rlds_creator.store.database import Database, delete, row_of
from rlds_creator.store.errors import RecordNotFoundError
from rlds_creator.store.records import from_row, to_row

__all__ = ["Exports"]

_CHANGEABLE_FIELDS = {"state", "progress", "num_bytes", "error"}


class Exports(Database):
    """Downloads."""

    def add_export(self, person_id: str, request: dict[str, Any]) -> ExportRecord:
        """Adds a queued download.

        Args:
          person_id: The person who requests the download.
          request: The request, in the types of JSON.

        Raises:
          RecordNotFoundError: The person does not exist.
        """
        id, now = new_identifier(), self._clock()
        new = ExportRecord(id=id, person=person_id, request=request, created=now)
        with self._writing() as connection:
            try:
                connection.execute(sa.insert(tables.exports).values(to_row(new)))
            except sa.exc.IntegrityError:
                raise RecordNotFoundError("this person does not exist") from None
        return new

    def export(self, export_id: str) -> ExportRecord:
        """Returns a download.

        Raises:
          RecordNotFoundError: The download does not exist.
        """
        with self._reading() as connection:
            return from_row(ExportRecord, row_of(connection, tables.exports, export_id))

    def exports(self, person_id: str | None = None) -> list[ExportRecord]:
        """Returns the downloads of a person, or of all people, the newest first."""
        table = tables.exports
        query = sa.select(table).order_by(table.c.created.desc(), table.c.id)
        if person_id is not None:
            query = query.where(table.c.person == person_id)
        return self._select(ExportRecord, query)

    def update_export(self, export_id: str, **changes: Any) -> ExportRecord:
        """Updates the progress of a download.

        Args:
          export_id: The download.
          **changes: Any of `state`, `progress`, `num_bytes` and `error`.

        Raises:
          RecordNotFoundError: The download does not exist; it may have been deleted.
          StoreError: A field has a value that its type does not allow.
        """
        if fixed_fields := changes.keys() - _CHANGEABLE_FIELDS:
            raise TypeError(f"{', '.join(sorted(fixed_fields))} of a download never changes")
        table = tables.exports
        with self._writing() as connection:
            current = from_row(ExportRecord, row_of(connection, table, export_id, lock=True))
            new = msgspec.structs.replace(current, **changes)
            values = {name: value for name, value in to_row(new).items() if name in changes}
            connection.execute(sa.update(table).where(table.c.id == export_id).values(values))
        return new

    def delete_export(self, export_id: str) -> None:
        """Deletes a download.

        Raises:
          RecordNotFoundError: The download does not exist.
        """
        with self._writing() as connection:
            delete(connection, tables.exports, export_id)
