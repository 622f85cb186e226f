"""Names of label layers in any script."""

import json

import numpy as np
import pytest

import rlds.labels
import rlds.sources
from rlds.labels import Layer


def test_layer_names_accept_any_script_and_titles_are_kept(tmp_path):
    for index in range(2):
        steps = {"observation": np.full((5, 2), index, "f4"), "action": np.ones((4, 1), "f4")}
        np.savez(tmp_path / f"episode_{index}.npz", **steps)
    labels = rlds.labels.open(tmp_path)
    quality = Layer(name="品質", type="choice", choices=("良", "悪"), title="品質?")
    labels.declare(quality)
    labels.declare(Layer(name="slip", type="flag"))
    labels.add("品質", 1, "良", by="安")
    for name in ("качество", "qualité", "गुणवत्ता", "คุณภาพ"):
        labels.add(name, 0, True, by="ann")
    labels = rlds.labels.open(tmp_path)
    assert labels.declared_layers()["品質"] == quality
    for name, index in (("品質 = '良'", 1), ("गुणवत्ता", 0), ("คุณภาพ", 0), ("качество", 0)):
        assert len(rlds.sources.open(tmp_path, where=f"label.{name}")) == 1
        assert rlds.sources.open(tmp_path).table().where(f"label.{name}").tolist() == [index]
    # Older releases only read layers without a title.
    stored_layers = json.loads((tmp_path / ".rlds" / "labels" / "layers.json").read_bytes())
    assert ["title" in layer for layer in stored_layers] == [True, False]


@pytest.mark.parametrize("name", ["Phase", "_x", "2nd", "\ufb01rst", "x" * 65, "../x", "a b", ""])
def test_invalid_layer_names_are_refused(name):
    with pytest.raises(ValueError, match=r"name: got .*, expected a lower-case letter"):
        Layer(name=name, type="flag")
