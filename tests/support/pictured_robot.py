"""A robot whose cameras are images in its steps: files and arrays with smooth pictures."""

import dataclasses

import numpy as np
from robot_source import RobotSource, with_fields

from rlds_ecosystem.model.fields import Field
from tfds_files.png import encode_png

NAMES = ("shoulder.pos", "elbow.pos", "gripper.pos")
SHAPES = {"camera": (48, 64, 3), "wrist": (33, 47, 3)}


class PicturedRobot(RobotSource):
    """`observation/camera` has arrays; `observation/wrist` has files of an odd size."""

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
        num_steps = self.lengths[index] + (index != 1)
        images = [
            np.stack(
                np.broadcast_arrays(rows * 2 + 40 * step, columns * 2 + 40 * step, rows + columns),
                axis=-1,
            )
            for step in range(num_steps)
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


def psnr(image, reference):
    """The peak signal-to-noise ratio of two images, in dB."""
    error = np.mean((np.asarray(image, np.float64) - reference) ** 2)
    return 10 * np.log10(255**2 / max(error, 1e-9))
