"""The features of a LeRobot dataset after an edit: kept, renamed and new ones.

An edit renames, removes and adds fields. Everything else of the LeRobot dataset stays unchanged.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import rlds
from rlds.formats.lerobot import layout
from rlds.formats.lerobot.feature_plan import REWARD, PlannedFeature, plan_features
from rlds.formats.lerobot.language import FEATURE, LANGUAGE, PERSISTENT, find_labels, find_styles
from rlds.formats.lerobot.source import EXTRA_FILES, ROW
from rlds.formats.lerobot.tables import data_schema
from rlds.raw_files.untrusted import source_errors
from rlds.sources.episode_fields import EPISODE_FIELDS, IMAGE_FILE
from rlds.sources.episodes import Episodes
from rlds.sources.source import files_of
from rlds.sources.view import stored_paths
from rlds.video import CLIP, FRAMES, VIDEO
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below, leaves_at, root_of

__all__ = ["KeptFeatures", "kept_features"]

_STEPS = f"{rlds.STEPS}/"


@dataclasses.dataclass(frozen=True)
class KeptFeatures:
    """The features of a LeRobot dataset after an edit.

    Attributes:
      paths: The paths of features in steps, by name.
      old_names: The old names of features, by their new names.
      added: The added features.
      texts: The styles of step fields for the language column, by path.
      names: The new names of features, by their old names; None for removed ones.
    """

    paths: Mapping[str, str]
    old_names: Mapping[str, str]
    added: Sequence[PlannedFeature]
    texts: Mapping[str, str]
    names: Mapping[str, str | None]

    def info_entries(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the entries of the features in `info.json`, from the old entries."""
        entries = {new: features[old] for new, old in self.old_names.items() if old in features}
        entries |= self._new_entries
        return entries | {n: c for n, c in layout.DEFAULT_COLUMNS.items() if n not in entries}

    @property
    def _new_entries(self) -> dict[str, Any]:
        """The entries of new features in `info.json`."""
        entries = {column.name: column.feature() for column in self.added}
        has_language = not self.texts or PERSISTENT in self.old_names
        return entries if has_language else {**entries, PERSISTENT: FEATURE}

    def schema(self, old_schema: Any, features: Mapping[str, Any]) -> Any:
        """Returns the Arrow schema of the columns, with metadata for readers of all versions.

        Args:
          old_schema: The old schema of the columns.
          features: The result of `info_entries`.
        """
        new_names = {old: name for name, old in self.old_names.items()}
        fields = [f.with_name(new_names[f.name]) for f in old_schema if f.name in new_names]
        fields += data_schema(self._new_entries)
        metadata = old_schema.metadata or {}
        schema = json.loads(metadata.get(b"huggingface", b'{"info": {"features": {}}}'))
        entries = {
            new_names[n]: entry for n, entry in schema["info"]["features"].items() if n in new_names
        }
        missing = {f.name: features[f.name] for f in fields if f.name in features.keys() - entries}
        new_entries = json.loads(data_schema(missing).metadata[b"huggingface"])["info"]["features"]
        schema["info"]["features"] = entries | new_entries
        text = json.dumps(_as_sequences(schema)).encode()
        return import_extra("pyarrow").schema(fields, {**metadata, b"huggingface": text})


def kept_features(episodes: Episodes, version: str | None) -> KeptFeatures | None:
    """Returns the features of episodes from LeRobot, with clips as packets.

    Returns None for episodes from other formats, or with data that LeRobot cannot hold.

    Args:
      episodes: The episodes.
      version: The new version; by default, the version of the source.

    Raises:
      SourceError: The metadata of the source is invalid.
    """
    metadata, source = episodes.metadata.get(layout.METADATA_KEY), episodes.source
    spec = {
        path: field
        for path, field in leaves_at(episodes.spec, None)
        if root_of(path) not in EPISODE_FIELDS
    }
    if not isinstance(metadata, Mapping) or ROW not in spec:
        return None
    old_paths = {new: old for new, old in stored_paths(source).items() if new in spec}
    new_paths = {old: new for new, old in old_paths.items()}
    paths, old_names = {}, {}
    used_paths = {ROW}
    with source_errors(f"metadata of {files_of(source, 1)}"):
        fields, features = metadata["fields"], metadata["info"]["features"]
        for name, path in fields.items():
            is_video = features.get(name, {}).get("dtype") == "video"
            start, end = (f"{VIDEO}/", f"/{CLIP}") if is_video else (_STEPS, "")
            new_path = new_paths.get(f"{start}{path}{end}")
            if new_path is None:
                if name in layout.DEFAULT_COLUMNS:
                    return None
                continue
            field_path = new_path.removeprefix(start).removesuffix(end)
            new = name if field_path == path else _name(field_path)
            paths[new], old_names[new] = field_path, name
            used_paths |= {new_path.removesuffix(end), f"{_STEPS}{IMAGE_FILE}/{field_path}"}
        task = layout.task_path(fields)
        is_v3 = version == "v3.0" or (
            version is None and metadata["schemas"]["episodes"] is not None
        )
    if "task_index" in fields and new_paths.get(_STEPS + task) != _STEPS + layout.task_path(paths):
        return None
    used_paths |= {_STEPS + name for name in (*rlds.STEP_FLAGS, task)}
    used_paths |= {EXTRA_FILES} | ({_STEPS + rlds.DISCOUNT} & new_paths.keys())
    if not any(root_of(path) == LANGUAGE for path in fields.values()):
        metadata = {f"{_STEPS}{LANGUAGE}/{style}" for style in find_styles(old_names)}
        if not metadata <= new_paths.keys():
            return None
        used_paths |= metadata
    texts = find_labels(path.removeprefix(_STEPS) for path in spec) if is_v3 else {}
    used_paths |= {_STEPS + path for path in texts}
    extra = {path: f for path, f in spec.items() if not any(is_below(path, p) for p in used_paths)}
    steps = {path.removeprefix(_STEPS): f for path, f in extra.items() if path.startswith(_STEPS)}
    added = plan_features({path: f for path, f in steps.items() if isinstance(f, Field)})
    fits_columns = len(added) == len(extra) and not any(column.is_image for column in added)
    if not fits_columns or any(path.endswith(f"/{FRAMES}") for path in spec):
        return None
    if len({*paths, *(column.name for column in added)}) < len(paths) + len(added):
        return None
    paths |= {column.name: column.path for column in added}
    if texts:
        paths[PERSISTENT] = paths.get(PERSISTENT, PERSISTENT)
    if paths not in [layout.step_paths(paths, flat_cameras=flat) for flat in (False, True)]:
        return None
    names = dict.fromkeys(fields) | {old: new for new, old in old_names.items()}
    return KeptFeatures(paths, old_names, added, texts, names)


def _name(path: str) -> str:
    """Returns the name of the feature for a field of steps."""
    return REWARD if path == rlds.REWARD else path.replace("/", ".")


def _as_sequences(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_sequences(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: "Sequence" if (name, item) == ("_type", "List") else _as_sequences(item)
        for name, item in value.items()
    }
