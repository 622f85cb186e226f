"""One table of labels for tags, verdicts and notes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

from rlds_creator.labelling import NOTE, VERDICT_STATES, convert_verdicts, label_row, retraction_row

__all__ = ["revision", "upgrade"]

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Moves tags, verdicts and notes to the new table of labels."""
    needed: dict[str, Any] = {"id": sa.Text, "episode": sa.Text, "layer": sa.Text, "type": sa.Text}
    needed |= {"annotator": sa.Text, "at": sa.Double, "tool": sa.Text, "holds": sa.Boolean}
    optional: dict[str, Any] = {
        "value": sa.Text,
        "begin": sa.BigInteger,
        "end": sa.BigInteger,
        "retracts": sa.Text,
    }
    table = op.create_table(
        "labels",
        *(sa.Column(name, kind, nullable=False) for name, kind in needed.items()),
        *(sa.Column(name, kind) for name, kind in optional.items()),
        sa.PrimaryKeyConstraint("id", name="pk_labels"),
        sa.ForeignKeyConstraint(
            ["episode"], ["episodes.id"], name="fk_labels_episode_episodes", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_labels_episode_at", "labels", ["episode", "at"])
    op.create_index("ix_labels_layer_holds", "labels", ["layer", "holds"])
    connection = op.get_bind()
    tags = _by_episode(connection, "SELECT * FROM tags ORDER BY created, id")
    verdicts = _by_episode(connection, "SELECT * FROM verdicts ORDER BY created")
    query = """SELECT id AS episode, person AS author, state, success, notes,
                      started + seconds AS created FROM episodes"""
    for (episode,) in _by_episode(connection, query).values():
        judgements = verdicts.get(episode.episode) or [episode]
        is_judged = judgements != [episode] or episode.state in VERDICT_STATES
        rows = [*convert_verdicts(judgements, episode.author)] if is_judged else []
        if episode.notes:
            rows.append(label_row(NOTE, episode.notes, at=episode.created))
        for tag in tags.get(episode.episode, ()):
            end = None if tag.last is None else tag.last + 1
            attributes = {"begin": tag.first, "end": end, "annotator": tag.author}
            rows.append(label_row(tag.label, True, at=tag.created, id=tag.id, **attributes))
            if tag.removed is not None:
                rows.append(retraction_row(rows[-1], tag.removed_by or "", tag.removed))
        last_rows = {row.target: row for row in sorted(rows, key=lambda row: row.at)}
        for row in rows:
            is_current = last_rows[row.target] is row and row.retracts is None
            values = {**msgspec.structs.asdict(row), "episode": episode.episode}
            values["holds"] = is_current
            values["value"] = "true" if row.value is True else row.value
            connection.execute(sa.insert(table).values(values))
    op.drop_table("tags")
    op.drop_table("verdicts")


def _by_episode(connection: sa.Connection, query: str) -> dict[str, list[Any]]:
    by_episode: dict[str, list[Any]] = {}
    rows: Iterable[Any] = connection.execute(sa.text(query)).all()
    for row in rows:
        by_episode.setdefault(row.episode, []).append(row)
    return by_episode
