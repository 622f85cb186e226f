"""Episodes of any source as the files of ManiSkill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import rlds
from rlds.formats.hdf5_export import Hdf5EpisodesExport
from rlds.formats.maniskill.source import (
    ASIDE,
    ENTRY,
    EPISODE_ID,
    EPISODES,
    FIELDS,
    GROUP,
    METADATA_KEY,
    TRAJECTORY,
)
from rlds.raw_files.hdf5_layout import create_attributes
from rlds.sources.episodes import Episodes
from rlds.sources.sidecar import SidecarWriter
from rlds.sources.source import SourceEpisode
from rlds.sources.texts import as_text
from rlds_ecosystem import import_extra
from rlds_ecosystem.nests import root_of

__all__ = ["ManiSkillExport"]

_ROOTS = {field: root for root, field in FIELDS.items()}
_STATES = "env_states"
_NAME = "trajectory"


class ManiSkillExport(Hdf5EpisodesExport):
    """A folder with `trajectory.h5` and `trajectory.json`, as ManiSkill 3 records them.

    `obs` has all T + 1 observations, and `actions` and `rewards` have T rows. The files have the
    fields that are numbers, below `observation`, `action`, `reward` and `env_states`, and
    `terminated` and `truncated`. All else is in the sidecar, the folder `trajectory.rlds`.

    Episodes that came from ManiSkill get their groups again, with every dtype, attribute and chunk,
    and the same entries of the JSON file; the files are called as they were.

    Args:
      episodes: The episodes.
      env_id: The name of the environment, for the JSON file.
    """

    format = "maniskill"

    def __init__(self, episodes: Episodes, *, env_id: str = "") -> None:
        super().__init__(episodes, METADATA_KEY, (rlds.DISCOUNT,))
        self._env_id = env_id
        if self.said is None or ENTRY not in episodes.spec:
            roots = (*_ROOTS, _STATES)
            places = {
                path: path for path in self.steps if root_of(path) in roots and self.fits(path)
            }
            if rlds.ACTION not in map(root_of, places):
                raise ValueError("the steps have no actions that are numbers, as ManiSkill's are")
            whole = [path for path in places if root_of(path) in (rlds.OBSERVATION, _STATES)]
            self.set_places(places, whole)

    def stored_path(self, path: str) -> str:
        """See `Hdf5EpisodesExport`."""
        root, slash, rest = path.partition("/")
        return f"{_ROOTS.get(root, root)}{slash}{rest}"

    def field_path(self, name: str) -> str:
        """See `Hdf5EpisodesExport`."""
        root, slash, rest = name.partition("/")
        return f"{FIELDS.get(root, root)}{slash}{rest}"

    def write(self, path: Path) -> None:
        """See `Export`."""
        path.mkdir()
        h5py = import_extra("h5py")
        name = _NAME if self.said is None else Path(str(self.said["file"])).name
        with h5py.File(path / f"{name}.h5", "x") as file:
            content = self._write_anew(file, path) if self.said is None else self._write_again(file)
        if content is not None:
            (path / f"{name}.json").write_text(json.dumps(content, indent=2))

    def _write_again(self, file: Any) -> Any:
        assert self.said is not None
        create_attributes(file, self.said["attributes"])
        entries: dict[int, Any] = {}
        for episode in self.each():
            if not GROUP.fullmatch(episode.key):
                raise ValueError(f"episode {episode.key!r}: no name of a group of ManiSkill")
            layout = self.layout(episode)
            is_ordered = bool(layout.get("", {}).get("ordered"))
            group = file.create_group(episode.key, track_order=is_ordered)
            self.fill(group, layout, episode, self.said["whole"])
            if entry := json.loads(as_text(episode.metadata[ENTRY]) or "null"):
                entries[entry[EPISODE_ID]] = entry
        content = self.said["json"]
        if not isinstance(content, Mapping) or EPISODES not in content:
            return content
        listed = [
            entries.get(item) if isinstance(item, int) else item for item in content[EPISODES]
        ]
        return {**content, EPISODES: [entry for entry in listed if entry is not None]}

    def _write_anew(self, file: Any, path: Path) -> Any:
        entries = []
        place = (path / _NAME).with_suffix(ASIDE)
        place.mkdir()
        with SidecarWriter(place, self.sidecar) as sidecar:
            for number, episode in enumerate(self.each()):
                sidecar.add(episode)
                group = file.create_group(f"{TRAJECTORY}{number}", track_order=True)
                for field, column in self.sidecar.rows(episode).items():
                    is_image = column.dtype == np.uint8 and column.ndim == 4 and column.size
                    packed = {"compression": "gzip", "compression_opts": 5} if is_image else {}
                    group.create_dataset(self.stored_path(field), data=column, **packed)
                entries.append(_new_entry(number, group, episode))
        env_info: dict[str, Any] = {
            "env_id": self._env_id,
            "env_kwargs": {},
            "max_episode_steps": None,
        }
        return {
            "env_info": env_info,
            EPISODES: entries,
            "source_type": "rlds",
            "source_desc": self.episodes.source.description,
        }


def _new_entry(number: int, group: Any, episode: SourceEpisode) -> dict[str, Any]:
    """Adds the flags to a group; returns the entry of the JSON file."""
    length = episode.num_steps - episode.final_observation_known
    last = np.arange(length) == length - 1
    terminal = bool(episode.steps[rlds.IS_TERMINAL][-1])
    group.create_dataset("terminated", data=last & terminal)
    group.create_dataset("truncated", data=last & episode.truncated)
    return {
        EPISODE_ID: number,
        "episode_seed": None,
        "control_mode": None,
        "elapsed_steps": length,
        "reset_kwargs": {},
    }
