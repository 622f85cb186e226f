"""The dialects of robomimic's format: the writers of files, and the meaning of their names."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import has

__all__ = [
    "DIALECTS",
    "Dialect",
    "detect_dialect",
    "instruction_of_demo",
    "instruction_of_file",
    "with_instruction",
    "with_names",
]

_QUATERNION_DOC = "A quaternion, in the order x, y, z, w."
_ROBOSUITE_DOCS = (
    (r"obs/.*_quat(_site)?", _QUATERNION_DOC),
    (r"states", "The state of the simulator: time, positions, velocities."),
)
_LIBERO_DOCS = (
    (r"obs/.*_rgb", "Upside down, as OpenGL renders images."),
    (r"obs/ee_ori", "Axis times angle."),
    *_ROBOSUITE_DOCS,
)
_ISAAC_POSE_DOC = (
    "A position, and a quaternion: w, x, y, z up to Isaac Lab 2, x, y, z, w from 3 on. The file "
    "does not say which."
)


@dataclasses.dataclass(frozen=True)
class Dialect:
    """A dialect of robomimic files: the meaning of names that differ between writers.

    Attributes:
      name: The name of the dialect.
      after_action: The names of arrays and groups with observations or states after the action of
        the row, instead of before it.
      initial_group: The group with the values before the first action; empty without such a group.
      docs: Descriptions of fields, by patterns of their paths in the file.
    """

    name: str
    after_action: tuple[str, ...] = ()
    initial_group: str = ""
    docs: tuple[tuple[str, str], ...] = _ROBOSUITE_DOCS

    def doc(self, path: str) -> str:
        """Returns the description of an array; empty without a description."""
        return next((text for pattern, text in self.docs if re.fullmatch(pattern, path)), "")


DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        # Isaac Lab and Isaac Lab Mimic.
        Dialect("isaac_lab", ("states",), "initial_state", ((r".*/root_pose", _ISAAC_POSE_DOC),)),
        # LIBERO as published, and LIBERO replayed for OpenVLA.
        Dialect("libero", after_action=("obs", "robot_states"), docs=_LIBERO_DOCS),
        Dialect("libero_regenerated", docs=_LIBERO_DOCS),
        Dialect("mimicgen"),
        # Human demonstrations of robosuite.
        Dialect("robosuite"),
        # robomimic, and RoboCasa up to 0.2.
        Dialect("robomimic"),
    )
}


def detect_dialect(attributes: Mapping[str, str], arrays: Collection[str]) -> str:
    """Returns the name of the dialect of a file.

    Args:
      attributes: The text attributes of the group `data`.
      arrays: The paths of the arrays in a demonstration.
    """
    paths = dict.fromkeys(arrays)
    has_group_of_states = has(paths, "states") and "states" not in paths
    if has(paths, "initial_state") or has_group_of_states:
        return "isaac_lab"
    if "bddl_file_name" in attributes:
        return "libero"
    if not attributes and has(paths, "obs/agentview_rgb"):
        return "libero_regenerated"
    if has(paths, "datagen_info") or has(paths, "src_demo_inds"):
        return "mimicgen"
    if "repository_version" in attributes and not has(paths, "obs"):
        return "robosuite"
    return "robomimic"


def instruction_of_file(attributes: Mapping[str, str], dialect: str, name: str) -> str:
    """Returns the instruction of all demonstrations of a file; empty without an instruction.

    Args:
      attributes: The text attributes of the group `data`.
      dialect: The name of the dialect.
      name: The name of the file.
    """
    instruction = _json(attributes.get("problem_info", "")).get("language_instruction")
    if isinstance(instruction, list):
        instruction = " ".join(map(str, instruction))
    if not instruction and dialect == "libero_regenerated":
        task, suffix, _ = name.rpartition("_demo.")
        instruction = re.sub(r"^[A-Z_]+SCENE\d+_", "", task).replace("_", " ") if suffix else ""
    return instruction if isinstance(instruction, str) else ""


def instruction_of_demo(ep_meta: Any) -> str:
    """Returns the instruction in the attribute `ep_meta` of a demonstration."""
    instruction = _json(ep_meta).get("lang")
    return instruction if isinstance(instruction, str) else ""


def with_instruction(ep_meta: Any, text: str) -> str:
    """Returns the attribute `ep_meta` with a new instruction."""
    return json.dumps({**_json(ep_meta), "lang": text})


def with_names(action: Field, attributes: Mapping[str, str]) -> Field:
    """Returns the field of actions, with names for a supported controller of robosuite."""
    arguments = _json(attributes.get("env_args", "")).get("env_kwargs")
    controller = arguments.get("controller_configs") if isinstance(arguments, dict) else None
    controller = controller if isinstance(controller, dict) else {}
    type_name, is_delta = controller.get("type"), controller.get("control_delta")
    kind = ("absolute", "delta")[is_delta] if isinstance(is_delta, bool) else ""
    sizes = {"OSC_POSE": ("x", "y", "z", "ax", "ay", "az"), "OSC_POSITION": ("x", "y", "z")}
    axes = sizes.get(type_name, ()) if isinstance(type_name, str) else ()
    names = (*axes, "gripper") if axes else ()
    if not names or action.shape != (len(names),) or np.dtype(action.dtype).kind != "f":
        return dataclasses.replace(action, kind=kind)
    doc = (
        f"A command for the controller {type_name}: {_MOVES[kind]}; the gripper opens at -1, and "
        "closes at 1."
    )
    return dataclasses.replace(action, names=names, kind=kind, doc=doc)


_AXIS_ANGLE_DOC = "the rotation as axis times angle"
_MOVES = {
    "delta": f"how far to move and turn, from -1 to 1 (env_args has its scale), {_AXIS_ANGLE_DOC}",
    "absolute": f"the pose to reach, {_AXIS_ANGLE_DOC}",
    "": f"env_args does not tell whether a pose or a change of it, {_AXIS_ANGLE_DOC}",
}


def _json(text: Any) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
