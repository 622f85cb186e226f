"""Downloads of Google's RLDS Creator, a web tool to record and annotate episodes.

A download is a directory, or a zip file of one, with a pickle `<index>.pkl` for each episode: a
dict with the `steps` in the order of the environment (see `envlogger.StepData`), the `metadata` of
the episode and the specs. In the custom data of a step are

    tag:<label>   whether the annotator gave this label to the step
    image         the screen of the player, a JPEG file
    keys          the pressed keys
    info          further information of the environment

and in the metadata `agent_id`, `episode_id`, `num_steps`, `total_reward`, and perhaps `tags` and
`notes` of the annotator. If the tool is set to record with EnvLogger, a download is a log instead.
"""

from __future__ import annotations

import functools
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from envlogger.backends.riegeli_files.layout import METADATA_FILE
from envlogger.converters.rlds_episode import to_rlds_episode
from envlogger.step_data import StepData
from rlds.formats.google_creator.pickles import NAMES
from rlds.raw_files.archives import read_member
from rlds.raw_files.image_files import jpeg_shape
from rlds.raw_files.input_files import present
from rlds.raw_files.restricted_pickle import RestrictedPickleError, loads
from rlds.raw_files.untrusted import SourceError, check_is_file, source_errors
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import ALL_ROWS, Fields, Origin, Source, SourceEpisode, SourceInfo
from rlds.sources.specs import fields_from_spec, specs_from_columns
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import stack_values
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.json_values import to_json

__all__ = ["RldsCreatorSource", "pickles_in"]

_SPEC_FIELDS = ("observation_spec", "action_spec", "reward_spec", "discount_spec")
_TAG_PREFIX = "tag:"
_IMAGE, _KEYS, _INFO = "image", "keys", "info"
_TAGS, _NOTES = "tags", "notes"
_NUM_STEPS, _TOTAL_REWARD = "num_steps", "total_reward"
# Numbers with a type of Python, not of the environment.
_NUMBER_DTYPES = {"episode_index": np.int64, _NUM_STEPS: np.int64, _TOTAL_REWARD: np.float64}
_JPEG_MAGIC = b"\xff\xd8\xff"
# The limit of nested features; Protobuf cannot read much deeper nesting.
_MAX_NESTING = 25
# The limit of the size of an episode.
_MAX_BYTES = 1 << 32


