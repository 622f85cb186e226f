"""ManiSkill 2 and 3: `trajectory.<obs_mode>.<control_mode>.h5`, and a JSON file of the same name.

A group `traj_<episode_id>` of the HDF5 file has

    actions                                  T rows, an array or a group of arrays
    terminated, truncated, success, fail     T rows, optional
    rewards                                  T rows, optional
    obs                                      T + 1 rows, an array or groups of arrays; optional
    env_states                               T + 1 rows, like `obs`; one array in ManiSkill 2
    env_init_state                           the initial state, in ManiSkill 2

and the JSON file an entry with the same `episode_id`: seed, control mode, `reset_kwargs`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import override

from rlds.formats.hdf5_source import ATTRIBUTE_NAMES, Hdf5Episode, Hdf5EpisodesSource, Hdf5Table
from rlds.raw_files.hdf5_access import Hdf5File, is_array
from rlds.raw_files.hdf5_episodes import EpisodeGroup
from rlds.raw_files.hdf5_values import read_attributes
from rlds.raw_files.input_files import files_at
from rlds.raw_files.untrusted import check_is_file, is_there, source_errors
from rlds.sources.sidecar import SIDECAR_KEY, StoredSidecar
from rlds.sources.source import Capabilities, SourceError, SourceInfo
from rlds_ecosystem.model.fields import Field

__all__ = ["ENTRY", "EPISODES", "EPISODE_ID", "TABLE", "TRAJECTORY", "ManiSkillSource"]

EPISODES, EPISODE_ID, TRAJECTORY = "episodes", "episode_id", "traj_"
# The field of an episode with its entry of the JSON file.
ENTRY = "entry"
# The suffix of the sidecar folder of a file, in earlier releases.
_LEGACY_SIDECAR = ".rlds"

TABLE = Hdf5Table(
    steps={
        "actions": "action",
        "obs": "observation",
        "rewards": "reward",
        "env_states": "env_states",
        "terminated": "terminated",
        "truncated": "truncated",
        "success": "success",
        "fail": "fail",
    },
    actions="actions",
    with_final_row=("obs", "env_states"),
    episode=("env_init_state",),
    terminal="terminated",
)

_GROUP_NAME = re.compile(rf"{TRAJECTORY}(\d+)")
_SEED_KEY, _SEED_KNOWN_FIELD, _CONTROL_MODE = "episode_seed", "episode_seed_known", "control_mode"


class ManiSkillSource(Hdf5EpisodesSource):
    """The trajectories of a ManiSkill 2 or 3 file, with their entries of the JSON file.

    `obs` becomes the observation; files without `obs` have no observation. `env_states`,
    `terminated`, `truncated`, `success` and `fail` are fields of the steps, like other arrays with
    a row for each transition or each observation. An episode is terminal if `terminated` is set in
    its last row. The fields of the episode are:

    * `entry`: its entry of the JSON file, in JSON; empty without an entry;
    * `episode_seed`, `episode_seed_known` and `control_mode`, of the entry;
    * all other arrays and attributes of the group; `other_attributes` has the attributes of arrays,
      in JSON.

    An episode is not `complete` if it has fewer steps than its entry declares. `faults` reports
    episodes that only the JSON file or only the HDF5 file has.

    Args:
      path: The HDF5 file, or a folder with a single HDF5 file.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: No trajectory can be read, or the JSON file is damaged.
    """

    table = TABLE
    keeps_attributes = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        files = files_at(path, lambda name: name.endswith((".h5", ".hdf5")))
        if len(files) != 1:
            raise FileNotFoundError(
                f"{os.fspath(path)!r} has no .h5 file, or several: pass the path of one"
            )
        self._path = files[0]
        self._hdf5 = Hdf5File(self._path)
        self._json_file = self._path.with_suffix(".json")
        self._json: dict[str, Any] = {}
        self._entries: dict[int, Any] = {}
        if is_there(self._json_file):
            self._read_json()
        with self._hdf5.read() as file:
            names = [name for name in file if isinstance(name, str)]
            self._file_attributes = read_attributes(self._hdf5, file, "")
        self._unknown_names = [name for name in names if not _GROUP_NAME.fullmatch(name)]
        matches = [match for name in names if (match := _GROUP_NAME.fullmatch(name))]
        self._names = {int(match[1]): match[0] for match in matches}
        if not self._names:
            raise SourceError(f"no group {TRAJECTORY}0, ...", file=self._path)
        self._digest = self._json.pop(SIDECAR_KEY, None)
        names = [self._names[episode_id] for episode_id in sorted(self._names)]
        file = self._path
        self._set_episodes({"train": [Hdf5Episode(n, file, f"{file.name}/{n}") for n in names]})

    def _read_json(self) -> None:
        check_is_file(self._json_file)
        with source_errors(self._json_file):
            content = json.loads(self._json_file.read_text())
            if not isinstance(content, dict):
                raise ValueError(f"{type(content).__name__}, expected an object")
            entries = content.get(EPISODES, [])
            if not isinstance(entries, list):
                raise SourceError("expected a list", file=self._json_file, field=EPISODES)
            for entry in entries:
                if (episode_id := _episode_id_of(entry)) is not None:
                    self._entries.setdefault(episode_id, entry)
        self._json = content

    def _file(self, episode: Hdf5Episode) -> Hdf5File:
        return self._hdf5

    def _group(self, hdf5: Hdf5File, file: Any, episode: Hdf5Episode) -> EpisodeGroup:
        name = episode.key
        group = hdf5.member(file, name, name)
        if is_array(group):
            raise hdf5.error("an array, expected a group", name)
        return EpisodeGroup(hdf5, group)

    def _is_complete(self, episode: Hdf5Episode, num_transitions: int) -> bool:
        num_steps = self._entry(episode).get("elapsed_steps")
        return type(num_steps) is not int or num_transitions >= num_steps

    def _entry(self, episode: Hdf5Episode) -> Mapping[str, Any]:
        episode_id = int(episode.key.removeprefix(TRAJECTORY))
        entry: Mapping[str, Any] = self._entries.get(episode_id, {})
        return entry

    def _other_values(self, episode: Hdf5Episode) -> Mapping[str, Any]:
        entry = self._entry(episode)
        seed, mode = entry.get(_SEED_KEY), entry.get(_CONTROL_MODE)
        is_known = isinstance(seed, int) and -(2**63) <= seed < 2**63
        with source_errors(self._json_file, field=_CONTROL_MODE):
            mode = mode.encode().decode() if isinstance(mode, str) else ""
        return {
            ENTRY: json.dumps(entry) if entry else "",
            _SEED_KEY: np.int64(seed if is_known and seed is not None else 0),
            _SEED_KNOWN_FIELD: np.bool_(is_known),
            _CONTROL_MODE: mode,
        }

    def _other_fields(self) -> Mapping[str, Field]:
        return {
            ENTRY: Field(str),
            _SEED_KEY: Field(np.int64),
            _SEED_KNOWN_FIELD: Field(np.bool_),
            _CONTROL_MODE: Field(str),
        }

    @property
    @override
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(
            super().capabilities,
            faults=self._find_faults,
            hold_open=lambda: self._hdf5,  # The file stays open.
            sidecar=self._sidecar,
        )

    def _sidecar(self) -> StoredSidecar | None:
        if self._digest is not None:
            return StoredSidecar.in_folder(self._path.parent, digest=self._digest)
        return StoredSidecar.in_folder(self._path.with_suffix(_LEGACY_SIDECAR))

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        metadata = {
            "file": str(self._path.stem),
            "json": {name: value for name, value in self._json.items() if name != EPISODES},
            "attributes": self._file_attributes,
            ATTRIBUTE_NAMES: list(self._attributes),
        }
        return SourceInfo(
            description="Trajectories of ManiSkill.",
            homepage="https://maniskill.ai",
            metadata={"maniskill": metadata},
            aliases=self.table.aliases,
        )

    def _find_faults(self, split: str) -> Iterator[SourceError]:
        """Yields errors of episodes that only one of the two files has."""
        for row, entry in enumerate(self._json.get(EPISODES, [])):
            episode_id = _episode_id_of(entry)
            name = EPISODES if episode_id is None else f"{TRAJECTORY}{episode_id}"
            if episode_id is None:
                problem = f"an entry without {EPISODE_ID}"
            elif episode_id not in self._names:
                problem = f"listed, but {self._path.name} has no {name}"
            elif self._entries[episode_id] is not entry:
                problem = "listed twice"
            else:
                continue
            yield SourceError(problem, file=self._json_file, episode=name, row=row)
        for name in self._unknown_names:
            yield SourceError(
                f"not read: its name is not {TRAJECTORY}<i>", file=self._path, field=name
            )
        for episode_id in sorted(self._names) if self._json else ():
            if episode_id not in self._entries:
                problem = f"{self._json_file.name} does not list it"
                yield SourceError(problem, file=self._path, episode=self._names[episode_id])

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return [self._path, *([self._json_file] if self._json else [])]


def _episode_id_of(entry: Any) -> int | None:
    """Returns the episode id of an entry of the JSON file; None if it has none."""
    episode_id = entry.get(EPISODE_ID) if isinstance(entry, dict) else None
    return episode_id if type(episode_id) is int else None
