"""Writes Minari datasets: what came from Minari as it was, and any other episodes."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rlds.formats.minari.attributes import IRREGULAR
from rlds.formats.minari.formats import FORMATS, open_writer
from rlds.formats.minari.places import ASIDE, make_namespaces, new_dataset
from rlds.formats.minari.recorded_export import MinariEpisodes, RecordedEpisodes
from rlds.formats.minari.rlds_export import RldsEpisodes
from rlds.formats.minari.source import METADATA_KEY
from rlds.formats.minari.storage import REWARDS
from rlds.sources.aside import AsideWriter
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import Export, Placement
from rlds.sources.source import Outline

__all__ = ["MinariExport"]

_COMPUTED = ("total_episodes", "total_steps", "data_format", "dataset_id", "dataset_size")
_SPACES = ("observation_space", "action_space")


class MinariExport(Export):
    """Writes a Minari dataset.

    Of episodes that came from Minari the same comes out: every array, with its dtype, every
    attribute, and metadata.json, but for what is different then: the format, the size of the files,
    the identifier, and, if not all episodes are written, their numbers. Raw images, which Minari
    itself can read no more from datasets older than 0.5.3, are declared (`jpeg_encoding`), so that
    it can; and where HDF5 becomes a table, columns have the same dtypes in all episodes, for the
    same reason.

    For others, the spaces are made from the fields: a `Box` without bounds other than those of the
    dtype, `Discrete` for a class label, `Text`, and a `Dict` for a dict. Images stay JPEG files if
    that is what all images of observations and actions are that Minari takes for images; otherwise
    the arrays are written. The discount and all other fields of steps become infos; episode
    metadata becomes attributes below `rlds`. What Minari has no place for is in `data/rlds`.

    Args:
      episodes: The episodes.
      data_format: "hdf5", "arrow" or "parquet"; if None, what it was, or "hdf5".
      fields: The fields of a step to write; all by default. Not for episodes that came from Minari.
      episode_fields: The fields of an episode to write, likewise.
      unknown_final_observation: What to do with an episode whose final observation is not known,
        which Minari cannot hold: an error, or to leave out its last transition, which then is in
        `data/rlds`.
      metadata: More fields for metadata.json, or others, such as `author` or `env_spec`.

    Attributes:
      dataset_id: The identifier of the dataset; if None, what its place says.

    Raises:
      ValueError: Minari cannot hold the episodes, or an argument is wrong.
    """

    format = "minari"

    def __init__(
        self,
        episodes: Episodes,
        *,
        data_format: str | None = None,
        fields: Sequence[str] | None = None,
        episode_fields: Sequence[str] | None = None,
        unknown_final_observation: Literal["error", "drop_last_transition"] = "error",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(episodes)
        if data_format not in (None, *FORMATS):
            raise ValueError(f"data_format: {data_format!r}, expected one of {FORMATS}")
        if unknown_final_observation not in ("error", "drop_last_transition"):
            raise ValueError(
                f"unknown_final_observation: {unknown_final_observation!r}, expected 'error' or "
                "'drop_last_transition'"
            )
        self._given = dict(metadata or {})
        for name in sorted(self._given.keys() & {*_COMPUTED, *_SPACES}):
            raise ValueError(f"metadata: {name!r} comes from the dataset; leave it out")
        self._made = self._as_minari(
            data_format, fields, episode_fields, unknown_final_observation == "drop_last_transition"
        )
        self.is_exact = self._made.is_exact
        self._data_format = data_format or self._made.recorded.get("data_format", "hdf5")
        self.dataset_id: str | None = None

    def _as_minari(
        self,
        data_format: str | None,
        fields: Sequence[str] | None,
        episode_fields: Sequence[str] | None,
        drop: bool,
    ) -> MinariEpisodes:
        is_recorded = METADATA_KEY in self.episodes.metadata and IRREGULAR in self.episodes.spec
        if not is_recorded:
            return RldsEpisodes(self.episodes, fields, episode_fields, drop=drop)
        if fields is not None or episode_fields is not None:
            raise ValueError("fields: a dataset that was converted from Minari is exported whole")
        return RecordedEpisodes(self.episodes, data_format)

    @property
    def recorded_id(self) -> str:
        """The identifier that the dataset had; empty if it had none."""
        return str(self._made.recorded.get("dataset_id", ""))

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        return self._made.placements()

    def check_target(self, path: str | os.PathLike[str]) -> None:
        """See `Export`."""
        super().check_target(path)
        if self.dataset_id is None:
            _, self.dataset_id = new_dataset(pathlib.Path(os.path.abspath(path)), self.recorded_id)

    def objection(self, outline: Outline) -> str:
        """See `Export`."""
        return self._made.objection(outline)

    def write(self, path: pathlib.Path) -> None:
        """See `Export`."""
        data = path / "data"
        data.mkdir(parents=True)
        if self._made.aside is None:
            numbers = self._write_episodes(data, None)
        else:
            (data / ASIDE).mkdir()
            with AsideWriter(data / ASIDE, self._made.aside) as aside:
                numbers = self._write_episodes(data, aside)
        described = {
            **self._made.metadata(),
            **numbers,
            "data_format": self._data_format,
            "dataset_id": self.dataset_id or path.name,
            **self._given,
        }
        described["dataset_size"] = _size_in_megabytes(data)
        (data / "metadata.json").write_text(json.dumps(described))

    def _write_episodes(self, data: pathlib.Path, aside: AsideWriter | None) -> dict[str, int]:
        number = total_steps = 0
        with open_writer(self._data_format, data, self._made.spaces) as writer:
            for episode in self.each():
                index, made = self._made.episode(episode, number)
                try:
                    writer.add(index, made)
                except ValueError as error:
                    raise ValueError(f"episode {index}: {error}") from error
                if aside is not None:
                    aside.add(episode)
                total_steps += len(made.columns[REWARDS].values)
                number += 1
        return {"total_episodes": number, "total_steps": total_steps}

    def finish(self, path: str | os.PathLike[str]) -> None:
        """Makes namespaces of the folders above it, as Minari does."""
        make_namespaces(pathlib.Path(os.path.abspath(path)))


def _size_in_megabytes(data: pathlib.Path) -> float:
    own = (path for path in data.rglob("*") if ASIDE not in path.relative_to(data).parts)
    return round(sum(path.stat().st_size for path in own) / 1_000_000, 1)