class RldsCreatorSource(Source):
    """Download of the published RLDS Creator: files of pickles.

    Pickles are read by `rlds.raw_files.restricted_pickle`, which allows plain data, steps and specs
    only.

    Steps have fields for the custom data: `tag:<label>` as bool, `image` as the JPEG file, `keys`
    as JSON, because the pressed keys vary by step. The metadata of episodes keeps its names,
    except that `episode_id` becomes `recorded_episode_id`. `tags` is a list in JSON, by default
    `[]`; `notes` is empty by default.

    An episode is `complete` if it begins with a FIRST step, and ends with a LAST step or at one of
    the tags in `truncate_at_tag`, with which annotators mark an end.

    Args:
      path: The directory or the zip file.
      truncate_at_tag: A label, or several; the first tagged step cuts the episode, and holds its
        final observation. An episode with later steps counts as truncated; its `num_steps` and
        `total_reward` are recomputed.
      strip_internal_metadata: Whether to leave out data of the tool: `image`, `keys` and `info` of
        the steps, `tags` and `notes` of the episodes.
      json_fields: The custom data of steps whose structure varies by step; it is stored as JSON.

    Raises:
      FileNotFoundError: There is no such file or directory, or no pickle in it.
      SourceError: The path is an EnvLogger log, or the first pickle is damaged or no episode.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        truncate_at_tag: str | Sequence[str] | None = None,
        strip_internal_metadata: bool = False,
        json_fields: Sequence[str] = (_KEYS,),
    ) -> None:
        self._path = stores.as_path(path)
        tags = [truncate_at_tag] if isinstance(truncate_at_tag, str) else truncate_at_tag or []
        self._end_tags = tuple(tags)
        self._strip = strip_internal_metadata
        self._json_fields = tuple(json_fields)
        self._names = pickles_in(self._path)
        with source_errors(self._path / self._names[0]):
            first = self._load(self._names[0])
            steps, metadata = self._columns(first, self._names[0])
            self._recorded_specs = {name: first[name] for name in _SPEC_FIELDS}
            step_fields = {
                name.removesuffix("_spec"): spec
                for name, spec in self._recorded_specs.items()
                if spec is not None
            }
            self._step_specs = {**specs_from_columns(steps), **step_fields}
            self._image = _image_field(steps, self._path / self._names[0])
            self._metadata_specs = specs_from_columns(stack_values([metadata]))

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        specs = {k: v for k, v in self._step_specs.items() if k not in rlds.STEP_FLAGS}
        steps: Any = fields_from_spec(specs) or {}
        episode: Any = fields_from_spec(self._metadata_specs) or {}
        return Fields({**steps, **({} if self._image is None else {_IMAGE: self._image})}, episode)

    @override
    def inputs(self) -> Sequence[epath.Path]:
        if not self._path.is_dir():
            return [self._path]
        return present(self._path / name for name in self._names)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        return SourceInfo(
            description="Episodes recorded and annotated with RLDS Creator.",
            homepage="https://github.com/google-research/rlds-creator",
            options={
                "truncate_at_tag": list(self._end_tags),
                "strip_internal_metadata": self._strip,
                "json_fields": list(self._json_fields),
            },
        )

    @override
    def num_episodes(self, split: str) -> int:
        del split
        return len(self._names)

    def key(self, split: str, index: int) -> str:
        """Returns the name of the pickle without `.pkl`."""
        del split
        return self._names[index].removesuffix(".pkl")

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        name = self._names[index]
        episode = self._load(name)
        for field, first in self._recorded_specs.items():
            spec = episode[field]
            if _field_of(spec) != _field_of(first):
                raise SourceError(
                    f"{spec!r:.200}, but {first!r:.200} in {self._names[0]}; make one dataset for "
                    "each environment",
                    file=self._path / name,
                    field=field,
                )
        steps, metadata = self._columns(episode, name)
        self._check_images(steps, name)
        kept, is_at_tag = self._kept_steps(episode["steps"])
        is_terminal = bool(steps[rlds.IS_TERMINAL][-1])
        return SourceEpisode(
            key=self.key(split, index),
            steps=steps,
            origin=Origin(name, 0, len(kept)),
            truncated=not is_terminal,
            complete=kept[0].timestep.first() and (is_at_tag or kept[-1].timestep.last()),
            metadata=metadata,
        )

    def _load(self, name: str) -> dict[str, Any]:
        file = self._path / name
        try:
            with source_errors(file):
                data = self._read_bytes(name)
            episode = loads(data, NAMES)
        except RestrictedPickleError as error:
            raise SourceError(str(error), file=file) from error
        if not isinstance(episode, dict):
            raise SourceError(f"{type(episode).__name__}, expected a dict", file=file)
        for field in ("metadata", "steps", *_SPEC_FIELDS):
            if field not in episode:
                problem = f"missing; the episode has {list(episode)}"
                raise SourceError(problem, file=file, field=field)
        _check_steps(episode["steps"], file)
        if not isinstance(episode["metadata"], dict | None):
            problem = f"{episode['metadata']!r:.100}, expected a dict"
            raise SourceError(problem, file=file, field="metadata")
        return episode

    def _check_images(self, steps: Mapping[str, Any], name: str) -> None:
        """Checks image files, which are stored without decoding."""
        if self._image is None:
            return
        file, expected = self._path / name, self._image.shape[2]
        for row, image in enumerate(steps.get(_IMAGE, ())):
            channels = _channels(image, file, row)
            if channels != expected:
                problem = f"an image of {channels} channels, but {expected} in {self._names[0]}"
                raise SourceError(problem, file=file, row=row, field=_IMAGE)

    def _read_bytes(self, name: str) -> bytes:
        if self._path.is_dir():
            check_is_file(self._path / name)
            return bytes((self._path / name).read_bytes())
        return read_member(self._path, name, _MAX_BYTES)

    def _kept_steps(self, steps: Sequence[StepData]) -> tuple[Sequence[StepData], bool]:
        """Returns the steps up to the truncating tag, and whether there is such a tag."""
        for index, step in enumerate(steps):
            data = step.custom_data if isinstance(step.custom_data, dict) else {}
            if any(data.get(f"{_TAG_PREFIX}{label}") for label in self._end_tags):
                return steps[: index + 1], True
        return steps, False

    def _columns(self, episode: dict[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the columns of an episode and its metadata."""
        recorded, metadata = episode["steps"], dict(episode["metadata"] or {})
        kept, _ = self._kept_steps(recorded)
        first = kept[0].custom_data
        if isinstance(
            first, dict
        ):  # Old versions keep the metadata of the episode in the first step.
            metadata.update(first.pop("episode_metadata", None) or {})
        if len(kept) < len(recorded):
            metadata = {**metadata, **_recompute_totals(kept, metadata)}
        file = self._path / name
        try:
            steps = to_rlds_episode(
                [self._without_internals(step) for step in kept],
                action_spec=episode["action_spec"],
                reward_spec=episode["reward_spec"],
                discount_spec=episode["discount_spec"],
            )
            metadata = self._metadata(metadata)
            _check_names({**steps, "metadata": metadata})
            return steps, metadata
        except (TypeError, ValueError) as error:
            raise SourceError(str(error), file=file) from error

    def _without_internals(self, step: StepData) -> StepData:
        if not isinstance(step.custom_data, dict):
            return step
        internals = (_IMAGE, _KEYS, _INFO) if self._strip else ()
        data = {
            field: json.dumps(to_json(value, field), sort_keys=True)
            if field in self._json_fields
            else value
            for field, value in step.custom_data.items()
            if field not in internals
        }
        return step._replace(custom_data=data or None)

    def _metadata(self, episode_metadata: Mapping[str, Any]) -> dict[str, Any]:
        metadata = {
            f"recorded_{field}" if field in RESERVED else field: value
            for field, value in episode_metadata.items()
            if value is not None and field not in (_TAGS, _NOTES)
        }
        for field, dtype in _NUMBER_DTYPES.items():
            if field in metadata:
                metadata[field] = dtype(metadata[field])
        if not self._strip:
            metadata[_TAGS] = json.dumps(list(episode_metadata.get(_TAGS) or []))
            metadata[_NOTES] = episode_metadata.get(_NOTES) or ""
        return metadata


