"""Episodes of any source as the files of ManiSkill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.hdf5_export import Hdf5EpisodesExport, StagedFiles, copy_row
from rlds.formats.maniskill.source import ENTRY, EPISODE_ID, EPISODES, TABLE, TRAJECTORY
from rlds.raw_files.hdf5_values import write_attributes
from rlds.raw_files.hdf5_writing import new_file, ordered_group
from rlds.sources.episodes import Episodes
from rlds.sources.sidecar import SIDECAR_KEY, SidecarWriter
from rlds.sources.source import Location, SourceEpisode
from rlds.sources.texts import json_in
from rlds_ecosystem.model.nests import root_of

__all__ = ["ManiSkillExport"]


class ManiSkillExport(Hdf5EpisodesExport):
    """A folder with `trajectory.h5` and `trajectory.json`, as ManiSkill 3 records them.

    `obs` has all T + 1 observations; `actions`, `rewards` and other numeric fields of the steps
    have T rows. All other values are in the sidecar, the folder `.rlds`. Indices
    of episodes begin at 0; episodes from ManiSkill keep their entries of the JSON file.

    Args:
      episodes: The episodes.
      env_id: The name of the environment, for the JSON file.
    """

    format = "maniskill"
    table = TABLE
    copies_parts = True

    def __init__(self, episodes: Episodes, *, env_id: str = "") -> None:
        super().__init__(episodes)
        self._env_id = env_id

    @override
    def find_array_paths(self) -> dict[str, str]:
        array_paths = super().find_array_paths()
        if self.table.actions not in map(root_of, array_paths.values()):
            raise ValueError("ManiSkill needs actions that are numbers; the steps have none")
        return array_paths

    @override
    def write(self, path: Path) -> None:
        name = Path(str(self.metadata.get("file", "trajectory"))).name
        entries = []
        with (
            SidecarWriter.in_folder(path, self.sidecar) as sidecar,
            new_file(path / f"{name}.h5") as (file, check),
            StagedFiles() as staged,
        ):
            write_attributes(file, self.metadata.get("attributes", {}))
            for index, each in enumerate(self.iter_items()):
                group = f"{TRAJECTORY}{index}"
                if isinstance(each, Location):
                    staged.copy(each.source, {f"{TRAJECTORY}{each.index}": group}, file)
                    episode = copy_row(each, sidecar)
                else:
                    episode = each
                    sidecar.add(episode)
                    self._write_group(ordered_group(file, group), episode)
                check()
                entries.append({**self._entry(episode), EPISODE_ID: index})
        content = {**self._content(), SIDECAR_KEY: self.sidecar.digest, EPISODES: entries}
        (path / f"{name}.json").write_text(json.dumps(content, indent=2))

    def _write_group(self, group: Any, episode: SourceEpisode) -> None:
        length = episode.num_steps - episode.final_observation_known
        is_last = np.arange(length) == length - 1
        columns = {
            "terminated": is_last & bool(episode.steps[rlds.IS_TERMINAL][-1]),
            "truncated": is_last & episode.truncated,
            **self.columns(episode),
        }
        for name, column in columns.items():
            is_image = column.dtype == np.uint8 and column.ndim == 4 and column.size
            compression = {"compression": "gzip", "compression_opts": 5} if is_image else {}
            group.create_dataset(name, data=column, **compression)
        self.write_values(group, episode)

    def _entry(self, episode: SourceEpisode) -> dict[str, Any]:
        """Returns the entry of an episode in the JSON file."""
        if entry := json_in(episode.metadata.get(ENTRY, ""), ENTRY):
            return dict(entry)
        return {
            "episode_seed": None,
            "control_mode": None,
            "elapsed_steps": episode.num_steps - episode.final_observation_known,
            "reset_kwargs": {},
        }

    def _content(self) -> dict[str, Any]:
        """Returns the dataset-level content of the JSON file."""
        if content := self.metadata.get("json"):
            return dict(content)
        return {
            "env_info": {"env_id": self._env_id, "env_kwargs": {}, "max_episode_steps": None},
            "source_type": "rlds",
            "source_desc": self.episodes.source.source_info.description,
        }
