"""Episodes of any source as shards of WebDataset."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.webdataset.source import (
    FEATURES_FILE,
    SIDECAR_FIELD,
    STEPS_FIELD,
    WebdatasetSource,
    image_path,
    path_of,
)
from rlds.sources.episodes import Episodes
from rlds.sources.restored_source import stored_in
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import Location, SourceEpisode, is_derived
from rlds.sources.texts import as_text
from rlds.sources.writing import Export, Placement, sidecar_placements
from rlds.video import CLIP, VIDEO
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import Paths, conflicts, leaves_at
from tfds_files.png import check_level, encode_png

__all__ = ["WebdatasetExport"]

_META_FIELD = "meta.json"
_IMAGE_SUFFIXES = {"png": "png", "jpeg": "jpg"}


class WebdatasetExport(Export):
    """Shards of WebDataset: tar files, in which a sample is an episode.

    A sample has `steps.npz`, with the flags and an array for each numeric field of steps with a
    fixed shape; a file for each image, such as `observation.camera.000000.png`; a file for each
    clip of video, `video.<name>.mp4`; and `meta.json`. `features.json`, next to the shards,
    describes the fields. The field `rlds.bin` holds values for RLDS only: text, lists, fields of
    episodes.

    Args:
      episodes: The episodes.
      shard_bytes: The size of a shard after which the next episode begins a new shard.
      png_level: The compression level of PNG files, 0 to 9 as for `zlib.compress`. If None, 1,
        which is fast, or 6 for images that become small. All levels keep the pixels.
    """

    format = "webdataset"
    copies_parts = True

    def __init__(
        self, episodes: Episodes, *, shard_bytes: int = 1 << 30, png_level: int | None = None
    ) -> None:
        super().__init__(episodes)
        check_level(png_level)
        self._png_level = png_level
        if shard_bytes < 1:
            raise ValueError(f"shard_bytes: got {shard_bytes}, expected a positive number")
        self._shard_bytes = shard_bytes
        spec = episodes.spec
        self._files: dict[str, tuple[str, str]] = {}  # The names and endings of images.
        self._arrays: dict[str, str] = {}  # The names of arrays.
        fields = {
            path: field
            for path, field in leaves_at(spec.pop(rlds.STEPS), None)
            if path not in rlds.STEP_FLAGS and isinstance(field, Field)
            if not is_derived(path, field)
        }
        endings = {
            path: _IMAGE_SUFFIXES[field.encoding] if field.encoding else _png_of(field)
            for path, field in fields.items()
        }
        names = {path: path for path in fields}
        if rlds.OBSERVATION in fields and any(endings[p] for p in {*fields} - {rlds.OBSERVATION}):
            # Images with other names are read as fields of the observation.
            ending = endings[rlds.OBSERVATION]
            names[rlds.OBSERVATION] = f"{rlds.OBSERVATION}/{'image' if ending else 'state'}"
        used_paths = Paths(dict.fromkeys(names.values()))
        paths = {}
        for path, field in fields.items():
            ending, name = endings[path], names[path].lower().replace("/", ".")
            read_path = image_path(name.replace(".", "/"))
            is_free = read_path == names[path] or not (
                read_path in used_paths or conflicts(used_paths, read_path)
            )
            if ending and is_free and name not in (name for name, _ in self._files.values()):
                self._files[path] = name, ending
                paths[path] = read_path
            elif not field.is_text and not field.encoding and None not in field.shape:
                self._arrays[path] = paths[path] = names[path]
        self._clips = {
            path: f"{path.removesuffix(f'/{CLIP}').replace('/', '.').lower()}.mp4"
            for path, _ in leaves_at(spec, None)
            if path.startswith(f"{VIDEO}/") and path.endswith(f"/{CLIP}")
        }
        clip_paths = {path: path_of(name) for path, name in self._clips.items()}
        self._sidecar = Sidecar.create(episodes, paths, list(paths), episode_paths=clip_paths)

    @override
    def placements(self) -> Sequence[Placement]:
        names = {f"steps/{path}": STEPS_FIELD for path in self._arrays}
        names |= {f"steps/{path}": f"{name}.*.{end}" for path, (name, end) in self._files.items()}
        clips = [Placement(path, name, "exact") for path, name in self._clips.items()]
        return [
            dataclasses.replace(placement, place=names.get(placement.field, ""))
            for placement in sidecar_placements(self._sidecar)
            if placement.field not in self._clips
        ] + clips

    @override
    def write(self, path: Path) -> None:
        path.mkdir()
        with contextlib.ExitStack() as stack:
            shard_index, tar = 0, stack.enter_context(_open_shard(path, 0))
            for index, episode in enumerate(self.iter_items()):
                if tar.offset >= self._shard_bytes:
                    stack.close()
                    shard_index += 1
                    tar = stack.enter_context(_open_shard(path, shard_index))
                key = f"{index:06d}"
                if isinstance(episode, Location):
                    part, _ = stored_in(episode, WebdatasetSource)
                    shard, sample = part.stored_sample(episode.index)
                    if members := shard.rename(sample, key):
                        tar.fileobj.write(members)
                        tar.offset += len(members)
                        continue
                    fields: Iterable[tuple[str, bytes]] = shard.read(sample).items()
                else:
                    fields = self._sample(episode)
                for field, data in fields:
                    # Only bytes are written (no times), so that repeated exports are identical.
                    info = tarfile.TarInfo(f"{key}.{field}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
                tar.members = []  # type: ignore[attr-defined]
        (path / FEATURES_FILE).write_text(self._sidecar.to_json())

    def _sample(self, episode: SourceEpisode) -> Iterator[tuple[str, bytes]]:
        """Yields the fields of an episode."""
        values = dict(leaves_at(episode.metadata, None))
        clips = {name: values.pop(path) for path, name in self._clips.items()}
        columns = self._sidecar.columns(episode)
        flags = {name: np.asarray(episode.steps[name]) for name in rlds.STEP_FLAGS}
        yield (
            STEPS_FIELD,
            _npz({**{name: columns[path] for path, name in self._arrays.items()}, **flags}),
        )
        yield _META_FIELD, json.dumps(_meta(episode, values), indent=1).encode()
        for path, (name, ending) in self._files.items():
            for row, image in enumerate(columns[path]):
                data = image if isinstance(image, bytes) else encode_png(image, self._png_level)
                yield f"{name}.{row:06d}.{ending}", data
        for name, clip in clips.items():
            yield name, bytes(clip)
        yield SIDECAR_FIELD, self._sidecar.pack(episode)


def _open_shard(directory: Path, index: int) -> tarfile.TarFile:
    return tarfile.open(directory / f"shard-{index:06d}.tar", "w", format=tarfile.PAX_FORMAT)


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns the bytes of an `.npz` file; `numpy.savez` cannot store an array called `file`."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
    return stream.getvalue()


def _png_of(field: Field) -> str:
    shape = field.shape
    is_image = field.dtype == np.uint8 and len(shape) == 3 and shape[2] in (1, 3, 4)
    return "png" if is_image and None not in shape and 0 not in shape else ""


def _meta(episode: SourceEpisode, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metadata of an episode, for people and other readers."""
    plain = {path: _plain(value) for path, value in values.items()}
    return {
        "episode_id": episode.key,
        "num_steps": episode.num_steps,
        "truncated": bool(episode.truncated),
        "complete": bool(episode.complete),
        "final_observation_known": bool(episode.final_observation_known),
        **{path: value for path, value in plain.items() if value is not None},
    }


def _plain(value: Any) -> Any:
    """Returns a number or a text; None for other values."""
    if isinstance(value, str | bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return as_text(value) if len(value) < 10_000 else None
        return None
    array = np.asarray(value)
    is_number = not array.shape and array.dtype.kind in "biuf"
    return array.item() if is_number else None
