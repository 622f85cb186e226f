"""Exports episodes as a dataset of TFDS; examples of such datasets are copied."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import re
import uuid
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import google_crc32c
import numpy as np
from typing_extensions import override

import rlds
import tfds_files
from rlds.formats.tfds.encoding import RAW, EpisodeEncoder, counts_of
from rlds.formats.tfds.episode_groups import in_groups
from rlds.formats.tfds.features import TensorStorage, features_of
from rlds.formats.tfds.source import FIELDS, FolderSource
from rlds.raw_files.untrusted import SourceError
from rlds.sources import lineage, reading
from rlds.sources.digests import difference
from rlds.sources.episode_fields import fields_of
from rlds.sources.episodes import Episodes
from rlds.sources.sidecar import field_json
from rlds.sources.source import INFO_TEXTS, AnySource, Location, Source, SourceEpisode, files_of
from rlds.sources.view import flat, stored_location
from rlds.sources.writing import Export, Placement, unchanged_placements
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.fields import Field, Opaque, as_fields
from rlds_ecosystem.model.nests import leaves_at
from tfds_files.errors import TfdsFilesError
from tfds_files.example_scan import direct_encoding
from tfds_files.features import (
    Dataset,
    Features,
    Tensor,
    check_features,
    images_as_bytes,
    parse_features,
)
from tfds_files.folder import TEMPLATE, shard_name
from tfds_files.growing import GROWING_TEMPLATES
from tfds_files.indexing import save_index
from tfds_files.record_files import RecordFile, TFRecordWriter, write_records
from tfds_files.summary import FEATURES_FILE, read_json
from tfds_files.writing import describe, info_of, num_shards, order_of, shard_ends

__all__ = ["CONVERSION", "TfdsExport", "check_name", "digest_of_inputs", "field_metadata"]

CONVERSION = "conversion"
"""The metadata key of the counts of a conversion."""

_FORMATS = ("tfrecord", "array_record", "parquet")
# Entries of `dataset_info.json` that do not depend on the examples.
_COPIED_INFO_KEYS = ("configName", "configDescription", "configTags", "moduleName", "releaseNotes")
# Plain tensor features; other features give their numbers a meaning.
_PLAIN_FEATURES = ("", "Tensor", "Scalar")
# Larger examples are always decoded and compared; one smaller example of each group is compared.
_MAX_GROUPED_BYTES = 1 << 14
# The name of the datasets of staged parts.
_PART_NAME = "part"
# The bytes of examples that are read together, and written in another order.
_REORDERED_BYTES = 1 << 25


def field_metadata(source: AnySource, *, as_texts: bool = True) -> dict[str, Any]:
    """Returns metadata with the meaning of fields, which TFDS features cannot express.

    Args:
      source: The source of the fields.
      as_texts: Whether to mark strings as texts or image files.
    """
    fields = as_fields({rlds.STEPS: source.fields.steps, **source.fields.episode})
    fields_json = {
        path: field_json(field)
        for path, field in leaves_at(fields, None)
        if isinstance(field, Field)
        and (field.meaning or (as_texts and _has_text_or_image(path, field)))
    }
    return {FIELDS: fields_json} if fields_json else {}


def _has_text_or_image(path: str, field: Field) -> bool:
    is_step_field = path.startswith(f"{rlds.STEPS}/")
    return field.dtype == str or (bool(field.encoding) and not is_step_field)


def check_name(name: str) -> None:
    """Raises a `ValueError` unless `tfds.load` can find a dataset of this name."""
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"{name!r} is not a valid dataset name; use lower-case letters, digits and '_', "
            "beginning with a letter."
        )


def digest_of_inputs(source: AnySource) -> str:
    """Returns a digest of the names and sizes of the input files."""
    files = []
    for path in map(stores.as_path, source.inputs()):
        with contextlib.suppress(FileNotFoundError):  # The input is not a file.
            files.append([path.name, path.stat().length])
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]


class TfdsExport(Export):
    """Writes a TFDS dataset folder, with nested steps.

    Examples of TFDS datasets with the same fields are copied undecoded.

    Args:
      episodes: The episodes.
      name: The name of the dataset; by default, the name of the source dataset, or `dataset`.
      version: The version; by default, the version of the source dataset, or 1.0.0.
      file_format: The file format; by default, the format of the source dataset, or "tfrecord".
      shuffle: True to store episodes in a random order (sorted by the hashes of their keys), as
        TFDS does; False to keep their order.
      num_shards: The number of files of each split; by default, TFDS chooses the number.
      shard_episodes: The largest number of episodes in a file, instead of `num_shards`.
      float64: The storage of float64 in steps: "bytes" (default) keeps every bit; "float32" rounds
        to plain numbers, as the loaders of dlimp, Octo and OpenVLA need.
      tensor_encoding: The storage of arrays in steps: "none" for plain numbers, where possible, or
        "zlib".
      layout: "direct" stores arrays such that feeds can read single steps; examples of TFDS
        datasets are encoded again.
      png_level: The compression level of PNG files, 0 to 9 as for `zlib.compress`. If None, 1
        (fast), or 6 for small images. All levels are lossless.

    Attributes:
      info: The content of `dataset_info.json`, without the splits.
      shard_sizes: The minimum and maximum size of a file in bytes, if `num_shards` is None.
    """

    format = "tfds"
    shard_sizes = (64 << 20, 1 << 30)
    keeps_splits: ClassVar[bool] = True
    from_parts: ClassVar[bool] = True
    compares_stored: ClassVar[bool] = True
    needed_flags = ()  # Examples are copied unchanged.
    statistics = ("dataset_statistics*.json",)  # dlimp, Octo and OpenVLA recompute statistics.

    def __init__(
        self,
        episodes: Episodes,
        *,
        name: str | None = None,
        version: str | None = None,
        file_format: Literal["tfrecord", "array_record", "parquet"] | None = None,
        shuffle: bool = False,
        num_shards: int | None = None,
        shard_episodes: int | None = None,
        float64: Literal["bytes", "float32"] | None = None,
        tensor_encoding: Literal["none", "zlib"] | None = None,
        layout: Literal["direct"] | None = None,
        png_level: int | None = None,
    ) -> None:
        super().__init__(episodes)
        source = episodes.source
        self._storage = TensorStorage(float64, tensor_encoding, layout, png_level)
        self._shuffle, self._num_shards, self._shard_episodes = shuffle, num_shards, shard_episodes
        for option, count in {"num_shards": num_shards, "shard_episodes": shard_episodes}.items():
            if count is not None and count < 1:
                raise ValueError(f"{option}: got {count}, expected at least 1")
        bases = reading.roots(source)
        self._checks = not all(isinstance(base, FolderSource) for base in bases)
        self._features_json: Any
        self._copied_source = base = _stored_source(episodes)
        if base is not None and layout is not None:
            self._copied_source, self._features = None, _with_byte_offsets(base.folder.features)
            self._features_json = self._features.to_json()
        elif base is None:
            self._features = features_of(source, self._storage)
            self._features_json = self._features.to_json()
            check_features(self._features)
        else:
            if (float64, tensor_encoding, png_level) != (None, None, None):
                raise ValueError(
                    f"{type(source).__name__}: the episodes are copied as they are stored, so "
                    "float64, tensor_encoding and png_level cannot change them. Read them with "
                    "rlds.tfds.load, and write them with rlds.tfds.EpisodeWriter, which has these "
                    "arguments."
                )
            self._features = base.folder.features
            self._features_json = read_json(base.directory / FEATURES_FILE)
        if rlds.metadata.EPISODE_ID not in self._features:
            self.unchecked = {"key"}  # The key is the name of a file.
        info = next((base.folder.info for base in bases if isinstance(base, FolderSource)), {})
        templates = {split.get("filepathTemplate") for split in info.get("splits", ())}
        self._grows = bool(templates) and templates <= {*GROWING_TEMPLATES}
        default = info.get("fileFormat") if info.get("fileFormat") in _FORMATS else _FORMATS[0]
        name = name or str(info.get("name", "")) or "dataset"
        version = version or str(info.get("version", "")) or "1.0.0"
        if file_format not in (None, *_FORMATS):
            raise ValueError(f"file_format: got {file_format!r}, expected one of {_FORMATS}")
        self.info: dict[str, Any] = {
            **{name: info[name] for name in _COPIED_INFO_KEYS if name in info},
            **info_of(
                *(name, version, str(file_format or default)),
                **{text: getattr(source.source_info, text) for text in INFO_TEXTS},
            ),
        }

    @override
    def placements(self) -> Sequence[Placement]:
        return unchanged_placements(self.episodes)

    @override
    def read_options(self) -> Mapping[str, Any]:
        return {"decode_images": False}

    @override
    def is_in_format(self, index: int) -> bool:
        return self._is_copied(stored_location(self.episodes.source, *self.episodes.locate(index)))

    def _is_copied(self, location: Location | None) -> bool:
        base = location and location.source
        if self._copied_source is None or not isinstance(base, FolderSource):
            return False
        return base is self._copied_source or base.folder.features == self._features

    @override
    def stored_digest(self, location: Location) -> int:
        return _digest(_example(location))

    @override
    def write(self, path: Path) -> None:
        if self.staged is None:
            self._write_part(path)
        else:
            self._write_whole(path)

    # --- Staged parts: a file for each split, in the order of the source.

    def _write_part(self, path: Path) -> None:
        path.mkdir()
        lengths: Counter[str] = Counter()
        counts: dict[str, Counter[str]] = collections.defaultdict(Counter)
        with contextlib.ExitStack() as files:
            writers: dict[str, TFRecordWriter] = {}
            for split, episode, example in self._encode_episodes():
                if split not in writers:
                    file = path / shard_name(TEMPLATE, _PART_NAME, split, _FORMATS[0], 0, 1)
                    writers[split] = files.enter_context(contextlib.closing(TFRecordWriter(file)))
                writers[split].write(example)
                lengths[split] += 1
                if self._checks:
                    counts[split].update(counts_of(episode))
                del episode  # Frees the memory before the next episode is read.
        splits = [_split_json(split, [length]) for split, length in lengths.items()]
        info = {**info_of(_PART_NAME, "1.0.0", _FORMATS[0]), "splits": splits}
        describe(path, info, self._features_json, {CONVERSION: counts})

    def _encode_episodes(self) -> Iterator[tuple[str, SourceEpisode, bytes]]:
        """Yields the splits, episodes and encoded examples of a part, and notifies the `watch`."""
        self.watch.begin()
        # Each part is checked by itself, independent of the worker.
        encoder = self._episode_encoder()
        damaged: SourceError | None = None
        is_any = False
        for group in in_groups(self._read()):
            key = encoder.encode_all([episode for _, episode in group])
            for row, (index, episode) in enumerate(group):
                try:
                    examples = encoder.encode(episode) if key is None else key[row]
                    if row == 0 or len(examples.example) > _MAX_GROUPED_BYTES:
                        self._check_encoded(*examples)
                    self.watch.note(index, examples.episode, _digest(examples.example))
                except SourceError as error:
                    self.watch.leave_out(index, error)
                    damaged = damaged or error
                else:
                    is_any = True
                    yield self.episodes.locate(index)[0], *examples
            group, key, episode, examples = [], None, None, None  # type: ignore[assignment]
        if damaged is not None and not is_any:
            raise damaged

    def _check_encoded(self, episode: SourceEpisode, example: bytes) -> None:
        """Checks that an encoded example holds its episode.

        Raises:
          ValueError: A value differs; the message names the field.
        """
        if self._decoder is None:
            return
        decoded_fields = self._decoder.decode(example)
        steps = decoded_fields.pop(rlds.STEPS)
        metadata = {name: v for name, v in fields_of(episode).items() if name in self._features}
        fields, restored_fields = flat(episode.steps, metadata), flat(steps, decoded_fields)
        for path in fields.keys() | restored_fields.keys():
            value, decoded_value = fields.get(path), restored_fields.get(path)
            if (change := difference(value, decoded_value)) and not _are_equal(
                value, decoded_value
            ):
                raise ValueError(
                    f"tfds, episode {episode.key}: {path} is not what was encoded: {change}"
                )

    @functools.cached_property
    def _decoder(self) -> tfds_files.ExampleDecoder | None:
        try:
            return tfds_files.ExampleDecoder(images_as_bytes(self._features))
        except tfds_files.UnsupportedFileError:
            return None

    def _read(self) -> Iterator[tuple[int, SourceEpisode]]:
        """Yields the episodes of a part with their indices."""
        hold_open = self.episodes.source.capabilities.hold_open or contextlib.nullcontext
        with hold_open():
            for index in itertools.count() if self.order is None else self.order:
                if not self.episodes.has(index):
                    return
                try:
                    yield index, self.read_episode(index)
                except SourceError as error:
                    self.watch.leave_out(index, error)

    def _episode_encoder(self) -> EpisodeEncoder:
        finite, level = self.episodes.source.source_info.finite_fields, self._storage.png_level
        rounds = self._storage.rounds
        return EpisodeEncoder(
            self._encoder, finite, checks=self._checks, rounds=rounds, png_level=level
        )

    @functools.cached_property
    def _encoder(self) -> tfds_files.ExampleEncoder:
        level = self._storage.png_level
        encoder = tfds_files.ExampleEncoder(self._features, png_level=level)
        fields = leaves_at(as_fields(self.episodes.spec), None)
        if not all(isinstance(field, Field | Opaque) for _, field in fields):
            # TFDS encodes values in other forms than those of its features.
            from rlds.tfds.examples import TfdsExampleEncoder

            encoder = TfdsExampleEncoder.of_json(self._features_json, png_level=level)
        return encoder

    # --- Final dataset: the order, the number of shards, and the shards, which workers write.

    def _write_whole(self, path: Path) -> None:
        self._check_files()
        path.mkdir()
        self.order = [index for indices in self._find_order().values() for index in indices]
        plans: dict[str, _ShardPlan] = {}
        for location in self.iter_items(lambda location: True):
            assert isinstance(location, Location)
            assert isinstance(location.source, FolderSource)
            split = self.episodes.locate(self.index)[0]
            plans.setdefault(split, _ShardPlan()).add(
                *location.source.folder[location.split].record(location.index)
            )
        assert self.staged is not None
        left_out = self._list_left_out({**self.staged.left_out, **self.watch.left_out})
        for split, errors in left_out.items():
            if split not in plans:
                problem = f"no episodes to convert ({len(errors)} were skipped)"
                raise SourceError(problem, file=f"split {split!r}")
        name, file_format = self.info["name"], self.info["fileFormat"]
        for split, plan in plans.items():
            per_shard = self._shard_episodes
            count = self._num_shards if per_shard is None else -(-len(plan.sizes) // per_shard)
            plan.cut(split, count, self.shard_sizes)
        template = self._template
        writer = _ShardWriter(path, name, template, file_format, self._features_json, plans)
        tasks = [(split, n) for split, plan in plans.items() for n in range(len(plan.shard_ends))]
        collections.deque(self.workers(writer, tasks), 0)
        splits = [
            _split_json(split, plan.shard_lengths, sum(plan.sizes), template)
            for split, plan in plans.items()
        ]
        source = self.episodes.source
        metadata = {**self.episodes.metadata, **field_metadata(source)}
        counts = self._counts({split: len(plan.sizes) for split, plan in plans.items()})
        self._check_totals(counts, left_out)
        if all("steps" in of_split for of_split in counts.values()):
            self.num_steps = sum(of_split["steps"] for of_split in counts.values())
        if self._is_conversion:
            original = metadata.get(CONVERSION)  # The entry of the copied dataset.
            metadata[CONVERSION] = {
                "inputs": digest_of_inputs(source),
                **({"float64": "float32"} if self._storage.rounds else {}),
                "splits": {
                    split: _report(of_split, left_out.get(split, ()))
                    for split, of_split in counts.items()
                },
                **({} if original is None else {"original": original}),
            }
        info = {**self.info, "splits": splits}
        describe(path, info, self._features_json, metadata or None)

    @property
    def _template(self) -> str:
        """The template of file names; edits of a growing dataset keep a growing one."""
        return GROWING_TEMPLATES[0] if self._grows and not self._is_conversion else TEMPLATE

    @property
    def _is_conversion(self) -> bool:
        """True if the dataset is a conversion, not an edit of another TFDS dataset."""
        done = [operation["do"] for operation in (self.lineage or {}).get("operations", ())]
        return lineage.CONVERT in done and {*done} <= {"keep", lineage.CONVERT}

    def _check_files(self) -> None:
        """Checks that copied files hold no more episodes than dataset_info.json declares."""
        source = self.episodes.source
        if not (isinstance(source, FolderSource) and self._is_conversion):
            return
        for split in source.splits:
            folder, lengths = source.folder[split], list[int]()
            with contextlib.suppress(TfdsFilesError):  # Reading its episodes raises the error.
                lengths = folder.stored_lengths()
            for file, listed, held in zip(folder.paths, folder.shard_lengths, lengths):
                if held > listed:
                    fault = f"the file has {held} episodes, but dataset_info.json declares {listed}"
                    raise SourceError(fault, file=file)

    def _find_order(self) -> dict[str, list[int]]:
        """Returns the indices of the episodes of each split, in the order of the dataset.

        Raises:
          SourceError: Two episodes have the same key.
        """
        keys: dict[str, dict[str, int]] = {}
        source, order = self.episodes.source, self.order
        orders: dict[str, list[int]] = {}
        for index in range(len(self.episodes)) if order is None else order:
            split, position = self.episodes.locate(index)
            orders.setdefault(split, []).append(index)
            if not (self._shuffle or self._checks):
                continue
            key = (
                source.key(split, position)
                if isinstance(source, Source)
                else self._staged_key(index)
            )
            if keys.setdefault(split, {}).setdefault(key, index) != index:
                raise SourceError(
                    f"another episode has the key {key!r}; keys must be unique",
                    file=f"split {split!r}",
                    episode=key,
                )
        if not self._shuffle:
            return orders
        return {
            split: [of_keys[key] for key in sorted(of_keys, key=functools.partial(order_of, split))]
            for split, of_keys in keys.items()
        }

    def _staged_key(self, index: int) -> str:
        """Returns the key of an episode from its example in a staged part."""
        assert self.staged is not None
        source, split, position = self.staged.locate(index)
        assert isinstance(source, FolderSource)
        name = rlds.metadata.EPISODE_ID
        return str(source.folder[split].example(position, [name])[name].decode())

    def _list_left_out(self, errors: Mapping[int, SourceError]) -> dict[str, list[dict[str, str]]]:
        """Returns the left-out episodes of each split: their keys, and the errors."""
        left_out: dict[str, list[dict[str, str]]] = {}
        source = self.episodes.source
        for index in sorted(errors):
            split, position = self.episodes.locate(index)
            error = errors[index]
            key = f"{os.path.basename(error.file)}:{error.episode}"
            if isinstance(source, Source):
                key = source.key(split, position)
            left_out.setdefault(split, []).append({"key": key, "why": str(error)})
        return left_out

    def _counts(self, num_episodes: Mapping[str, int]) -> dict[str, Counter[str]]:
        """Returns the counts of each split; for copies, only the number of episodes."""
        assert self.staged is not None
        totals: dict[str, Counter[str]] = {split: Counter() for split in num_episodes}
        for part in self.staged.sources() if self._checks else ():
            assert isinstance(part, FolderSource)
            for split, counts in part.folder.metadata[CONVERSION].items():
                totals[split].update(counts)
        for split, count in num_episodes.items():
            if totals[split]["episodes"] != count:
                totals[split] = Counter(episodes=count)
        return totals

    def _check_totals(
        self, counts: Mapping[str, Counter[str]], left_out: Mapping[str, Any]
    ) -> None:
        """Compares the counts of the episodes with the totals of the raw data."""
        source = self.episodes.source
        if source.capabilities.totals is None or self.episodes.split != "+".join(source.splits):
            return
        for split in counts.keys() - left_out.keys():
            for name, total in source.capabilities.totals(split).items():
                if (counted := counts[split][RAW + name]) != total:
                    raise SourceError(
                        f"the raw data of the split {split!r} has {total} {name}, but its episodes "
                        f"have {counted}. If the data is sound, please report this as a bug of the "
                        "source",
                        file=files_of(source),
                    )


class _ShardPlan:
    """A plan of the shards of a split: the source file and record of each example.

    Attributes:
      files: The files with the examples.
      file_indices: The index of the file of each example, in the order of the dataset.
      records: The index of the record of each example in its file.
      sizes: The size of each example in bytes.
      shard_ends: The end of the examples of each shard (exclusive).
    """

    def __init__(self) -> None:
        self.files: list[RecordFile] = []
        self.file_indices, self.records = array("l"), array("l")
        self.sizes = array("q")
        self.shard_ends: list[int] = []
        self._indices_by_file: dict[int, int] = {}

    def add(self, file: RecordFile, record: int) -> None:
        """Adds the next example."""
        if id(file) not in self._indices_by_file:
            self._indices_by_file[id(file)] = len(self.files)
            self.files.append(file)
        self.file_indices.append(self._indices_by_file[id(file)])
        self.records.append(record)
        self.sizes.append(file.size(record))

    def cut(self, split: str, count: int | None, shard_sizes: tuple[int, int]) -> None:
        """Cuts the examples into `count` shards; if None, TFDS chooses the number."""
        total = len(self.sizes)
        count = count or num_shards(sum(self.sizes), total, *shard_sizes)
        if count > total:
            raise ValueError(
                f"num_shards: got {count}, expected 1 to {total}, the number of episodes of the "
                f"split {split!r}"
            )
        self.shard_ends = shard_ends(total, count)

    @property
    def shard_lengths(self) -> list[int]:
        """The number of examples of each shard."""
        return [end - start for start, end in itertools.pairwise([0, *self.shard_ends])]

    def examples(self, shard: int) -> Iterator[bytes]:
        """Yields the examples of a shard.

        Their order may be random. A window is read file by file, from front to end.

        Raises:
          StorageError: An example is damaged.
        """
        start, end = ([0, *self.shard_ends][shard + side] for side in (0, 1))
        while start < end:
            stop, room = start, _REORDERED_BYTES
            while stop < end and (stop == start or self.sizes[stop] <= room):
                room -= self.sizes[stop]
                stop += 1
            window = range(start, stop)
            contents: dict[int, bytes | bytearray] = {}
            for row in sorted(window, key=lambda row: (self.file_indices[row], self.records[row])):
                file = self.files[self.file_indices[row]]
                try:
                    contents[row] = file.read(self.records[row])
                except (TfdsFilesError, IndexError) as error:
                    raise StorageError(
                        f"{error}. It was damaged since it was written or read: remove the file, "
                        "or its folder of parts, and convert again"
                    ) from error
            for row in window:
                yield bytes(contents.pop(row))
            start = stop


@dataclasses.dataclass(frozen=True)
class _ShardWriter:
    """Writes shards, each to a file; given to each worker."""

    folder: Path
    name: str
    template: str
    file_format: str
    features: Any
    plans: Mapping[str, _ShardPlan]

    def __call__(self, task: tuple[str, int]) -> None:
        """Writes a shard of a split, unless it exists."""
        split, shard = task
        plan = self.plans[split]
        count = len(plan.shard_ends)
        name = shard_name(self.template, self.name, split, self.file_format, shard, count)
        if (self.folder / name).exists():
            return
        # Another worker may write the same shard if this worker seemed dead.
        draft = self.folder / f".{name}.{uuid.uuid4().hex}"
        try:
            write_records(draft, self.file_format, plan.examples(shard))
            os.replace(draft, self.folder / name)
        except StorageError:
            raise
        except RuntimeError as error:  # The library of ArrayRecord raises this error.
            raise OSError(str(error)) from error
        finally:
            draft.unlink(missing_ok=True)
        if self.file_format == "tfrecord":
            save_index(self.folder / name, lambda: parse_features(self.features))


def _split_json(
    name: str, lengths: Sequence[int], num_bytes: int = 0, template: str = TEMPLATE
) -> dict[str, Any]:
    """Returns the entry of a split in `dataset_info.json`."""
    size = {"numBytes": str(num_bytes)} if num_bytes else {}
    shards = [str(length) for length in lengths]
    return {"name": name, "filepathTemplate": template, "shardLengths": shards, **size}


def _report(counts: Mapping[str, int], left_out: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Returns the entry of a split in the metadata."""
    raw = {name.removeprefix(RAW): counts[name] for name in sorted(counts) if name.startswith(RAW)}
    return {
        **{name: count for name, count in counts.items() if not name.startswith(RAW)},
        **({"raw": raw} if raw else {}),
        **({"left_out": list(left_out)} if left_out else {}),
    }


