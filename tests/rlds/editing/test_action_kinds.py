"""Conversions between absolute and delta actions restore the same bits."""

import audited_data
import hostile_sources
import numpy as np
import pytest

import rlds
from rlds.editing import ActionAs, SetMeaning, lineage_of
from rlds.editing.action_kinds import ActionsView
from rlds.sources import Fields, Origin, Source, SourceEpisode, SourceError
from rlds.sources.testing import differences
from rlds_ecosystem.model.fields import Field
from rlds_tools.command_line.commands import run

NAMES = ("x", "y", "z", "Gripper")


class Arm(Source):
    """Episodes with values of all magnitudes; the last row of the first has no action."""

    def __init__(self, dtype, kind="absolute", names=NAMES, unit="m"):
        state = Field(dtype, (5,), unit="m", names=("time", *reversed(NAMES)))
        action = Field(dtype, (4,), kind=kind, unit=unit, names=names)
        self._fields = Fields({"observation": {"state": state}, "action": action}, {})
        rng, limit = np.random.default_rng(3), 4 if dtype == np.float16 else 12
        draws = rng.normal(size=(3, 2, 40, 5)) * 10.0 ** rng.integers(-limit, limit, (3, 2, 40, 5))
        draws[:, :, :9] = np.array([0.0, -0.0, 1.0])[rng.integers(0, 3, (3, 2, 9, 5))]
        self.states, self.actions = draws.clip(-6e4, 6e4).astype(dtype).swapaxes(0, 1)
        self.actions = self.actions[..., :4].copy()
        self.actions[:, 11, :2] = np.nan, -np.inf
        self.actions[:, 12] = np.finfo(dtype).smallest_subnormal

    @property
    def fields(self):
        return self._fields

    def inputs(self):
        return []

    def num_episodes(self, split):
        return 3

    def key(self, split, index):
        return str(index)

    def read(self, split, index, fields=None, rows=slice(None)):
        is_last = np.arange(40) == 39
        flags = {"is_first": is_last[::-1], "is_last": is_last, "is_terminal": np.zeros(40, bool)}
        steps = {"observation": {"state": self.states[index]}, "action": self.actions[index]}
        attributes = {"truncated": True, "final_observation_known": index == 0}
        return SourceEpisode(str(index), {**steps, **flags}, Origin("", 0, 1), **attributes)


def bits(column):
    return column.view(f"u{column.dtype.itemsize}").tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("kind", "other", "sign"), [("absolute", "delta", -1), ("delta", "absolute", 1)]
)
def test_inverse_conversion_restores_the_same_bits(dtype, kind, other, sign):
    arm = Arm(dtype, kind)
    converted = ActionsView(arm, other)
    back = ActionsView(converted, kind)
    assert back.fields == arm.fields
    for index in range(3):
        action = converted.read("train", index).steps["action"]
        with np.errstate(invalid="ignore"):
            expected = arm.actions[index].copy()
            rows = slice(39 if index == 0 else 40)
            expected[rows, :3] += sign * arm.states[index, rows][:, [4, 3, 2]]
        np.testing.assert_array_equal(action, expected)
        actual = back.read("train", index)
        assert actual.steps.keys() == arm.read("train", index).steps.keys()
        assert bits(actual.steps["action"]) == bits(arm.actions[index])
        [segment] = [back.read("train", index, ["steps/action"], slice(7, 13)).steps["action"]]
        assert bits(segment) == bits(arm.actions[index, 7:13])


@pytest.mark.parametrize(
    ("arm", "kind", "message"),
    [
        (Arm(np.float32), "velocity", "got 'velocity', expected one of delta, absolute"),
        (
            Arm(np.float32, "delta"),
            "delta",
            "declared as absolute, with .*, got in m",
        ),
        (Arm(np.float32, ""), "delta", r"rlds edit PATH --set-meaning action=absolute,unit="),
        (Arm(np.float32, unit=None), "delta", "expected an action declared"),
        (
            Arm(np.float32, unit="mm"),
            "delta",
            "one 'x' in mm in .*, got .*/state in m",
        ),
        (Arm(np.float32, names=("x", "y", "w", "z")), "delta", "one 'w' in m in .*, got none"),
        (
            Arm(np.float32, names=("x", "left_roll", "y", "z")),
            "delta",
            "'left_roll' is an angle of a rotation",
        ),
        (Arm(np.float32, names=["gripper"] * 4), "delta", "has only grippers"),
    ],
)
def test_actions_without_known_conversion_are_refused(arm, kind, message):
    with pytest.raises(ValueError, match=message):
        ActionsView(arm, kind)


def test_a_state_that_is_not_finite_is_refused():
    arm = Arm(np.float32)
    arm.states[1, 5, 4] = np.nan
    converted = ActionsView(arm, "delta")
    with pytest.raises(SourceError, match="the state of a step with an action is not finite"):
        converted.read("train", 1)


@pytest.mark.parametrize(
    ("kind", "delay", "message"),
    [
        ("delta", 0, r"\[0:6\]: declared as delta, but the values are absolute"),
        ("absolute", 1, "the state of a step is the result of its action"),
        ("absolute", 0, None),
    ],
)
def test_actions_that_contradict_their_declared_kind_are_refused(tmp_path, kind, delay, message):
    arm = audited_data.make_episodes("arm", 31, 12)
    arm = [it.changed(state=it.state[delay:], action=it.action[: len(it) - delay]) for it in arm]
    audited_data.write(tmp_path / "arm", arm)
    names = [*"abcdef", "gripper"]
    meanings = [SetMeaning("action", kind, "rad", names)]
    meanings += [SetMeaning("observation/state", unit="rad", names=names)]
    rlds.edit(tmp_path / "arm", *meanings, to=tmp_path / "made", to_format="tfds")
    edit = ActionAs("absolute" if kind == "delta" else "delta")
    if message is None:
        rlds.edit(tmp_path / "made", edit)
        assert rlds.sources.open(tmp_path / "made").spec["steps"]["action"].kind == "delta"
        return
    with pytest.raises(ValueError, match=message):
        rlds.edit(tmp_path / "made", edit)


def test_command_line_conversion_and_its_inverse_restore_steps(tmp_path, capsys):
    path = hostile_sources.write_raw("lerobot", tmp_path)
    edits = [SetMeaning("action", "absolute", "rad"), SetMeaning("observation.state", unit="rad")]
    rlds.edit(path, *edits)
    converted, back = str(tmp_path / "there"), str(tmp_path / "back")
    assert run(["convert", str(path), converted, "--to", "lerobot", "--action-as", "delta"]) == 0
    assert run(["convert", converted, back, "--to", "webdataset", "--action-as", "absolute"]) == 0
    before, output, after = (rlds.sources.open(it, "all") for it in (path, converted, back))
    assert output.spec["steps"]["action"].kind == "delta"
    assert not np.array_equal(output[0].steps["action"], before[0].steps["action"])
    operations = lineage_of(back)["operations"]
    assert operations[0] == {"do": "action_as", "kind": "absolute"}
    assert before.spec["steps"] == after.spec["steps"]
    for old, new in zip(before, after, strict=True):
        assert [*differences(old, new, {"key", "lerobot/row"})] == []
