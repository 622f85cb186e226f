"""Episodes of any source as a dataset of TFDS; those of such datasets are copied as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import google_crc32c
import numpy as np
from typing_extensions import override

import rlds
import tfds_files
from rlds.formats.tfds.source import FIELDS, FolderSource
from rlds.sources import reading
from rlds.sources.episode_fields import EPISODE_FIELDS, fields_of
from rlds.sources.episodes import Episodes
from rlds.sources.sidecar import field_json
from rlds.sources.source import AnySource, Place, SourceEpisode
from rlds.sources.view import stored_at
from rlds.sources.writing import Export, Placement, as_it_was, encoding_of
from rlds_ecosystem.model.fields import Field, as_fields
from rlds_ecosystem.model.nests import leaves_at, map_named_leaves
from tfds_files.features import Dataset, Feature, Features, Image, Tensor

__all__ = ["TfdsExport", "said_of_fields"]

# What a shard has at most, as TFDS recommends.
_SHARD_BYTES, _SHARD_EXAMPLES = 128 << 20, 10_000
_CHANNELS = (1, 3, 4)
# What `dataset_info.json` says of a dataset whichever examples it has.
_KEPT = ("configName", "configDescription", "configTags", "moduleName", "releaseNotes")
# The class of strings that are no texts.
_TENSOR = "tensorflow_datasets.core.features.tensor_feature.Tensor"


def said_of_fields(source: AnySource, *, as_texts: bool = True) -> dict[str, Any]:
    """Returns the metadata of what features cannot say of fields: the meaning of their values.

    Args:
      source: The source of the fields.
      as_texts: Whether to say which strings are texts, or files of images, too.
    """
    fields = as_fields({rlds.STEPS: source.fields.steps, **source.fields.episode})
    said = {
        path: field_json(field)
        for path, field in leaves_at(fields, None)
        if isinstance(field, Field) and (field.meaning or (as_texts and _is_more(path, field)))
    }
    return {FIELDS: said} if said else {}


def _is_more(path: str, field: Field) -> bool:
    is_of_steps = path.startswith(f"{rlds.STEPS}/")
    return field.dtype == str or (bool(field.encoding) and not is_of_steps)


class TfdsExport(Export):
    """A dataset of TFDS, with nested steps, in one folder.

    Examples of datasets of TFDS with the same fields are copied as they are stored. `rlds convert`
    makes such datasets, too, in several processes and going on after an interruption.

    Args:
      episodes: The episodes.
      name: The name of the dataset; by default, that which it had, or `dataset`.
      version: Its version; by default, that which it had, or 1.0.0.
      file_format: The format of its files; by default, that which they had, or "tfrecord".
      png_level: The effort that goes into PNG files, 0 to 9 as for `zlib.compress`. If None, 1,
        which is fast, or 6 for images that become small. All levels keep the pixels.
    """

    format = "tfds"
    keeps_splits: ClassVar[bool] = True
    needed_flags = ()  # It copies them as they are.
    statistics = ("dataset_statistics*.json",)  # dlimp, Octo and OpenVLA make them anew.

    def __init__(
        self,
        episodes: Episodes,
        *,
        name: str | None = None,
        version: str | None = None,
        file_format: Literal["tfrecord", "array_record"] | None = None,
        png_level: int | None = None,
    ) -> None:
        super().__init__(episodes)
        self._stored = _stored_source(episodes)
        folder = self._stored.folder if self._stored is not None else None
        self._features = _features_of(episodes) if folder is None else folder.features
        if rlds.metadata.EPISODE_ID not in self._features:
            self.unchecked = {"key"}  # It is the name of a file.
        said = _about_files(episodes)
        formats = ("tfrecord", "array_record")
        known = said.get("fileFormat") if said.get("fileFormat") in formats else formats[0]
        self._arguments: dict[str, Any] = {
            "name": name or str(said.get("name", "")) or "dataset",
            "version": version or str(said.get("version", "")) or "1.0.0",
            "file_format": file_format or known,
            "png_level": png_level,
            "others": {name: said[name] for name in _KEPT if name in said},
        }

    @override
    def placements(self) -> Sequence[Placement]:
        return as_it_was(self.episodes)

    @override
    def write(self, path: Path) -> None:
        source = self.episodes.source
        with tfds_files.DatasetWriter(
            path,
            self._features,
            **self._arguments,
            description=source.about.description,
            citation=source.about.citation,
            homepage=source.about.homepage,
            license=source.about.license,
            metadata={**self.episodes.metadata, **said_of_fields(self.episodes.source)},
            max_examples_per_shard=_SHARD_EXAMPLES,
            max_bytes_per_shard=_SHARD_BYTES,
        ) as writer:
            for episode in self.each_or_stored(self._copies):
                split, _ = self.episodes.place(self.number)
                if isinstance(episode, Place):
                    writer.add_encoded(_example(episode), split)
                else:
                    writer.add(self._example_of(episode), split)

    @override
    def read_options(self) -> Mapping[str, Any]:
        fields = leaves_at(self.episodes.source.fields.steps, None)
        return {"decode_images": not any(encoding_of(field) for _, field in fields)}

    def _copies(self, place: Place) -> bool:
        source = place.source
        if (self._stored is None and self.staged is None) or not isinstance(source, FolderSource):
            return False
        return source is self._stored or source.folder.features == self._features

    @override
    def stored_digest(self, place: Place) -> int:
        return int(google_crc32c.value(bytes(_example(place))))

    def _example_of(self, episode: SourceEpisode) -> dict[str, Any]:
        """The fields of an example; a dataset need not have those of all episodes."""
        fields = fields_of(episode)
        known = {name: value for name, value in fields.items() if name in self._features}
        return {**known, rlds.STEPS: episode.steps}


def _example(place: Place) -> bytes | bytearray:
    assert isinstance(place.source, FolderSource)
    with reading.errors_of(place.source, place.index):
        return place.source.folder[place.split].example_bytes(place.index)


def _about_files(episodes: Episodes) -> Mapping[str, Any]:
    """What `dataset_info.json` says of the first dataset of TFDS that the episodes are from."""
    found = [base for base in reading.bases(episodes.source) if isinstance(base, FolderSource)]
    return found[0].folder.info if found else {}


def _stored_source(episodes: Episodes) -> FolderSource | None:
    """The first dataset whose examples are copied, if all episodes have the fields that it has."""
    source = episodes.source
    for index in range(len(episodes)):
        place = stored_at(source, *episodes.place(index))
        if place is not None and isinstance(place.source, FolderSource):
            stored = reading.with_image_files(place.source)
            now = reading.with_image_files(source)
            same = stored.fields.steps == now.fields.steps
            return stored if same and stored.fields.episode == now.fields.episode else None
    return None


def _features_of(episodes: Episodes) -> Features:
    """The features of a dataset whose examples hold all fields without loss."""
    steps = as_fields(episodes.source.fields.steps)
    flags = dict.fromkeys(episodes.source.fields.flags, Field(np.bool_))
    as_png = episodes.source.about.images_as_png
    feature = _feature({**steps, **flags}, rlds.STEPS, as_png)
    others = as_fields({**EPISODE_FIELDS, **episodes.source.fields.episode})
    others = map_named_leaves(lambda path, field: _as_file(field), others)
    children = {name: _feature(field, name, False) for name, field in sorted(others.items())}
    return Features(features={**children, rlds.STEPS: Dataset(feature=feature)})


def _as_file(field: Any) -> Any:
    """A field of an episode: an image that is a file stays one, of which TFDS has bytes."""
    return Field(bytes, doc=field.doc) if isinstance(field, Field) and field.encoding else field


def _feature(field: Any, path: str, as_png: bool) -> Feature:
    if isinstance(field, Mapping):
        return Features(
            features={
                name: _feature(child, f"{path}/{name}", as_png)
                for name, child in sorted(field.items())
            }
        )
    if not isinstance(field, Field):
        raise ValueError(f"{path}: {field} cannot be stored")
    shape, dtype = field.shape, field.column_dtype
    is_image = dtype == np.uint8 and len(shape) == 3 and shape[2] in _CHANNELS and 0 not in shape
    if field.encoding or (is_image and as_png):
        return Image(
            shape=shape, dtype=dtype, encoding_format=field.encoding or "png", doc=field.doc
        )
    # TFDS keeps float64 as float32, and sizes that vary as one size, unless they are bytes.
    is_even = None not in shape and 0 not in shape
    is_plain = is_even and (dtype.kind in "biuO" or dtype == np.float32)
    encoding = "none" if is_plain or dtype.kind == "O" else "bytes"
    class_name = _TENSOR if np.dtype(field.dtype).kind in "SO" else ""
    return Tensor(shape=shape, dtype=dtype, encoding=encoding, doc=field.doc, class_name=class_name)