def _example(location: Location) -> bytes | bytearray:
    assert isinstance(location.source, FolderSource)
    with reading.errors_of(location.source, location.index):
        return location.source.folder[location.split].example_bytes(location.index)


def _are_equal(left: Any, right: Any) -> bool:
    """Whether numbers are equal; any NaN equals any NaN."""
    left, right = np.asarray(left), np.asarray(right)
    are_floats = left.dtype == right.dtype and left.dtype.kind == "f"
    return are_floats and np.array_equal(left, right, equal_nan=True)


def _digest(example: bytes | bytearray) -> int:
    return int(google_crc32c.value(bytes(example)))


def _with_byte_offsets(feature: Any) -> Any:
    """Returns a feature with tensors in the encoding that gives their elements byte offsets."""
    if isinstance(feature, Features):
        children = {name: _with_byte_offsets(child) for name, child in feature.items()}
        return dataclasses.replace(feature, features=children)
    if isinstance(feature, Dataset):
        return dataclasses.replace(feature, feature=_with_byte_offsets(feature.feature))
    if isinstance(feature, Tensor) and feature.class_name.rpartition(".")[2] in _PLAIN_FEATURES:
        encoding = direct_encoding(feature.shape, feature.dtype)
        return dataclasses.replace(feature, encoding=encoding, class_name="")
    return feature


def _stored_source(episodes: Episodes) -> FolderSource | None:
    """Returns the first stored dataset whose examples can be copied: its fields are unchanged."""
    source = episodes.source
    if not any(isinstance(base, FolderSource) for base in reading.roots(source)):
        return None
    for index in range(len(episodes)):
        location = stored_location(source, *episodes.locate(index))
        if location is not None and isinstance(location.source, FolderSource):
            base = reading.with_image_files(location.source)
            fields, new = base.fields, reading.with_image_files(source).fields
            is_same = fields.steps == new.steps and fields.episode == new.episode
            return base if is_same else None
    return None
