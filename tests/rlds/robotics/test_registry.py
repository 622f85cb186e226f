import json
import re

import pytest

import rlds.robotics
from rlds.robotics import DatasetMeaning, expressions, registry


@pytest.fixture
def clean_registry():
    """Removes the entries that a test registers."""
    yield
    for function in (registry._entries, registry._index_names, registry._read_meaning):
        function.cache_clear()


@pytest.mark.parametrize(
    ("name", "element", "range", "frame", "confidence"),
    [
        ("bridge", ("action/open_gripper", 0), "0 to 1", "base of the robot", "stated"),
        ("bridge_dataset", ("action", 6), "0 to 1", "base of the robot", "stated"),
        ("droid", ("action", 6), "0 to 1", "base of the robot", "measured"),
        (
            "fractal20220817_data",
            ("action/gripper_closedness_action", 0),
            "-1 to 1",
            "base of the robot",
            "stated",
        ),
    ],
)
def test_meaning_describes_gripper_position_and_pitch(name, element, range, frame, confidence):
    meaning = rlds.robotics.meaning_of(name)
    gripper, x, pitch = (meaning.action[index] for index in (6, 0, 4))
    assert gripper.name == "gripper"
    assert (gripper.field, gripper.element) == element
    assert (gripper.range, gripper.confidence) == (range, confidence)
    assert (x.name, x.unit, x.frame, x.assumed) == ("x", "m", frame, ("unit",))
    assert (pitch.name, pitch.unit, pitch.frame) == ("pitch", "rad", frame)


def test_grippers_have_documented_open_and_closed_values():
    grippers = {
        name: str(rlds.robotics.meaning_of(name).gripper)
        for name in ("bridge_orig", "droid", "rt_1", "taco_play", "viola", "uiuc_d3field", "dobbe")
    }
    assert grippers == {
        "bridge_orig": "1 is open, 0 is closed",
        "droid": "0 is open, 1 is closed",
        "rt_1": "+1 closes, -1 opens, 0 keeps it",
        "taco_play": "1 is open, -1 is closed",
        "viola": "0 is open, 1 is closed",
        "uiuc_d3field": "no command",
        "dobbe": "the open value is not documented",
    }


@pytest.mark.parametrize("name", rlds.robotics.registered_datasets())
def test_registry_entry_is_consistent(name):
    meaning = rlds.robotics.meaning_of(name)
    assert meaning.name == name
    assert meaning.action
    assert meaning.sources
    assert meaning.confidence in registry.CONFIDENCE
    if meaning.confidence == "disputed":
        assert meaning.disagreements
    texts = [*meaning.standard_action, *meaning.standard_state]
    for piece in map(expressions.parse, texts):
        assert not piece.path or re.match(
            "(observation|action|action_dict|ground_truth)", piece.path
        )
    for camera, path in {**meaning.cameras, **meaning.depth}.items():
        assert camera in ("primary", "secondary", "wrist")
        assert path.startswith("observation/")
    elements = [(d.field, d.element) for d in meaning.action]
    assert len(set(elements)) == len(elements)
    # The meaning of the gripper and its rules must agree.
    expected = {
        ("absolute", 1, 0): {(), ("binarize",)},
        ("absolute", 0, 1): {("invert",), ("clip", "invert")},
        ("absolute", 1, -1): {("clip",)},
        ("absolute", -1, 1): {("clip", "invert")},
        ("relative", -1, 1): {("rel2abs",), ()},
    }
    gripper = meaning.gripper
    if gripper.open is not None and meaning.standard_action:
        assert gripper.rules in expected[gripper.meaning, gripper.open, gripper.closed]


def test_disagreements_of_publications_are_listed():
    topics = {
        name: [actual.about for actual in rlds.robotics.meaning_of(name).disagreements]
        for name in ("berkeley_mvp", "berkeley_rpt", "dobbe", "droid", "taco_play", "roboturk")
    }
    assert topics == {
        "berkeley_mvp": ["gripper"],
        "berkeley_rpt": ["gripper"],
        "dobbe": ["cameras"],
        "droid": ["action", "state"],
        "taco_play": ["state"],
        "roboturk": ["language"],
    }
    assert "six joint velocities" in str(rlds.robotics.meaning_of("droid").disagreements[0])


