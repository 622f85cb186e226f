"""Episodes that are much longer than what may be in memory."""

import io
import json
import tracemalloc

import dm_env
import numpy as np
import pytest
from PIL import Image

import tfds_files
from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
from envlogger.step_data import StepData
from rlds_creator.viewing import Shelf, shelf

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
    with tfds_files.DatasetWriter(path, tfds_files.Features(features=features), "long") as writer:
        pictures = np.stack([picture(step) for step in range(NUM_STEPS)])
        reward = np.arange(1, NUM_STEPS + 1, dtype=np.float32)
        writer.add({"steps": {"observation": {"camera": pictures}, "reward": reward}})


def write_minari(path):
    h5py = pytest.importorskip("h5py")
    (path / "data").mkdir(parents=True)

    def box(shape, dtype):
        low, high = np.zeros(shape).tolist(), np.full(shape, 255).tolist()
        return {"type": "Box", "dtype": dtype, "shape": shape, "low": low, "high": high}

    metadata = {
        "total_episodes": 1,
        "total_steps": NUM_STEPS - 1,
        "data_format": "hdf5",
        "observation_space": json.dumps(
            {"type": "Dict", "subspaces": {"camera": box([SIDE, SIDE, 3], "uint8")}}
        ),
        "action_space": json.dumps(box([1], "float32")),
    }
    (path / "data" / "metadata.json").write_text(json.dumps(metadata))
    with h5py.File(path / "data" / "main_data.hdf5", "w") as file:
        group = file.create_group("episode_0")
        group.attrs.update({"id": 0, "total_steps": NUM_STEPS - 1})
        camera = group.create_dataset(
            "observations/camera", (NUM_STEPS, SIDE, SIDE, 3), "u1", chunks=(16, SIDE, SIDE, 3)
        )
        for step in range(0, NUM_STEPS, 16):
            camera[step : step + 16] = np.stack([picture(step + i) for i in range(16)])
        group["actions"] = np.zeros((NUM_STEPS - 1, 1), np.float32)
        group["rewards"] = np.arange(1, NUM_STEPS, dtype=np.float64)
        group["terminations"] = np.zeros(NUM_STEPS - 1, bool)
        group["truncations"] = np.zeros(NUM_STEPS - 1, bool)


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_log, write_folder, write_minari])
def test_memory_is_bounded(write, tmp_path, monkeypatch):
    monkeypatch.setattr(shelf, "_CACHE_BYTES", MAX_CACHE)
    path = tmp_path / "long"
    write(path)
    all_pictures = NUM_STEPS * SIDE * SIDE * 3
    tracemalloc.start()
    try:
        shown = Shelf([path])
        [dataset] = shown.datasets()["datasets"]
        view = shown.view(dataset["id"], "train", 0)
        while not (outline := view.outline(5))["is_complete"]:
            pass
        assert outline["rewards"] == [*map(float, range(1, NUM_STEPS)), None]
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