def _check_names(value: Any, *path: str) -> None:
    """Raises a ValueError unless all fields have names, and are not nested too deeply."""
    if not isinstance(value, Mapping):
        return
    if len(path) > _MAX_NESTING:
        parent = "/".join(path[:3])
        raise ValueError(f"{parent}/... is nested more than {_MAX_NESTING} deep")
    for name, child in value.items():
        if not isinstance(name, str):
            location = "/".join(path) or "the custom data of a step"
            raise ValueError(f"{location} has the field {name!r:.100}, expected a name")
        _check_names(child, *path, name)


def _field_of(spec: Any) -> Any:
    return None if spec is None else fields_from_spec(spec)


def pickles_in(path: epath.Path) -> list[str]:
    """Returns the names of the pickles of a download, in order."""
    if not path.exists():
        raise FileNotFoundError(f"{os.fspath(path)!r} does not exist.")
    is_zip = not path.is_dir()
    if is_zip:
        check_is_file(path)
        try:
            with source_errors(path), path.open("rb") as file, zipfile.ZipFile(file) as archive:
                files = archive.namelist()
        except SourceError as error:
            problem = f"neither a directory nor a zip file: {error.problem}"
            raise SourceError(problem, file=path) from error
    else:
        files = [child.name for child in path.iterdir()]
    if any(name.split("/")[-1] == METADATA_FILE for name in files):
        raise SourceError(
            "this download is an EnvLogger log; "
            + ("unpack it, and " if is_zip else "")
            + 'open it with format="envlogger"',
            file=path,
        )
    names = [name for name in files if re.fullmatch(r"[0-9]{1,18}\.pkl", name.split("/")[-1])]
    if not names:
        raise FileNotFoundError(
            f"{os.fspath(path)!r} holds no episodes: it has no files 0.pkl, 1.pkl, ..."
        )
    for name, count in Counter(names).items():
        if count > 1:
            raise SourceError(f"{count} files have the name {name}", file=path)
    return sorted(names, key=_sort_key)


def _sort_key(name: str) -> tuple[str, int, str]:
    folder, _, file = name.rpartition("/")
    return folder, int(file.removesuffix(".pkl")), file


def _check_steps(steps: Any, file: epath.Path) -> None:
    if not isinstance(steps, list | tuple) or not steps:
        raise SourceError(f"{steps!r:.100}, expected a list of steps", file=file, field="steps")
    for row, step in enumerate(steps):
        timestep = getattr(step, "timestep", None)
        for value, kind, field in (
            (step, StepData, "steps"),
            (timestep, dm_env.TimeStep, "timestep"),
            (getattr(timestep, "step_type", None), dm_env.StepType, "step_type"),
        ):
            if not isinstance(value, kind):
                problem = f"{type(value).__name__}, expected {kind.__name__}"
                raise SourceError(problem, file=file, row=row, field=field)


def _recompute_totals(steps: Sequence[StepData], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the length and the return for the metadata of an episode that was cut."""
    rewards = [step.timestep.reward for step in steps if step.timestep.reward is not None]
    totals = {_NUM_STEPS: len(steps) - 1, _TOTAL_REWARD: float(np.sum(rewards, dtype=np.float64))}
    return {field: total for field, total in totals.items() if field in metadata}


def _image_field(steps: Mapping[str, Any], file: epath.Path) -> Field | None:
    """Returns the field of images of the tool; None without JPEG files."""
    column = steps.get(_IMAGE)
    if not isinstance(column, np.ndarray) or column.dtype != object:
        return None
    if not isinstance(column[0], bytes) or not column[0].startswith(_JPEG_MAGIC):
        return None
    # The player may resize the screen.
    return Field(np.uint8, (None, None, _channels(column[0], file, 0)), encoding="jpeg")


def _channels(image: Any, file: epath.Path, row: int) -> int:
    """Returns the number of channels of a JPEG file.

    Raises:
      SourceError: The bytes are not a JPEG file.
    """
    if not isinstance(image, bytes):
        problem = f"{type(image).__name__}, expected the bytes of a JPEG file"
        raise SourceError(problem, file=file, row=row, field=_IMAGE)
    try:
        return (*jpeg_shape(image), 1)[2]
    except ValueError as error:
        raise SourceError(str(error), file=file, row=row, field=_IMAGE) from error
