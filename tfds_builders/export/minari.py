"""Writes Minari datasets: what was converted from Minari as it was, and any other RLDS dataset."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import tensorflow_datasets as tfds

from rlds.sources.minari.attributes import IRREGULAR
from rlds.sources.minari.formats import FORMATS, open_writer
from rlds.sources.minari.places import make_namespaces, new_dataset
from rlds.sources.minari.source import METADATA_KEY
from rlds.sources.minari.storage import REWARDS
from tfds_builders.export.minari_recorded import Episodes, MinariEpisodes
from tfds_builders.export.minari_rlds import DROP, RldsEpisodes

__all__ = ["export_minari"]


def export_minari(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder,
    target: str | os.PathLike[str],
    *,
    data_format: str | None = None,
    split: str = "train",
    fields: Collection[str] | None = None,
    episode_fields: Collection[str] | None = None,
    unknown_final_observation: Literal["error", "drop_last_transition"] = "error",
    metadata: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes the episodes of an RLDS dataset as a Minari dataset.

    If the dataset was converted from Minari (see `MinariSource`), the same comes out: every array,
    with its dtype, every attribute, and metadata.json, but for what is different then: the format,
    the size of the files, the identifier, and, if not all episodes are written, their numbers. Raw
    images, which Minari itself can read no more from datasets older than 0.5.3, are declared
    (`jpeg_encoding`), so that it can; and where HDF5 becomes a table, columns have the same dtypes
    in all episodes, for the same reason.

    For other datasets, the spaces are made from the features: a `Box` without bounds other than
    those of the dtype, `Discrete` for a `ClassLabel`, `Text`, and a `Dict` for a dict. Images stay
    JPEG files if that is what all images of observations and actions are that Minari takes for
    images; otherwise the arrays are written. The discount and all other fields of steps become
    infos; episode metadata becomes attributes below `rlds`.

    Args:
      dataset: The directory of a dataset that TFDS has written, or a builder.
      target: Where to: the identifier of a dataset (a `str` such as "mujoco/hopper/medium-v0"),
        below the directory that Minari looks in; or a path (a `pathlib.Path`, or a `str` that is
        absolute or begins with "./") that ends with `<name>-v<number>`.
      data_format: "hdf5", "arrow" or "parquet"; if None, what it was, or "hdf5".
      split: The split, or a part of it, such as "train[:10]".
      fields: The fields of a step to write, as for `rlds.tfds.load`. Not for a dataset that was
        converted from Minari.
      episode_fields: The fields of an episode to write, likewise.
      unknown_final_observation: What to do with an episode whose final observation is not known,
        which Minari cannot hold: an error, or to leave out its last transition.
      metadata: More fields for metadata.json, or others, such as `author` or `env_spec`.

    Returns:
      The directory of the Minari dataset.

    Raises:
      FileExistsError: There is something at this place. It is left as it is.
      ImportError: The library for the format is not installed.
      ValueError: Minari cannot hold the dataset, or an argument is wrong. Nothing is left behind.
    """
    if data_format not in (None, *FORMATS):
        raise ValueError(f"data_format: {data_format!r}, expected one of {FORMATS}")
    if unknown_final_observation not in ("error", DROP):
        raise ValueError(
            f"unknown_final_observation: {unknown_final_observation!r}, expected 'error' or "
            f"{DROP!r}"
        )
    builder = dataset
    if not isinstance(builder, tfds.core.DatasetBuilder):
        builder = tfds.builder_from_directory(os.fspath(builder))
    num_episodes = builder.info.splits[split].num_examples
    is_converted = METADATA_KEY in (builder.info.metadata or {})
    if is_converted and IRREGULAR in builder.info.features:
        if fields is not None or episode_fields is not None:
            raise ValueError("fields: a dataset that was converted from Minari is exported whole")
        episodes: Episodes = MinariEpisodes(builder.info, num_episodes, data_format)
    else:
        drop = unknown_final_observation == DROP
        episodes = RldsEpisodes(builder.info, fields, episode_fields, drop=drop)
    data_format = data_format or episodes.recorded.get("data_format", "hdf5")
    directory, dataset_id = new_dataset(target, episodes.recorded.get("dataset_id", ""))
    given = dict(metadata or {})
    computed = {"total_episodes", "total_steps", "data_format", "dataset_id", "dataset_size"}
    for name in sorted(given.keys() & (computed | {"observation_space", "action_space"})):
        raise ValueError(f"metadata: {name!r} comes from the dataset; leave it out")
    if directory.exists():
        raise FileExistsError(f"{directory} exists and is not overwritten")
    with _draft(directory) as draft:
        data = draft / "data"
        data.mkdir()
        total_steps = 0
        with open_writer(data_format, data, episodes.spaces) as writer:
            for number, example in enumerate(episodes.examples(builder, split)):
                index, episode = episodes.episode(example, number)
                try:
                    writer.add(index, episode)
                except ValueError as error:
                    raise ValueError(f"episode {index}: {error}") from error
                total_steps += len(episode.columns[REWARDS].values)
        described = {
            **episodes.metadata(),
            "total_episodes": num_episodes,
            "total_steps": total_steps,
            "data_format": data_format,
            "dataset_id": dataset_id,
            **given,
        }
        described["dataset_size"] = _size_in_megabytes(data)
        (data / "metadata.json").write_text(json.dumps(described))
    make_namespaces(directory)
    return directory


@contextlib.contextmanager
def _draft(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory that takes the name of another one when it is complete, or goes away."""
    # A hidden name, so that Minari does not see it.
    draft = directory.with_name(f".{directory.name}.incomplete-{os.getpid()}")
    new_parents = [parent for parent in directory.parents if not parent.exists()]
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.rename(directory)
    except BaseException:
        shutil.rmtree(draft)
        with contextlib.suppress(OSError):  # Somebody else writes there by now.
            for parent in new_parents:
                parent.rmdir()
        raise


def _size_in_megabytes(data: pathlib.Path) -> float:
    size = sum(path.stat().st_size for path in data.rglob("*"))
    return round(size / 1_000_000, 1)
