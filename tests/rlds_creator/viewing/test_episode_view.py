"""Episodes as the pages show them."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from rlds_creator.viewing import Shelf
from tests.support.tiny_datasets import episode, write_dataset


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tiny"
    content = [episode(5), episode(9, seed=1)]
    write_dataset(path, content)
    return Shelf([path]), [one["steps"] for one in content]


def view_of(shelf, index):
    [dataset] = shelf.datasets()["datasets"]
    return shelf.view(dataset["id"], dataset["splits"][0]["name"], index)


def test_a_dataset_of_tfds(tiny):
    shelf, content = tiny
    view = view_of(shelf, 1)
    outline = json.loads(json.dumps(view.outline(), allow_nan=False))
    kinds = {field["path"]: field["kind"] for field in outline["fields"]}
    assert kinds == {
        "observation/camera": "picture",
        "observation/position": "vector",
        "action": "number",
        "reward": "number",
        "discount": "number",
        "is_first": "flag",
        "is_last": "flag",
        "is_terminal": "flag",
    }
    assert outline["num_steps"] == 9
    assert outline["next"] is None
    assert outline["rewards"] == [*map(float, content[1]["reward"][:-1]), None]
    values = view.step(4)["values"]
    assert values["action"] == content[1]["action"][4]
    assert values["observation/position"] == content[1]["observation"]["position"][4].tolist()
    data, kind = view.picture(4, "observation/camera")
    assert kind == "image/png"
    assert np.array_equal(Image.open(io.BytesIO(data)), content[1]["observation"]["camera"][4])
    for step in (-1, 9, 2**63):
        with pytest.raises(IndexError):
            view.step(step)
