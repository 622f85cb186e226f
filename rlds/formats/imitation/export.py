"""Writes trajectories of imitation: those that came from it, and any other episodes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.imitation.source import (
    FIELDS,
    INFO_FILE,
    INFOS,
    SIDECAR,
    STATE_FILE,
    TERMINAL,
)
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import (
    Export,
    Placement,
    as_it_was,
    check_arrays,
    is_array,
    sidecar_placements,
    without_transitions,
)
from rlds.sources.sidecar import Sidecar, SidecarWriter
from rlds.sources.source import Outline, SourceEpisode
from rlds_ecosystem import import_extra
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import at, leaves_at

__all__ = ["ImitationExport"]

_FILE = "data-00000-of-00001.arrow"
# About so many values are written at a time.
_BATCH_VALUES = 1 << 22


class ImitationExport(Export):
    """Writes the folder that `imitation.data.serialize.load` reads.

    Episodes that came from imitation become the same table again, in one file. Of others, the
    observation and the action are one array each; what imitation has no place for is in the folder
    `rlds`. It takes the last observation for the final one.

    Args:
      episodes: The episodes.
      observation: The path of the field that is the observation, if there are several.
      action: The path of the field that is the action, if there are several.

    Raises:
      ValueError: There is no such field, or it is no array of numbers of one shape.
    """

    format = "imitation"

    def __init__(
        self,
        episodes: Episodes,
        *,
        observation: str = rlds.OBSERVATION,
        action: str = rlds.ACTION,
    ) -> None:
        super().__init__(episodes)
        fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        self._said = self.recorded()
        columns = [*self._said.get("info", {}).get("features", {})]
        paths = {name: FIELDS[name] for name in columns if name in FIELDS}
        self._sidecar: Sidecar | None = None
        if not columns or not {*paths.values()} <= fields.keys():
            self._said = {}
            paths = {"obs": observation, "acts": action, INFOS: INFOS, "rews": rlds.REWARD}
            check_arrays(
                fields, (observation, action), "imitation needs one observation and one action"
            )
            reward = fields.get(rlds.REWARD)
            is_number = isinstance(reward, Field) and is_array(reward) and not reward.shape
            if not is_number or rlds.REWARD in (observation, action):
                del paths["rews"]
            places = {paths[name]: FIELDS[name] for name in paths if name != INFOS}
            infos = fields.get(INFOS)
            if isinstance(infos, Field) and infos.is_text and not infos.shape:
                places[INFOS] = INFOS
            self._sidecar = Sidecar.of(episodes, places, [observation], drops_final_row=True)
            columns = ["obs", "acts", INFOS, TERMINAL, *(["rews"] if "rews" in paths else [])]
        else:
            self.unchecked = {"key"}  # Its number in the file.
        self._columns, self._paths, self._fields = columns, paths, fields

    @override
    def placements(self) -> Sequence[Placement]:
        if self._sidecar is not None:
            return sidecar_placements(self._sidecar)
        return as_it_was(self.episodes)

    @override
    def why_unsupported(self, outline: Outline) -> str:
        return without_transitions(outline.num_steps - 1, "imitation")

    @override
    def write(self, path: Path) -> None:
        arrow, ipc = import_extra("pyarrow"), import_extra("pyarrow.ipc")
        path.mkdir()
        features = {name: self._feature(name) for name in self._columns}
        info = self._said.get("info") or {
            "citation": "",
            "description": "",
            "features": features,
            "homepage": "",
            "license": "",
        }
        state = {
            "_fingerprint": "0" * 16,
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
            **self._said.get("state", {}),
            "_data_files": [{"filename": _FILE}],
        }
        described = json.dumps({"info": {"features": info["features"]}})
        schema = arrow.schema(
            [arrow.field(name, self._type(name)) for name in self._columns],
            metadata={"huggingface": described},
        )
        with contextlib.ExitStack() as stack:
            sidecar = None
            if self._sidecar is None:
                Sidecar.of_dataset(self.episodes, self.format).write_text(path / SIDECAR)
            else:
                sidecar = stack.enter_context(SidecarWriter(path / SIDECAR, self._sidecar))
            file = stack.enter_context((path / _FILE).open("wb"))
            writer = stack.enter_context(ipc.new_stream(file, schema))
            self._write_rows(writer, schema, sidecar)
        (path / INFO_FILE).write_text(json.dumps(info, indent=2))
        (path / STATE_FILE).write_text(json.dumps(state, indent=2))

    def _write_rows(self, writer: Any, schema: Any, sidecar: SidecarWriter | None) -> None:
        arrow = import_extra("pyarrow")
        rows: list[dict[str, Any]] = []
        num_values = 0
        self.order = None if self._sidecar is not None else self.order_of_origin()

        def flush() -> None:
            arrays = [
                arrow.concat_arrays([_as_arrow(row[name], schema.field(name).type) for row in rows])
                for name in schema.names
            ]
            writer.write_batch(arrow.RecordBatch.from_arrays(arrays, schema=schema))

        for episode in self.each():
            if sidecar is not None:
                sidecar.add(episode)
            rows.append(self._row(episode))
            num_values += sum(np.size(value) for value in rows[-1].values())
            if num_values > _BATCH_VALUES:
                flush()
                rows, num_values = [], 0
        if rows:
            flush()

    def _row(self, episode: SourceEpisode) -> dict[str, Any]:
        """A trajectory, by columns."""
        steps = episode.steps
        row: dict[str, Any] = {TERMINAL: bool(steps[rlds.IS_TERMINAL][-1])}
        for name, path in self._paths.items():
            is_there = path in self._fields and (name != INFOS or self._fields[path].is_text)
            if not is_there:
                column = np.full(episode.num_steps, "{}", object)
            else:
                column = np.asarray(at(steps, path))
            row[name] = column if name == "obs" else column[:-1]
        return row

    def _type(self, name: str) -> Any:
        """The type of a column in Arrow."""
        arrow = import_extra("pyarrow")
        if name == TERMINAL:
            return arrow.bool_()
        if name == INFOS:
            return arrow.list_(arrow.string())
        field = self._fields[self._paths[name]]
        made = arrow.from_numpy_dtype(field.column_dtype)
        for _ in range(len(field.shape) + 1):
            made = arrow.list_(made)
        return made

    def _feature(self, name: str) -> dict[str, Any]:
        """What the library `datasets` calls it; all its versions know the name "Sequence"."""
        described: dict[str, Any] = {"_type": "Value"}
        if name in (TERMINAL, INFOS):
            described["dtype"] = "bool" if name == TERMINAL else "string"
            depth = int(name == INFOS)
        else:
            field = self._fields[self._paths[name]]
            described["dtype"] = field.column_dtype.name
            depth = len(field.shape) + 1
        for _ in range(depth):
            described = {"feature": described, "_type": "Sequence"}
        return described


def _as_arrow(value: Any, arrow_type: Any) -> Any:
    """An array with one row: a number, or nested lists of one length each."""
    arrow = import_extra("pyarrow")
    if not arrow.types.is_list(arrow_type):
        return arrow.array([bool(value)], arrow_type)
    column = np.asarray(value)[np.newaxis]
    leaf = arrow_type
    while arrow.types.is_list(leaf):
        leaf = leaf.value_type
    texts = [item.decode() if isinstance(item, bytes) else item for item in column.flat]
    made = arrow.array(texts if column.dtype == object else column.reshape(-1), leaf)
    for axis in range(column.ndim - 1, 0, -1):
        count = int(np.prod(column.shape[:axis], dtype=int))
        offsets = np.arange(count + 1, dtype=np.int32) * column.shape[axis]
        made = arrow.ListArray.from_arrays(arrow.array(offsets, arrow.int32()), made)
    return made.cast(arrow_type)
