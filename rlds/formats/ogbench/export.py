"""Writes datasets of OGBench: those that came from it, and any others."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.ogbench.source import (
    ACTIONS,
    FIELDS,
    LAST_ACTION,
    OBSERVATIONS,
    TERMINALS,
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
from rlds.sources.sidecar import SIDECAR_BYTES, SIDECAR_ENDS, SIDECAR_TEXT, Sidecar
from rlds.sources.source import Outline, SourceEpisode
from rlds_ecosystem.nests import at, leaves_at

__all__ = ["OGBenchExport"]


class OGBenchExport(Export):
    """Writes a file of OGBench, `<name>.npz`: a split is a file, that of validation `<name>-val`.

    Of episodes that came from OGBench the same arrays come out, with every bit, in the order of the
    original file. Of others, the observation and the action are one array each; other numbers of
    steps become arrays under their names. What OGBench has no place for (rewards, terminal states,
    text) is in other arrays, below `rlds/`.

    Args:
      episodes: The episodes of a split.
      observation: The path of the field that is the observation, if there are several.
      action: The path of the field that is the action, if there are several.
      compressed: Whether arrays are compressed, as those of OGBench are.

    Raises:
      ValueError: There is no such field, or it is no array of numbers of one shape.
    """

    format = "ogbench"
    suffixes = (".npz",)

    def __init__(
        self,
        episodes: Episodes,
        *,
        observation: str = rlds.OBSERVATION,
        action: str = rlds.ACTION,
        compressed: bool = True,
    ) -> None:
        super().__init__(episodes)
        self._method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        self._fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        self._sidecar: Sidecar | None = None
        self._dtypes: dict[str, np.dtype] = {}
        recorded = self.recorded().get("arrays", {})
        fields = [FIELDS.get(name, name) for name in recorded if name != TERMINALS]
        self._is_recorded = bool(recorded) and {*fields} <= self._fields.keys()
        if self._is_recorded:
            self.is_exact = False  # The keys have the name of the split.
            self._paths = {name: FIELDS.get(name, name) for name in recorded if name != TERMINALS}
            self._dtypes = {name: np.dtype(dtype) for name, dtype in recorded.items()}
            return
        self._paths = {OBSERVATIONS: observation, ACTIONS: action}
        check_arrays(
            self._fields, (observation, action), "OGBench needs one observation and one action"
        )
        taken = {*self._paths.values(), *rlds.STEP_FLAGS, rlds.REWARD, rlds.DISCOUNT}
        # The names of what OGBench itself has, in its files and as fields.
        taken |= {OBSERVATIONS, ACTIONS, TERMINALS, *FIELDS.values()}
        self._paths |= {
            path: path
            for path in self._fields
            if path not in taken and "/" not in path and is_array(self._fields[path])
        }
        places = {path: FIELDS.get(name, name) for name, path in self._paths.items()}
        whole = [path for path in places if path != action]
        self._sidecar = Sidecar.of(episodes, places, whole, drops_final_row=True)

    @override
    def placements(self) -> Sequence[Placement]:
        if self._sidecar is not None:
            return sidecar_placements(self._sidecar)
        return as_it_was(self.episodes)

    @override
    def why_unsupported(self, outline: Outline) -> str:
        return without_transitions(outline.num_steps - 1, "OGBench")

    @override
    def write(self, path: Path) -> None:
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(dir=path.parent))
            drafts: dict[str, IO[bytes]] = {
                name: stack.enter_context(Path(directory, f"{number}").open("w+b"))
                for number, name in enumerate(
                    [*(self._dtypes or [*self._paths, TERMINALS]), SIDECAR_BYTES]
                )
            }
            rows = self._write_rows(drafts)
            with zipfile.ZipFile(path, "w", self._method) as archive:
                for name, (dtype, shape) in rows.items():
                    with _new_array(archive, name, dtype, shape) as member:
                        drafts[name].seek(0)
                        shutil.copyfileobj(drafts[name], member)
                said = self._sidecar or Sidecar.of_dataset(self.episodes, self.format)
                text = np.frombuffer(said.to_json().encode(), np.uint8)
                for name, array in ((SIDECAR_TEXT, text), (SIDECAR_ENDS, self._ends)):
                    with _new_array(archive, name, array.dtype, array.shape) as member:
                        member.write(array.tobytes())

    def _write_rows(
        self, drafts: dict[str, IO[bytes]]
    ) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """Writes what is in the arrays; returns the dtype and the shape of each, in their order."""
        rows: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
        ends = []
        num_rows = 0
        self.order = self.order_of_origin() if self._is_recorded else None
        for episode in self.each():
            num_rows += episode.num_steps
            for name, column in self._arrays_of(episode):
                column = column.astype(self._dtypes.get(name, column.dtype), copy=False)
                drafts[name].write(np.ascontiguousarray(column).data)
                rows[name] = column.dtype, (num_rows, *column.shape[1:])
            if self._sidecar is not None:
                drafts[SIDECAR_BYTES].write(self._sidecar.pack(episode))
                ends.append(drafts[SIDECAR_BYTES].tell())
                rows[SIDECAR_BYTES] = np.dtype(np.uint8), (ends[-1],)
        self._ends = np.array(ends, np.int64)
        return {name: rows[name] for name in drafts if name in rows}

    def _arrays_of(self, episode: SourceEpisode) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the rows of an episode in each array."""
        for name, path in self._paths.items():
            column = np.asarray(at(episode.steps, path))
            if name == ACTIONS and self._is_recorded:
                last = np.asarray(episode.metadata[LAST_ACTION], column.dtype)
                column = np.concatenate([column[:-1], last[np.newaxis]])
            yield name, column
        terminals = np.zeros(episode.num_steps, np.float32)
        terminals[-1] = 1
        yield TERMINALS, terminals


def _new_array(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype, shape: tuple[int, ...]
) -> IO[bytes]:
    """Begins an array in a file, to which its values are written."""
    descr = np.lib.format.dtype_to_descr(dtype)
    described = {"descr": descr, "fortran_order": False, "shape": shape}
    member = archive.open(f"{name}.npy", "w", force_zip64=True)
    np.lib.format.write_array_header_1_0(member, described)
    return member