def test_datasets_are_found_by_path_and_misspellings_corrected():
    def name_of(name):
        return rlds.robotics.meaning_of(name).name

    assert name_of("bridge/0.1.0") == "bridge_oxe"
    assert name_of("mt_opt/rlds/1.0.0") == "mt_opt"
    assert name_of("gs://gresearch/robotics/fractal_20220817_data/0.1.0") == "fractal20220817_data"
    assert name_of("nyu_rot_dataset").startswith("nyu_rot_dataset_converted")
    assert name_of("Bridge-Dataset") == "bridge_dataset"
    with pytest.raises(KeyError, match=r"brigde_datset.*did you mean 'bridge_dataset'"):
        rlds.robotics.meaning_of("brigde_datset")
    assert rlds.robotics.find_meaning("cartpole") is None
    assert registry.similar_dataset("fractal_20220817data") == "fractal20220817_data"
    assert registry.similar_dataset("brigde_dataset") == "bridge_dataset"
    assert registry.similar_dataset("bridge") is None
    assert registry.similar_dataset("cartpole") is None


def test_registered_meanings_override_built_in_ones(tmp_path, clean_registry):
    arm = {"action": {"action[0:7]": "joint_delta", "action[7]": "gripper"}, "robot": "mine"}
    file = tmp_path / "mine.toml"
    file.write_text(
        '[kuka]\ncontrol_hz = 12.5\n[kuka.gripper]\nmeaning = "absolute"\nopen = 1\nclosed = 0\n'
    )
    rlds.robotics.register(file)
    kuka = rlds.robotics.meaning_of("kuka")
    assert (kuka.control_hz, kuka.robot, kuka.confidence) == (12.5, "Kuka iiwa", "user")
    assert str(kuka.gripper) == "1 is open, 0 is closed"
    (tmp_path / "mine.json").write_text(json.dumps({"arm7": arm}))
    rlds.robotics.register(tmp_path / "mine.json")
    assert [d.name for d in rlds.robotics.meaning_of("arm7").action][-2:] == ["joint_7", "gripper"]
    # Metadata of a dataset overrides fields of its entry, or is the entry if there is none.
    meaning = rlds.robotics.meaning_of("unheard_of", {"rlds_robotics": arm})
    assert (meaning.name, meaning.robot, len(meaning.action)) == ("unheard_of", "mine", 8)
    meaning = rlds.robotics.meaning_of("droid", {"rlds_robotics": {"control_hz": 5}})
    assert (meaning.control_hz, len(meaning.action)) == (5, 7)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"acton": {}}, "got 'acton', expected one of"),
        ({"action": {"action[0:3]": "xyz"}}, "action.0:3. is 'xyz', expected one of"),
        ({"action": {"action[0:4]": "position_delta"}}, "4 elements, expected 3"),
        ({"action_encoding": "EEF"}, "action_encoding: got 'EEF', expected one of"),
        ({"confidence": "sure"}, "confidence: got 'sure', expected one of"),
        ({"standard_action": ["open(action)"]}, "unknown rule 'open'"),
        ({"standard_action": ["action["]}, "neither a number nor a field"),
        ({"gripper": {"is": "open"}}, "gripper: .* is not valid"),
        ({"gripper": {"open": "yes"}}, "gripper: .* is not valid"),
        ({"gripper": {"meaning": "open"}}, "gripper: .* is not valid"),
        ({"control_hz": "10"}, "control_hz: '10' is not valid"),
        ({"cameras": ["image"]}, "cameras: .* is not valid"),
        ({"kept": [1]}, "kept: .* is not valid"),
        ({"disagreements": [{"about": "all"}]}, "disagreements: .* is not valid"),
        ({"aliases": "arm"}, "aliases: 'arm' is not valid"),
        # Malicious entries.
        ({"action": {"action[0:999999999]": "other"}}, "action: 999999999 elements, expected"),
        ({"action": {"action[3:1]": "other"}}, "action: -2 elements, expected"),
        (
            {"action": {"action": {"is": "other", "size": 10**8}}},
            "action: 100000000 elements, expected",
        ),
        ({"state": ["x[0:99999999]"], "state_encoding": "JOINT"}, "more than"),
        ({"standard_action": ["clip(" * 5000 + "a" + ")" * 5000]}, "more than 8 rules"),
        ({"standard_action": ["action[" + "9" * 5000 + "]"]}, "neither a number nor a field"),
        ("?", "expected an object"),
    ],
)
def test_invalid_entries_are_refused(entry, message, clean_registry):
    with pytest.raises(ValueError, match=message):
        rlds.robotics.register({"arm": entry})
    assert rlds.robotics.find_meaning("arm") is None


def test_elements_are_named_if_the_size_fits():
    bridge = rlds.robotics.meaning_of("bridge_dataset")
    names = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
    assert bridge.names_of("action", 7) == bridge.names_of("observation/state", 7) == names
    assert bridge.names_of("action", 8) is None
    assert bridge.names_of("observation/image_0", 3) is None
    hydra = rlds.robotics.meaning_of("stanford_hydra_dataset")
    assert [d.name for d in hydra.state] == list(names)
    assert [d.element for d in hydra.state] == [0, 1, 2, 7, 8, 9, -3]
    assert DatasetMeaning("nothing").names_of("action", 7) is None
