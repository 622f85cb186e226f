"""Example studies of a new server."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from rlds_creator.model import Environment, Mode, Study, StudyState, StudyTag

__all__ = ["sample_studies"]


def _study(
    title: str, instructions: str, labels: tuple[StudyTag, ...] = (), **environment: Any
) -> Study:
    return Study(
        name=title,
        description="A sample study. Change it, or delete it.",
        instructions=instructions,
        state=StudyState.ENABLED,
        environments=(Environment(**{"name": title, **environment}),),
        labels=labels,
    )


_SAMPLE_STUDIES: tuple[tuple[tuple[str, ...], Study], ...] = (
    (
        ("gymnasium", "pygame"),
        _study(
            "CartPole",
            "Push the cart with the arrow keys, left and right, so that the pole stays up. "
            "Nothing moves until you press a key, and a key acts as long as you hold it.",
            family="gymnasium",
            options={"id": "CartPole-v1"},
            mode=Mode.ASYNC,
        ),
    ),
    (
        ("ale_py",),
        _study(
            "Breakout",
            "Serve the ball with the space bar, and move with the arrow keys.",
            family="atari",
            options={"id": "ALE/Breakout-v5"},
            mode=Mode.ASYNC,
        ),
    ),
    (
        ("minigrid",),
        _study(
            "MiniGrid: door and key",
            "Pick up the key, open the door, and go to the green square. Nothing happens until "
            "you press a key: take your time.",
            (
                StudyTag(name="key", key="KeyK", description="The player picks up the key."),
                StudyTag(name="door", key="KeyD", description="The door opens."),
            ),
            name="Door and key",
            family="minigrid",
            options={"id": "MiniGrid-DoorKey-6x6-v0"},
        ),
    ),
)


def sample_studies() -> Iterator[Study]:
    """Yields the studies whose packages are installed, without importing them."""
    for modules, study in _SAMPLE_STUDIES:
        if all(importlib.util.find_spec(module) is not None for module in modules):
            yield study
