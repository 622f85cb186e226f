"""A dataset of a user, with a folder for each episode: a CSV file, arrays and images."""

from pathlib import Path

import numpy as np

from tfds_files.png import encode_png

LAYOUT = """
layout: 1
files: run_*
episodes: {one_per: folder}
order: sar
final_observation: last_row
terminal: log.csv/done
steps:
  observation/camera: "rgb/*.png"
  observation/joints: {from: arrays.npz/joints, unit: rad}
  action: [log.csv/x, log.csv/y]
episode: {instruction: arrays.npz/text, operator: log.csv/by}
"""


def write(directory: Path, lengths=(4, 3)) -> Path:
    """Writes the dataset to an existing directory."""
    (directory / "rlds_layout.yaml").write_text(LAYOUT)
    rng = np.random.default_rng(0)
    for index, length in enumerate(lengths):
        (folder := directory / f"run_{index}" / "rgb").mkdir(parents=True)
        rows = [
            f"{row / 4},{-row / 4},{int(index and row == length - 2)},ann" for row in range(length)
        ]
        (folder.parent / "log.csv").write_text("\n".join(["x,y,done,by", *rows]))
        joints = rng.random((length, 3), np.float32)
        np.savez_compressed(folder.parent / "arrays.npz", joints=joints, text=f"pick {index}")
        for row in range(length):
            pixels = rng.integers(0, 256, (4, 6, 3), np.uint8)
            (folder / f"{row}.png").write_bytes(encode_png(pixels))
    return directory
