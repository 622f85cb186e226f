"""Copies data in any format to a dataset of which feeds read single steps in place."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

import rlds
import tfds_files
from rlds.feeds.images import ImageDecoder, ImageError
from rlds.feeds.resizing import resize
from rlds.formats.tfds.export import said_of_fields
from rlds.raw_files.untrusted import source_errors
from rlds.sources.episode_fields import fields_of
from rlds.sources.episodes import Episodes
from rlds.sources.opening import format_of
from rlds.sources.opening import open as open_episodes
from rlds.sources.registry import formats
from rlds.sources.source import Examples, SourceError, files_of
from rlds.sources.stored_features import as_features
from rlds.validation import Validator
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.whole_files import made_at_once
from rlds_ecosystem.model.columns import stack_values
from rlds_ecosystem.model.fields import match_columns
from rlds_ecosystem.model.nests import leaves_at, map_named_leaves, nest
from rlds_ecosystem.progress import show_progress
from tfds_files.example_scan import direct_encoding
from tfds_files.features import Dataset, Features, Image, Tensor
from tfds_files.summary import INFO_FILE

__all__ = ["materialise"]

# Features that are a `Tensor` and no more; others say what its numbers mean.
_PLAIN = ("", "Tensor", "Scalar")


def materialise(
    source: str | os.PathLike[str] | Episodes,
    directory: str | os.PathLike[str],
    *,
    split: str | None = None,
    fields: Iterable[str] | None = None,
    name: str | None = None,
    images: Literal["stored", "png", "raw"] = "stored",
    png_level: int | None = None,
    image_size: tuple[int, int] | None = None,
    jpeg: Literal["accurate", "tf"] = "accurate",
    max_episodes_per_shard: int = 1000,
    progress: bool | None = False,
    **options: Any,
) -> str:
    """Copies episodes to a dataset that feeds read in place, and TFDS reads, too.

    Numbers are stored uncompressed, each value of a field in as many bytes as the others. Images
    stay what they are, files or pixels, unless you ask for something else. All that is known of
    episodes is kept, as by `tfds_builders.convert`.

    The directory has the dataset when it is complete, and not before. What a process left that was
    killed is removed by the next call.

    Args:
      source: What `rlds.sources.open` takes, or the episodes that it returns.
      directory: Where the dataset is to be, on this machine; it must be empty, or not exist.
      split: The split, or a part such as `train[:90%]`; all splits by default.
      fields: Paths of the fields of a step to copy, beside the flags; all by default.
      name: The name of the dataset; by default the one that it has, or "materialised".
      images: What becomes of images. "stored" leaves them as they are. "raw" stores pixels, which
        feeds copy instead of decoding files: that takes several times the space, and a small part
        of the time. "png" stores uint8 arrays of shape `(height, width, 1 | 3 | 4)` as PNG files,
        which are smaller, and slower to write and to read; not for datasets of TFDS.
      png_level: The effort that goes into PNG files, 0 to 9 as for `zlib.compress`. If None, 1,
        which is fast, or 6 for images that become small. All levels keep the pixels.
      image_size: With "raw", the height and width that uint8 images get, see
        `rlds.feeds.resizing.resize`; those that they have by default.
      jpeg: With "raw", which pixels JPEG files have, see `rlds.feeds.open`.
      max_episodes_per_shard: How many episodes a file takes.
      progress: Whether to show a progress bar; if None, on a terminal.
      **options: Options of the format of the source.

    Returns:
      The directory.

    Raises:
      FileExistsError: There is something in the directory, or another process writes to it.
      FileNotFoundError: There is nothing at the path of the source.
      KeyError: There is no such split, or no such field.
      SourceError: An episode is damaged, or breaks a rule of RLDS; says where.
      ValueError: The directory is not on this machine, a field cannot be stored, or images have no
        fixed size.
      OSError: The dataset cannot be written.

    >>> import tempfile
    >>> import envlogger
    >>> from envlogger.testing.catch_env import Catch
    >>> log = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=log) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> directory = materialise(log, f"{tempfile.mkdtemp()}/catch")
    >>> tfds_files.open_folder(directory)["train"][0]["steps"]["action"][:3]
    array([1, 1, 1])
    """
    all_episodes = _splits_of(source, split, options)
    first = all_episodes[0]
    if images not in ("stored", "png", "raw"):
        raise ValueError(f"images must be 'stored', 'png' or 'raw', got {images!r}")
    if image_size is not None and images != "raw":
        raise ValueError(f"image_size needs images='raw', got images={images!r}")
    wanted = None if fields is None else [*dict.fromkeys([*fields, *first.source.fields.flags])]
    if (stored := first.source.can.examples) is not None:
        copy = _copy_of_folder(first.source, stored, wanted)
    else:
        copy = _copy_of_source(first, wanted, images == "png")
    if images == "raw":
        copy = _raw(copy, image_size, jpeg)
    if not stores.is_local(directory):
        raise ValueError(
            f"{os.fspath(directory)}: feeds read local datasets only; pass a local folder"
        )
    with made_at_once(directory) as place, show_progress(progress) as bars:
        place.mkdir()
        with tfds_files.append_to(
            place,
            copy.features,
            name or copy.name or "materialised",
            description=first.source.about.description,
            citation=first.source.about.citation,
            metadata={**first.metadata, **said_of_fields(first.source, as_texts=False)},
            max_examples_per_shard=max_episodes_per_shard,
            png_level=png_level,
        ) as writer:
            for episodes in all_episodes:
                task = bars.add_task(f"episodes of {episodes.split}", total=None)
                for split_of, key, example in copy.examples(episodes):
                    with source_errors(files_of(first.source), episode=key):
                        writer.add(example, split_of)
                    bars.advance(task)
        if not (place / INFO_FILE).exists():
            raise SourceError("the dataset has no episode to copy", file=files_of(first.source))
        for made in tfds_files.open_folder(place).values():
            tfds_files.open_indexes(made)
    return os.fspath(directory)


def _splits_of(
    source: str | os.PathLike[str] | Episodes, split: str | None, options: Mapping[str, Any]
) -> list[Episodes]:
    """The episodes of each split, or those of the one that is requested."""
    if isinstance(source, Episodes):
        if options:
            raise TypeError(
                f"option {min(options)!r}: pass it to rlds.sources.open, not with opened episodes"
            )
        return [source if split is None else Episodes(source.source, split, format=source.format)]
    if split is not None:
        return [open_episodes(source, split, **options)]
    given = dict(options)
    name = given.pop("format", None) or format_of(source)
    opened = formats()[name].source(source, **given)
    return [Episodes(opened, each, format=name) for each in opened.splits]


# --- What is copied.


class _Copy(NamedTuple):
    """What a source becomes.

    Attributes:
      name: The name of the dataset, if it has one.
      features: What an example looks like.
      examples: Yields the split, the key and the fields of each episode.
    """

    name: str
    features: Features
    examples: Callable[[Episodes], Iterator[tuple[str, str, dict[str, Any]]]]


def _raw(copy: _Copy, size: tuple[int, int] | None, jpeg: Literal["accurate", "tf"]) -> _Copy:
    """The same copy with the pixels of images, perhaps in another size."""
    steps = copy.features[rlds.STEPS]
    assert isinstance(steps, Dataset)
    assert isinstance(steps.feature, Features)
    features: dict[str, Any] = dict(leaves_at(steps.feature, None))
    decoders: dict[str, ImageDecoder | None] = {}
    for path, feature in features.items():
        if not isinstance(feature, Tensor | Image) or len(feature.shape) != 3:
            continue
        *stored, channels = feature.shape
        is_resized = size is not None and feature.dtype == np.uint8
        if isinstance(feature, Image):
            kind = feature.encoding_format
            decoders[path] = ImageDecoder(
                feature.shape, feature.dtype, kind, jpeg=jpeg, threads=None
            )
        elif is_resized and channels in (1, 3, 4):
            decoders[path] = None  # They are pixels.
        else:
            continue
        height, width = size if size is not None and is_resized else stored
        if height is None or width is None:
            raise ValueError(f"{path}: the images have several sizes; pass image_size")
        shape = height, width, channels or 3
        encoding = direct_encoding(shape, feature.dtype)
        features[path] = Tensor(
            shape=shape, dtype=feature.dtype, encoding=encoding, doc=feature.doc
        )

    def pixels(path: str, column: Any) -> np.ndarray:
        decoder = decoders[path]
        images = column if decoder is None else decoder.decode(list(column))
        if size is None or features[path].dtype != np.uint8:
            return np.asarray(images)
        resized = np.empty((len(images), *features[path].shape), np.uint8)
        for row, image in enumerate(images):
            resized[row] = resize(image, size)
        return resized

    def examples(episodes: Episodes) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for split, key, example in copy.examples(episodes):
            columns = dict(leaves_at(example[rlds.STEPS], None))
            for path in decoders:
                try:
                    columns[path] = pixels(path, columns[path])
                except ImageError as error:
                    file = files_of(episodes.source)
                    raise SourceError(
                        error.what, file=file, episode=key, row=error.row, field=path
                    ) from error
            yield split, key, {**example, rlds.STEPS: nest(columns)}

    made = dataclasses.replace(steps, feature=as_features(nest(features)))
    all_features = {**copy.features.features, rlds.STEPS: made}
    return copy._replace(
        features=dataclasses.replace(copy.features, features=all_features), examples=examples
    )


def _copy_of_folder(source: Any, stored: Examples, wanted: list[str] | None) -> _Copy:
    """Examples of TFDS stay what they are; but for how they are stored."""
    folder = tfds_files.open_folder(stored.directory, decode_images=False)
    features = _direct(folder.features)
    paths = [*features]
    if wanted is not None:
        steps = features[rlds.STEPS]
        assert isinstance(steps, Dataset)
        assert isinstance(steps.feature, Features)
        kept = nest(dict(leaves_at(steps.feature, wanted)))
        steps = dataclasses.replace(steps, feature=as_features(kept))
        features = dataclasses.replace(features, features={**features.features, rlds.STEPS: steps})
        paths.remove(rlds.STEPS)
        paths += [f"{rlds.STEPS}/{path}" for path in wanted]

    def examples(episodes: Episodes) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for split, begin, end in episodes.ranges:
            for index in range(begin, end):
                key = source.key(split, index)
                with source_errors(stored.directory, episode=key):
                    yield split, key, folder[split].example(index, paths)

    return _Copy(folder.name, features, examples)


def _direct(feature: Any) -> Any:
    """A feature with its tensors in the encoding that makes their elements direct."""
    if isinstance(feature, Features):
        children = {name: _direct(child) for name, child in feature.items()}
        return dataclasses.replace(feature, features=children)
    if isinstance(feature, Dataset):
        return dataclasses.replace(feature, feature=_direct(feature.feature))
    if isinstance(feature, Tensor) and feature.class_name.rpartition(".")[2] in _PLAIN:
        encoding = direct_encoding(feature.shape, feature.dtype)
        return dataclasses.replace(feature, encoding=encoding, class_name="")
    return feature


def _copy_of_source(episodes: Episodes, wanted: list[str] | None, images_as_png: bool) -> _Copy:
    """Episodes become what a conversion makes of them, too."""
    others = dict(episodes.spec)
    steps = nest(dict(leaves_at(others.pop(rlds.STEPS), wanted)))
    features = as_features({rlds.STEPS: steps, **others}, images_as_png)
    features = dataclasses.replace(
        features,
        features={**features.features, rlds.STEPS: Dataset(feature=features[rlds.STEPS])},
    )

    def examples(episodes: Episodes) -> Iterator[tuple[str, str, dict[str, Any]]]:
        finite = set(episodes.source.about.finite) & dict(leaves_at(steps, None)).keys()
        validator = Validator(finite)
        for index, episode in enumerate(episodes):
            fields = fields_of(episode)
            columns = nest(dict(leaves_at(episode.steps, wanted)))
            for violation in validator.add({rlds.STEPS: columns, **fields}):
                raise SourceError(
                    violation.what,
                    file=episode.origin.file,
                    episode=episode.key,
                    row=violation.step,
                    field=violation.field,
                )
            with source_errors(episode.origin.file, episode=episode.key):
                example = match_columns(stack_values([fields]), others, rows=1, where=episode.key)
                example = map_named_leaves(lambda _, column: column[0], example)
                example[rlds.STEPS] = match_columns(
                    columns, steps, rows=episode.num_steps, where=episode.key
                )
            yield episodes.place(index)[0], episode.key, example

    return _Copy("", features, examples)
