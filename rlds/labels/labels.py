"""The labels (annotations) of a dataset: reading, adding, retracting."""

from __future__ import annotations

import dataclasses
import functools
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlds.sources import label_rows, reading
from rlds.sources.episode_table import table_row
from rlds.sources.episodes import Episodes
from rlds.sources.label_rows import Label, Layer
from rlds.sources.opening import open as open_episodes
from rlds.sources.source import Source

__all__ = ["Labels", "open"]

# Limit of the choices of an undeclared layer.
_MAX_CHOICES = 50


def open(path: str | os.PathLike[str] | Episodes, **options: Any) -> Labels:
    """Opens the labels of a dataset of any format, which may have no labels yet.

    Args:
      path: The dataset, by default with all splits; or episodes.
      **options: Options of `rlds.sources.open`, such as `split` or `format`.
    """
    if isinstance(path, Episodes):
        return Labels(path)
    return Labels(open_episodes(path, **{"split": "all", **options}))


class Labels:
    """The labels of episodes; iteration yields the valid labels, in the order of their rows.

    Labels are stored next to the data in `.rlds/labels`, a file of JSON lines for each layer; or in
    the cache, if the data is one file or not writable. The data does not change. Processes may add
    labels at the same time, and see the labels of other processes immediately.

    Args:
      episodes: The episodes. Labels refer to them by digests from the table of episodes, which is
        computed when the digests of all episodes are needed.

    Attributes:
      episodes: The episodes.
    """

    def __init__(self, episodes: Episodes) -> None:
        self.episodes = episodes
        self._folders = label_rows.folders_of(episodes.source)
        self._row_of_episode = functools.lru_cache(maxsize=1000)(
            functools.partial(table_row, episodes.source)
        )

    def __iter__(self) -> Iterator[Label]:
        digests = {*self.digests}
        labels = label_rows.valid_labels(self._folders)
        return iter([row for row in labels if row.episode in digests])

    @functools.cached_property
    def _episode_rows(self) -> list[dict[str, Any]]:
        """The digests, keys and lengths of the episodes."""
        episode_rows: list[dict[str, Any]]
        episode_rows = self.episodes.table().arrow(["digest", "key", "steps"]).to_pylist()
        return episode_rows

    @functools.cached_property
    def digests(self) -> list[str]:
        """The digests by which labels refer to episodes; empty for damaged episodes."""
        return [(row["digest"] or b"").hex() for row in self._episode_rows]

    def _create_row(self, episode: int) -> dict[str, Any]:
        """Returns the table row of an episode; computes it if the table is not loaded."""
        if "_episode_rows" in self.__dict__ or not isinstance(self.episodes.source, Source):
            return self._episode_rows[episode]
        return self._row_of_episode(*self.episodes.locate(episode))

    def digest(self, episode: int) -> str:
        """Returns the digest by which labels refer to an episode, see `digests`."""
        return (self._create_row(episode)["digest"] or b"").hex()

    @property
    def keys(self) -> list[str]:
        """The keys of the episodes."""
        return [row["key"] for row in self._episode_rows]

    @property
    def lengths(self) -> list[int]:
        """The numbers of steps of the episodes; 0 for damaged episodes."""
        return [row["steps"] or 0 for row in self._episode_rows]

    def rows(self) -> list[Label]:
        """Returns all rows, also of replaced and retracted labels and of missing episodes."""
        return list(label_rows.rows(self._folders))

    def layers(self) -> dict[str, str]:
        """Returns the types of the layers, by name."""
        return label_rows.layer_types(self._folders)

    def all_layers(self) -> list[Layer]:
        """Returns the declared layers; describes undeclared layers from their labels."""
        layers, labels = self.declared_layers(), label_rows.valid_labels(self._folders)
        for name, kind in self.layers().items():
            rows = [row for row in labels if row.layer == name]
            values = {str(row.value): None for row in rows} if kind == "choice" else {}
            is_whole = bool(rows) and all(row.end is None for row in rows)
            choices = (*values,)[:_MAX_CHOICES]
            layers.setdefault(name, Layer(name=name, type=kind, choices=choices, whole=is_whole))
        return list(layers.values())

    def declared_layers(self) -> dict[str, Layer]:
        """Returns the declared layers, by name; see `declare`."""
        return label_rows.declared_layers(self._folders)

    def can_be_written(self) -> bool:
        """Returns True if the permissions of a folder allow to store labels."""
        return label_rows.can_be_written(self._folders)

    def state(self) -> tuple[Any, ...]:
        """Returns a cache key that changes with each new label."""
        return label_rows.state_of(self._folders)

    def declare(self, layer: Layer) -> None:
        """Declares a layer: its type, choices and keys; replaces an earlier declaration.

        Raises:
          OSError: No folder for labels is writable.
          ValueError: The layer has labels of another type.
        """
        label_rows.declare(self._folders, [layer])

    def of_episode(self, episode: int) -> list[Label]:
        """Returns the valid labels of an episode.

        Raises:
          IndexError: There is no such episode.
        """
        labels = label_rows.valid_labels(self._folders)
        digest = self.digest(episode) if labels else ""
        return [row for row in labels if row.episode == digest]

    def history(self, episode: int) -> list[Label]:
        """Returns all rows of an episode, including replaced and retracted labels.

        Raises:
          IndexError: There is no such episode.
        """
        digest = self.digest(episode)
        return [row for row in label_rows.rows(self._folders) if row.episode == digest]

    def add(
        self,
        layer: str,
        episode: int,
        value: bool | float | str,
        begin: int | None = None,
        end: int | None = None,
        *,
        by: str,
        type: str | None = None,
        tool: str = "",
    ) -> Label:
        """Adds a label; it replaces the label of the same annotator for the same steps.

        Args:
          layer: The layer; its first label creates it.
          episode: The index of the episode.
          value: The value of the label.
          begin: The first labelled step; None for the whole episode.
          end: The step after the last one.
          by: The annotator.
          type: The type of a new layer: flag, choice, text or number. By default, the type of the
            value (choice for text).
          tool: The program.

        Raises:
          IndexError: There is no such episode.
          OSError: No folder for labels is writable.
          rlds.sources.SourceChangedError: The dataset was replaced since it was opened.
          ValueError: An argument is not valid, or does not match the layer.
        """
        value = getattr(value, "item", lambda: value)()  # NumPy scalars become Python scalars.
        value = float(value) if value.__class__ is int else value
        kind = self.layers().get(layer, type or label_rows.type_of(value))
        if type not in (None, kind):
            raise ValueError(f"type: got {type!r}, but the layer {layer!r} has the type {kind}")
        identity = {"episode": self.digest(episode), "key": self._create_row(episode)["key"]}
        attributes: dict[str, Any] = {"begin": begin, "end": end, "annotator": by, "tool": tool}
        row = Label(layer=layer, type=kind, value=value, **identity, **attributes)
        self._add_rows([row], {row.episode: self._create_row(episode)["steps"]})
        return row

    def add_rows(self, rows: Sequence[Label]) -> None:
        """Adds either all or none of the rows, unchanged.

        Raises:
          OSError: No folder for labels is writable.
          rlds.sources.SourceChangedError: The dataset was replaced since it was opened.
          ValueError: A row is of an unknown episode or of missing steps, or does not match its
            layer.
        """
        self._add_rows(rows, {d: k["steps"] for d, k in zip(self.digests, self._episode_rows)})

    def _add_rows(self, rows: Sequence[Label], lengths: Mapping[str, int]) -> None:
        layers = self.layers()
        for row in rows:
            if (steps := lengths.get(row.episode)) is None:
                raise ValueError(f"episode: no episode has the digest {row.episode}")
            if row.end is not None and row.end > steps:
                raise ValueError(f"end: got {row.end}, but episode {row.key!r} has {steps} steps")
            if (kind := layers.setdefault(row.layer, row.type)) != row.type:
                raise ValueError(f"layer {row.layer!r} has the type {kind}, got a {row.type}")
        check = functools.partial(reading.check, self.episodes.source)
        label_rows.append(self._folders, rows, check)

    def retract(
        self,
        layer: str,
        episode: int,
        begin: int | None = None,
        end: int | None = None,
        *,
        by: str,
        tool: str = "",
    ) -> None:
        """Retracts a label, with the arguments of `add`.

        Raises:
          IndexError: There is no such episode.
          KeyError: There is no such label.
          OSError: No folder for labels is writable.
          rlds.sources.SourceChangedError: The dataset was replaced since it was opened.
        """
        target = (by, layer, self.digest(episode), begin, end)
        labels = [row for row in self.of_episode(episode) if row.target == target]
        if not labels:
            raise KeyError(f"episode {episode} has no label {layer} {begin}:{end} by {by}")
        new: dict[str, Any] = {"id": uuid.uuid4().hex, "at": label_rows.now(), "tool": tool}
        row = dataclasses.replace(labels[0], value=None, retracts=labels[0].id, **new)
        self._add_rows([row], {row.episode: self._create_row(episode)["steps"]})
