"""A robot whose cameras are images in its steps: files and arrays, smooth as what cameras see."""

import dataclasses

import numpy as np
from robot_source import RobotSource, with_fields

from rlds_ecosystem.model.fields import Field
from tfds_files.png import encode_png

NAMES = ("shoulder.pos", "elbow.pos", "gripper.pos")
SHAPES = {"camera": (48, 64, 3), "wrist": (33, 47, 3)}


class PicturedRobot(RobotSource):
    """`observation/camera` has arrays, `observation/wrist` files, of another odd size."""

    fields = with_fields(
        RobotSource.fields,
        {
            "observation/state": Field(np.float32, (3,), names=NAMES),
            "observation/camera": Field(np.uint8, SHAPES["camera"]),
        },
    )

    def frames(self, camera, index):
        height, width, _ = SHAPES[camera]
        rows, columns = np.ogrid[:height, :width]
        number = self.lengths[index] + (index != 1)
        images = [
            np.stack(
                np.broadcast_arrays(rows * 2 + 40 * step, columns * 2 + 40 * step, rows + columns),
                axis=-1,
            )
            for step in range(number)
        ]
        return abs(np.array(images) % 510 - 255).astype(np.uint8)  # Without edges.

    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        files = [encode_png(image) for image in self.frames("wrist", index)]
        observation = {
            **episode.steps["observation"],
            "camera": self.frames("camera", index),
            "wrist": np.array([*files, None], object)[:-1],
        }
        return dataclasses.replace(episode, steps={**episode.steps, "observation": observation})


def psnr(one, other):
    """The peak signal-to-noise ratio of two images, in dB."""
    error = np.mean((np.asarray(one, np.float64) - other) ** 2)
    return 10 * np.log10(255**2 / max(error, 1e-9))
