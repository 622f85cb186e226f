"""Episodes much larger than the memory limit."""

import io
import tracemalloc

import dm_env
import numpy as np
import pytest
from PIL import Image

import tfds_files
from envlogger import RiegeliBackendWriter, StepData
from rlds import sources
from rlds_creator.viewing import Catalog, catalog

NUM_STEPS, SIDE = 4_000, 64
MAX_CACHE = 8 << 20


def picture(step):
    return np.full((SIDE, SIDE, 3), step % 256, np.uint8)


def write_log(path):
    writer = RiegeliBackendWriter(path)
    for step in range(NUM_STEPS):
        kind = dm_env.StepType(0 if step == 0 else 2 if step == NUM_STEPS - 1 else 1)
        timestep = dm_env.TimeStep(kind, float(step), 1.0, {"camera": picture(step)})
        writer.record_step(StepData(timestep, step), step == 0)
    writer.close()


def write_folder(path):
    camera = tfds_files.Tensor(shape=(SIDE, SIDE, 3), dtype=np.dtype(np.uint8), encoding="bytes")
    step = {
        "observation": tfds_files.Features(features={"camera": camera}),
        "reward": tfds_files.Tensor(dtype=np.dtype(np.float32)),
    }
    features = {"steps": tfds_files.Dataset(feature=tfds_files.Features(features=step))}
    with tfds_files.append_to(path, tfds_files.Features(features=features), "long") as writer:
        pictures = np.stack([picture(step) for step in range(NUM_STEPS)])
        reward = np.arange(1, NUM_STEPS + 1, dtype=np.float32)
        writer.add({"steps": {"observation": {"camera": pictures}, "reward": reward}})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "where"), [(write_log, None), (write_folder, None), (write_folder, "steps > 1")]
)
def test_memory_for_long_episodes_is_bounded(write, where, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "_CACHE_BYTES", MAX_CACHE)
    path = tmp_path / "long"
    write(path)
    if where is not None:
        sources.open(path, where=where)  # Stores the table of episodes, which reads all episodes.
    all_pictures = NUM_STEPS * SIDE * SIDE * 3
    tracemalloc.start()
    try:
        viewer = Catalog([path], where=where)
        [dataset] = viewer.datasets()["datasets"]
        view = viewer.view(dataset["id"], "train", 0)
        while not (summary := view.summary(5))["is_complete"]:
            pass
        assert summary["rewards"] == [*map(float, range(1, NUM_STEPS)), None]
        for step in np.random.default_rng(0).integers(0, NUM_STEPS, 200).tolist():
            view.step(step)
            data, _ = view.picture(step, "observation/camera")
            pixels = np.asarray(Image.open(io.BytesIO(data)))
            assert (pixels == picture(step)).all()
        for step in range(300):
            view.picture(step, "observation/camera")
        view.series("reward")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MAX_CACHE + (24 << 20) < all_pictures
