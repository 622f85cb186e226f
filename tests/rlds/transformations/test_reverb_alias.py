"""`import reverb` without reverb."""

import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf

import rlds
from rlds.transformations import install_reverb_alias


@pytest.fixture(autouse=True)
def _unload_reverb(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "reverb"]:
        monkeypatch.delitem(sys.modules, name)


def test_alias_provides_the_names_of_reverb() -> None:
    with install_reverb_alias(replace=True):
        import reverb
        import reverb.structured_writer
        from reverb.pattern_dataset import PatternDataset
        from reverb.structured_writer import Condition, Config

        assert reverb.structured_writer is rlds.transformations.structured_writer
        assert reverb.PatternDataset is PatternDataset is rlds.transformations.PatternDataset
        assert (Condition, Config) == (
            rlds.transformations.structured_writer.Condition,
            rlds.transformations.structured_writer.Config,
        )


def test_closing_restores_the_real_reverb(monkeypatch: pytest.MonkeyPatch) -> None:
    real, real_client = types.ModuleType("reverb"), types.ModuleType("reverb.client")
    monkeypatch.setitem(sys.modules, "reverb", real)
    monkeypatch.setitem(sys.modules, "reverb.client", real_client)
    undo = install_reverb_alias(replace=True)
    assert sys.modules["reverb"] is not real
    assert "reverb.client" not in sys.modules
    install_reverb_alias().close()  # The alias exists, so this does nothing.
    assert sys.modules["reverb"] is not real
    undo.close()
    assert (sys.modules["reverb"], sys.modules["reverb.client"]) == (real, real_client)
    assert "reverb.structured_writer" not in sys.modules


def test_installed_reverb_is_hidden_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reverb.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "reverb", raising=False)
    with pytest.raises(RuntimeError, match=r"reverb is installed.*replace=True"):
        install_reverb_alias()
    assert "reverb" not in sys.modules


def test_names_that_need_a_server_are_missing() -> None:
    with install_reverb_alias(replace=True):
        import reverb

        with pytest.raises(AttributeError, match=r"no 'Client'.*patterns only.*dm-reverb"):
            reverb.Client  # noqa: B018


def test_code_for_the_published_package_makes_the_same_transitions() -> None:
    """All names that the notebook on patterns uses, and the three ways to apply a pattern."""
    steps = {
        "observation": {"x": tf.range(5)},
        "action": tf.range(5),
        "is_last": tf.range(5) == 4,
        "is_terminal": tf.range(5) == 4,
    }
    episodes = tf.data.Dataset.from_tensors({"steps": steps}).repeat(2)
    spec = rlds.transformations.step_spec(episodes)

    with install_reverb_alias(replace=True):
        from reverb import PatternDataset, structured_writer

        def pairs(step):
            return {"action": step["action"][-2], "next": step["observation"]["x"][-1]}

        pattern = pairs(structured_writer.create_reference_step(spec))
        assert pattern == structured_writer.pattern_from_transform(spec, pairs)
        conditions = [
            structured_writer.Condition.step_index() < 3,
            structured_writer.Condition.data(spec)["is_terminal"] == False,  # noqa: E712
        ]
        config = structured_writer.create_config(pattern, table="unused", conditions=conditions)
        datasets = [
            rlds.transformations.pattern_map(episodes, [config]),
            rlds.transformations.pattern_map_from_transform(episodes, pairs, conditions),
            PatternDataset(
                input_dataset=episodes.flat_map(
                    lambda e: tf.data.Dataset.from_tensor_slices(e["steps"])
                ),
                configs=[config],
                respect_episode_boundaries=True,
                is_end_of_episode=lambda step: step["is_last"],
            ),
        ]
    for dataset in datasets:
        outputs = [(int(out["action"]), int(out["next"])) for out in dataset]
        assert outputs == [(0, 1), (1, 2)] * 2
