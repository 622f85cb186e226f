"""Episodes that were exported to another format, as they were before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlds.raw_files.untrusted import source_errors
from rlds.sources import reading
from rlds.sources.aside import KeptAside
from rlds.sources.source import ALL_ROWS, RandomAccessSource, Source, SourceEpisode
from rlds_ecosystem.nests import leaves_at, nest

__all__ = ["RestoredSource", "restored"]


def restored(source: Source) -> Source:
    """Returns a source with what an export has kept beside its data; or the source itself."""
    kept = source.kept_aside()
    if kept is None or not isinstance(source, RandomAccessSource):
        return source
    return RestoredSource(source, kept)


class RestoredSource(RandomAccessSource):
    """The episodes of a source, put together with what was kept aside of them.

    Args:
      source: The source. The places that were noted are paths of the fields of its steps.
      kept: What was kept aside.
    """

    def __init__(self, source: RandomAccessSource, kept: KeptAside) -> None:
        self.source, self._kept = source, kept
        said = kept.aside.metadata
        with source_errors(kept.place):
            self.description, self.homepage = str(said["description"]), str(said["homepage"])
            self.citation, self.license = str(said["citation"]), str(said["license"])
            self._metadata = dict(said["metadata"])

    @property
    def splits(self) -> Sequence[str]:
        """Those of the source."""
        return self.source.splits

    def step_fields(self) -> Mapping[str, Any]:
        """The fields that the steps had."""
        return nest(self._kept.aside.steps)

    def episode_fields(self) -> Mapping[str, Any]:
        """The fields that the episodes had."""
        return nest(self._kept.episode_fields())

    def metadata(self) -> Mapping[str, Any]:
        """What was said of the data as a whole."""
        return dict(self._metadata)

    def inputs(self) -> Sequence[Any]:
        """The files of the source, and those that were kept beside them."""
        return [*self.source.inputs(), *self._kept.files]

    def options(self) -> Mapping[str, Any]:
        """Those of the source."""
        return self.source.options()

    def num_episodes(self, split: str) -> int:
        """See `RandomAccessSource`."""
        return self.source.num_episodes(split)

    def key(self, split: str, index: int) -> str:
        """The key that the episode had."""
        with source_errors(self._kept.place, row=index):
            return self._kept.aside.about(self._kept.read(index))[0]

    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        """Puts what the source has of the wanted fields together with what was kept."""
        del rows
        sidecar = self._kept.aside
        wanted = None if fields is None else self.step_paths(fields)
        places = {
            path: place
            for path, place in sidecar.places.items()
            if wanted is None or path in wanted
        }
        columns: Mapping[str, Any] = {}
        if places:
            columns = reading.read_steps(self.source, split, index, [*places.values()])
        found = dict(leaves_at(columns, None))
        with source_errors(self._kept.place, row=index):
            episode = sidecar.unpack(
                self._kept.read(index),
                {path: found[place] for path, place in places.items()},
                wanted,
            )
            if fields is not None and not self.episode_paths(fields):
                return episode
            return self._kept.completed(index, episode)
