"""Studies to try: what somebody who starts a server for the first time can play at once."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import msgspec

from rlds_creator.model import Environment, Mode, Study, StudyState, StudyTag

__all__ = ["starters"]

_STARTERS: tuple[tuple[tuple[str, ...], Study], ...] = (
    (
        ("gymnasium", "pygame"),
        Study(
            name="CartPole",
            instructions="Push the cart with the arrow keys, left and right, so that the pole "
            "stays up. Nothing moves until you press a key, and a key acts as long as you hold it.",
            environments=(
                Environment(
                    name="CartPole",
                    family="gymnasium",
                    options={"id": "CartPole-v1"},
                    mode=Mode.ASYNC,
                    fps=15.0,
                ),
            ),
        ),
    ),
    (
        ("ale_py",),
        Study(
            name="Breakout",
            instructions="Serve the ball with the space bar, and move with the arrow keys.",
            environments=(
                Environment(
                    name="Breakout",
                    family="atari",
                    options={"id": "ALE/Breakout-v5"},
                    mode=Mode.ASYNC,
                    fps=15.0,
                ),
            ),
        ),
    ),
    (
        ("minigrid",),
        Study(
            name="MiniGrid: door and key",
            instructions="Pick up the key, open the door, and go to the green square. Nothing "
            "happens until you press a key: take your time.",
            environments=(
                Environment(
                    name="Door and key",
                    family="minigrid",
                    options={"id": "MiniGrid-DoorKey-6x6-v0"},
                ),
            ),
            labels=(
                StudyTag(name="key", key="KeyK", description="The player picks up the key."),
                StudyTag(name="door", key="KeyD", description="The door opens."),
            ),
        ),
    ),
)


def starters() -> Iterator[Study]:
    """Returns the studies whose packages are installed; nothing is imported."""
    for modules, study in _STARTERS:
        if all(importlib.util.find_spec(module) is not None for module in modules):
            description = "A sample study. Change it, or delete it."
            yield msgspec.structs.replace(study, description=description, state=StudyState.ENABLED)
