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
from rlds.formats.lerobot.feature_plan import REWARD, PlannedFeature, columns_of
from rlds.formats.lerobot.language import FEATURE, LANGUAGE, PERSISTENT, labels_in, styles_of
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
from rlds_ecosystem.model.nests import is_in, leaves_at, root_of

__all__ = ["KeptFeatures", "kept_features"]

_STEPS = f"{rlds.STEPS}/"


@dataclasses.dataclass(frozen=True)
class KeptFeatures:
    """The features of a LeRobot dataset after an edit.

    Attributes:
      paths: The path of each feature in a step, by name.
      before: The old names of features, by their new names.
      added: The added features.
      texts: The styles of fields of steps for the language column, by path.
      names: The new names of features, by their old names; None for removed ones.
    """

    paths: Mapping[str, str]
    before: Mapping[str, str]
    added: Sequence[PlannedFeature]
    texts: Mapping[str, str]
    names: Mapping[str, str | None]

    def described(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the entries of the features in `info.json`; `features` has the old entries."""
        named = {new: features[old] for new, old in self.before.items() if old in features}
        named |= self._new
        return named | {n: it for n, it in layout.DEFAULT_COLUMNS.items() if n not in named}

    @property
    def _new(self) -> dict[str, Any]:
        """The new features."""
        new = {column.name: column.feature() for column in self.added}
        has_language = not self.texts or PERSISTENT in self.before
        return new if has_language else {**new, PERSISTENT: FEATURE}

    def schema(self, before: Any, features: Mapping[str, Any]) -> Any:
        """Returns the schema of Arrow of their columns.

        Its metadata is what readers of all versions know.

        Args:
          before: The old schema of the columns.
          features: The result of `described`.
        """
        new = {old: name for name, old in self.before.items()}
        fields = [f.with_name(new[f.name]) for f in before if f.name in new]
        fields += data_schema(self._new)
        metadata = before.metadata or {}
        stored = json.loads(metadata.get(b"huggingface", b'{"info": {"features": {}}}'))
        entries = {new[n]: entry for n, entry in stored["info"]["features"].items() if n in new}
        unknown = {f.name: features[f.name] for f in fields if f.name in features.keys() - entries}
        added = json.loads(data_schema(unknown).metadata[b"huggingface"])["info"]["features"]
        stored["info"]["features"] = entries | added
        text = json.dumps(_as_sequences(stored)).encode()
        return import_extra("pyarrow").schema(fields, {**metadata, b"huggingface": text})


def kept_features(episodes: Episodes, version: str | None) -> KeptFeatures | None:
    """Returns the features of episodes that came from LeRobot, with clips as packets.

    None if they did not, or have what a dataset of LeRobot has no place for.

    Args:
      episodes: The episodes.
      version: The version to write; None for that which it was.

    Raises:
      SourceError: The metadata is not what the source says.
    """
    saved, source = episodes.metadata.get(layout.METADATA_KEY), episodes.source
    spec = {
        path: field
        for path, field in leaves_at(episodes.spec, None)
        if root_of(path) not in EPISODE_FIELDS
    }
    if not isinstance(saved, Mapping) or ROW not in spec:
        return None
    stored = {new: old for new, old in stored_paths(source).items() if new in spec}
    now = {old: new for new, old in stored.items()}
    paths, before = {}, {}
    used_paths = {ROW}
    with source_errors(f"metadata of {files_of(source, 1)}"):
        fields, features = saved["fields"], saved["info"]["features"]
        for name, path in fields.items():
            is_video = features.get(name, {}).get("dtype") == "video"
            begin, end = (f"{VIDEO}/", f"/{CLIP}") if is_video else (_STEPS, "")
            now_at = now.get(f"{begin}{path}{end}")
            if now_at is None:
                if name in layout.DEFAULT_COLUMNS:
                    return None
                continue
            moved = now_at.removeprefix(begin).removesuffix(end)
            new = name if moved == path else _name(moved)
            paths[new], before[new] = moved, name
            used_paths |= {now_at.removesuffix(end), f"{_STEPS}{IMAGE_FILE}/{moved}"}
        task = layout.task_path(fields)
        is_v3 = version == "v3.0" or (version is None and saved["schemas"]["episodes"] is not None)
    if "task_index" in fields and now.get(_STEPS + task) != _STEPS + layout.task_path(paths):
        return None
    used_paths |= {_STEPS + name for name in (*rlds.STEP_FLAGS, task)}
    used_paths |= {EXTRA_FILES} | ({_STEPS + rlds.DISCOUNT} & now.keys())
    if not any(root_of(path) == LANGUAGE for path in fields.values()):
        saved = {f"{_STEPS}{LANGUAGE}/{style}" for style in styles_of(before)}
        if not saved <= now.keys():
            return None
        used_paths |= saved
    texts = labels_in(path.removeprefix(_STEPS) for path in spec) if is_v3 else {}
    used_paths |= {_STEPS + path for path in texts}
    extra = {path: f for path, f in spec.items() if not any(is_in(path, p) for p in used_paths)}
    steps = {path.removeprefix(_STEPS): f for path, f in extra.items() if path.startswith(_STEPS)}
    added = columns_of({path: f for path, f in steps.items() if isinstance(f, Field)})
    is_whole = len(added) == len(extra) and not any(column.is_image for column in added)
    if not is_whole or any(path.endswith(f"/{FRAMES}") for path in spec):
        return None
    if len({*paths, *(column.name for column in added)}) < len(paths) + len(added):
        return None
    paths |= {column.name: column.path for column in added}
    if texts:
        paths[PERSISTENT] = paths.get(PERSISTENT, PERSISTENT)
    if paths not in [layout.step_paths(paths, flat_cameras=flat) for flat in (False, True)]:
        return None
    names = dict.fromkeys(fields) | {old: new for new, old in before.items()}
    return KeptFeatures(paths, before, added, texts, names)


def _name(path: str) -> str:
    """Returns the name of the feature for a field of a step."""
    return REWARD if path == rlds.REWARD else path.replace("/", ".")


def _as_sequences(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_as_sequences(value) for value in stored]
    if not isinstance(stored, dict):
        return stored
    return {
        name: "Sequence" if (name, value) == ("_type", "List") else _as_sequences(value)
        for name, value in stored.items()
    }
