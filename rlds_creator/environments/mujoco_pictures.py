"""Renderer of MuJoCo simulations, with all cameras, and a draft quality.

Without a graphics card, most of the time of a step goes into shadows, reflections and smooth edges.
A draft without them takes a tenth of the time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = [
    "FREE",
    "MuJoCoPictures",
    "actuator_names",
    "camera_names",
    "check_size",
    "draw_without_display",
]

FREE = "free"
"""The name of the free camera, which is not defined by the model and shows the whole scene."""

_MIN_SIDE, _MAX_SIDE = 16, 1920


def draw_without_display() -> None:
    """Selects EGL, so that MuJoCo draws without a display. Call it before the import of MuJoCo.

    The environment variable `MUJOCO_GL` overrides it: set "osmesa" if EGL is not available.
    """
    if sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("PYOPENGL_PLATFORM", os.environ["MUJOCO_GL"])


def check_size(width: int, height: int) -> None:
    """Checks the size of pictures.

    Raises:
      ValueError: A side is too short or too long.
    """
    for side in (width, height):
        if not _MIN_SIDE <= side <= _MAX_SIDE:
            raise ValueError(f"got {side} pixels, expected {_MIN_SIDE} to {_MAX_SIDE} a side")


def actuator_names(model: Any, shape: tuple[int, ...]) -> list[str]:
    """Returns the names of the elements of an action.

    Args:
      model: The model of the simulation.
      shape: The shape of an action.

    Returns:
      The names of the actuators; empty if an action does not have one element for each actuator, or
      the names are missing or repeated.
    """
    names = [model.actuator(index).name for index in range(model.nu)]
    is_named = shape == (len(names),) and len(set(names)) == len(names) and all(names)
    return names if is_named else []


def camera_names(model: Any) -> list[str]:
    """Returns the names of the cameras of a model."""
    return [model.camera(index).name or f"camera {index}" for index in range(model.ncam)]


class MuJoCoPictures:
    """The renderer of a simulation. Only the thread that creates it may use it.

    Args:
      simulation: A function that returns the `mujoco` model and data. A reset of the environment
        may replace them.
      width: The width of the pictures.
      height: The height of the pictures.
      free_camera: Attributes of the free camera, with the names of `mujoco.MjvCamera`.
      geom_groups: Whether the geometries of a group are drawn, if MuJoCo's default differs.
      first_camera: The name of the first camera, if the model has it.

    Attributes:
      cameras: The names of the cameras: the first one, those of the model, and the free one.
    """

    def __init__(
        self,
        simulation: Callable[[], tuple[Any, Any]],
        width: int,
        height: int,
        free_camera: Mapping[str, Any] | None = None,
        geom_groups: Mapping[int, bool] | None = None,
        first_camera: str = "",
    ) -> None:
        check_size(width, height)
        self._simulation, self._width, self._height = simulation, width, height
        self._free_camera, self._geom_groups = free_camera or {}, geom_groups or {}
        self._model: Any = None
        self._renderers: dict[bool, Any] = {}
        self._terrain_heights: Any = None
        names = [*camera_names(simulation()[0]), FREE]
        indices = range(len(names))
        self._camera_order = sorted(indices, key=lambda index: names[index] != first_camera)
        self.cameras = [names[index] for index in self._camera_order]
        self._is_checked = False

    def draw(self, camera: int, *, is_draft: bool = False) -> np.ndarray:
        """Returns a picture.

        Args:
          camera: The camera to render.
          is_draft: Whether to leave out shadows, reflections and smooth edges.
        """
        picture = self._draw(camera, is_draft)
        if not self._is_checked and (picture == picture[:1, :1]).all():
            self.close()  # The first picture of a process is sometimes blank.
            picture = self._draw(camera, is_draft)
        self._is_checked = True
        return picture

    def close(self) -> None:
        """Frees the drawing contexts."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()

    def _draw(self, camera: int, is_draft: bool) -> np.ndarray:
        import mujoco

        model, data = self._simulation()
        # Some tasks change the terrain in each episode; existing contexts keep the previous one.
        if model is not self._model or not np.array_equal(self._terrain_heights, model.hfield_data):
            self.close()
            self._model, self._terrain_heights = model, model.hfield_data.copy()
        renderer = self._renderers.get(is_draft)
        if renderer is None:
            renderer = self._renderers[is_draft] = self._create_renderer(model, is_draft)
        options = mujoco.MjvOption()
        for group, is_drawn in self._geom_groups.items():
            options.geomgroup[group] = is_drawn
        renderer.update_scene(data, self._create_camera(model, camera), options)
        if is_draft:  # Each update of the scene resets the flags.
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        picture: np.ndarray = renderer.render()
        return picture

    def _create_renderer(self, model: Any, is_draft: bool) -> Any:
        import mujoco

        quality, size = model.vis.quality, model.vis.global_
        size.offwidth = max(size.offwidth, self._width)
        size.offheight = max(size.offheight, self._height)
        samples = quality.offsamples
        try:
            if is_draft:
                quality.offsamples = 0
            return mujoco.Renderer(model, self._height, self._width)
        finally:
            quality.offsamples = samples

    def _create_camera(self, model: Any, index: int) -> Any:
        import mujoco

        if self._camera_order[index] < model.ncam:
            return self._camera_order[index]
        camera = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(model, camera)
        for name, value in self._free_camera.items():
            if name == "trackbodyid" and value >= 0:
                camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
            if isinstance(value, np.ndarray):
                getattr(camera, name)[:] = value
            else:
                setattr(camera, name, value)
        return camera
