"""Reports of invalid datasets."""

import operator
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from hypothesis import given, settings
from hypothesis import strategies as st
from random_episodes import Columns, episode_columns, in_both_layouts
from tensorflow_datasets import features as tf_features

import rlds.tfds
from rlds.validation import InvalidDatasetError, Validator, Violation, validate


def with_changes(columns: Columns, **changes: Any) -> Columns:
    changed = {**columns, **changes}
    return {name: value for name, value in changed.items() if value is not None}


def as_list(columns: Columns) -> list[dict[str, Any]]:
    """Returns the steps one by one, in plain Python."""
    length = len(columns["reward"])
    return [tf.nest.map_structure(operator.itemgetter(i), columns) for i in range(length)]


def all_forms(*all_columns: Columns, **metadata: list[Any]) -> list[Any]:
    """Returns the episodes as datasets in both layouts, and in plain Python."""
    extras = [
        {name: values[i] for name, values in metadata.items()} for i in range(len(all_columns))
    ]
    return [
        *in_both_layouts(*all_columns, **metadata),
        [{"steps": columns, **o} for columns, o in zip(all_columns, extras)],
        [{"steps": as_list(columns), **o} for columns, o in zip(all_columns, extras)],
        [{"steps": iter(as_list(columns)), **o} for columns, o in zip(all_columns, extras)],
    ]


def test_valid_dataset_has_no_violations() -> None:
    for data in all_forms(
        episode_columns(4), episode_columns(1, terminal=False), episode_id=["a", "b"]
    ):
        report = validate(data, finite_fields=["observation/state", "reward"])
        assert report.is_valid
        assert report.violations == ()
        report.raise_if_invalid()
        assert str(report) == "valid: 2 episodes, 5 steps"


@pytest.mark.parametrize(
    ("changes", "violations"),
    [
        (
            {"is_first": [False, False, True]},
            [
                (0, "is_first", "False, but this is the first step"),
                (2, "is_first", "True, but this is not the first step"),
            ],
        ),
        (
            {"is_last": [True, False, False]},
            [
                (0, "is_last", "True, but this is not the last step"),
                (2, "is_last", "False, but this is the last step"),
            ],
        ),
        (
            {"is_terminal": [False, True, True]},
            [(1, "is_terminal", "True, but steps follow this one")],
        ),
        ({"is_last": None}, [(0, "is_last", "missing, but every step needs it")]),
        (
            {"is_last": [0, 0, 1]},
            [(0, "is_last", "int64 of shape (), expected a boolean for each step")],
        ),
        (
            {"reward": [1.0, np.nan, np.nan]},
            # The reward of the last step is a placeholder.
            [(1, "reward", "nan in 1 of 1 elements")],
        ),
        (
            {"observation": np.array([[1, 2], [1, 2], [1, -np.inf]])},
            [(2, "observation", "-inf in 1 of 2 elements")],
        ),
    ],
)
def test_violations_name_the_step_and_field(changes: dict, violations: list) -> None:
    columns = episode_columns(3)
    arrays = {name: None if v is None else np.array(v) for name, v in changes.items()}
    columns = with_changes(columns, **arrays)
    for data in all_forms(columns, episode_id=["a"]):
        report = validate(data, finite_fields=["reward", "observation"])
        # In a list, each step lacks the flag.
        actual = report.violations[: len(violations)]
        assert actual == tuple(
            Violation(message, 0, "a", step, field) for step, field, message in violations
        )
        assert not report.is_valid
        with pytest.raises(InvalidDatasetError, match=r"episode 0 .a., step") as raised:
            report.raise_if_invalid()
        assert raised.value.report is report


def test_episode_without_steps_is_a_violation() -> None:
    for data in all_forms(episode_columns(2), episode_columns(0)):
        (violation,) = validate(data).violations
        assert str(violation) == "episode 1: no steps, expected at least one"
    (violation,) = validate([{"id": 3}]).violations
    assert str(violation) == "episode 0: no field 'steps', only ['id']"
    (violation,) = validate(tf.data.Dataset.range(1)).violations
    assert "no field 'steps'" in str(violation)


def test_validation_reports_invalid_episode_metadata() -> None:
    columns = episode_columns(2)
    for data in all_forms(*[columns] * 3, episode_id=["a", "b", "a"], invalid=[0, 1, 0]):
        report = validate(data)
        assert [v.field for v in report.violations] == [
            "invalid",
            "invalid",
            "episode_id",
            "invalid",
        ]
        assert str(report.violations[2]) == (
            "episode 2 (a), field 'episode_id': 'a' is also the identifier of episode 0"
        )
        assert "expected a boolean" in report.violations[0].what
    report = validate([{"steps": columns, "episode_id": "a"}, {"steps": columns, "agent": 1}])
    assert [(v.field, v.what) for v in report.violations] == [
        ("agent", "not in the first episode"),
        ("episode_id", "missing"),
    ]


@pytest.mark.slow
def test_hint_makes_episode_ids_of_joined_datasets_unique() -> None:
    for data in all_forms(episode_columns(2), episode_columns(3), episode_id=["a", "b"])[:2]:
        text = str(validate(data.concatenate(data)))
        assert text.startswith("invalid: 2 violations in 4 episodes")
        (hint,) = (line for line in text.splitlines() if line.startswith("hint: "))
        change = eval(hint.partition("dataset.map(")[2].removesuffix(")"))
        assert validate(data.concatenate(data.map(change))).is_valid


def test_reward_of_last_step_counts_if_final_observation_is_unknown() -> None:
    columns = with_changes(episode_columns(2), reward=np.array([1.0, np.nan]))
    for is_known, count in ((True, 0), (False, 1)):
        for data in all_forms(columns, final_observation_known=[is_known]):
            assert len(validate(data, finite_fields="reward").violations) == count


def test_fields_that_differ_between_episodes_are_violations() -> None:
    base = episode_columns(2)
    observation = {**base["observation"], "state": base["observation"]["state"].astype(np.float64)}
    second = with_changes(base, observation=observation, reward=None, action=np.zeros([2, 4, 1]))
    second["extra"] = np.zeros(2)
    report = validate([{"steps": base}, {"steps": second}])
    assert [str(v) for v in report.violations] == [
        "episode 1, step 0, field 'reward': missing, but the first step of the dataset has it",
        "episode 1, step 0, field 'observation/state': float64 of shape (2,), expected float32 of "
        "shape (2,)",
        "episode 1, step 0, field 'action': float64 of shape (4, 1), expected float32 of shape "
        "(3,)",
        "episode 1, step 0, field 'extra': unexpected: the first step of the dataset does not have "
        "it",
    ]  # fmt: skip
    (violation,) = validate([{"steps": with_changes(base, reward=np.zeros(3))}]).violations
    assert "the columns differ in length: {" in str(violation)
    assert "'reward': 3" in str(violation)


def test_shapes_declared_as_unknown_may_vary() -> None:
    images = [np.zeros([h, 5, 3], np.uint8) for h in (2, 3)]
    steps = [
        {"image": image, "is_first": i == 0, "is_last": i == 1} for i, image in enumerate(images)
    ]
    spec = {"image": tf.TensorSpec([None, 5, 3], tf.uint8)}
    spec |= {name: tf.TensorSpec([], tf.bool) for name in ("is_first", "is_last")}
    nested = tf.data.Dataset.from_generator(lambda: iter(steps), output_signature=spec)
    episodes = tf.data.Dataset.range(2).map(lambda _: {"steps": nested})
    assert str(validate(episodes)) == "valid: 2 episodes, 4 steps"
    assert "expected uint8 of shape (2, 5, 3)" in str(validate([{"steps": steps}]))


@pytest.mark.slow
def test_validation_stops_after_max_violations_and_reports_it() -> None:
    columns = with_changes(episode_columns(3000), is_first=np.ones(3000, np.bool_))
    for data in all_forms(columns)[:4]:
        report = validate(data, max_violations=5)
        assert [v.step for v in report.violations] == [1, 2, 3, 4, 5]
        assert not report.is_complete
        assert str(report).endswith("(stopped here: there may be more)")
        assert len(validate(data, max_violations=5000).violations) == 2999


def test_validate_refuses_invalid_arguments() -> None:
    with pytest.raises(TypeError, match=r"validate: expected .* iterable of episodes, got a dict"):
        validate({"steps": {}})
    with pytest.raises(ValueError, match="max_violations must be positive, got 0"):
        validate([], max_violations=0)
    for data in all_forms(episode_columns(2)):
        with pytest.raises(KeyError, match="validate: there is no field 'rewards'"):
            validate(data, finite_fields=["rewards"])


@pytest.mark.slow
@given(st.data())
@settings(max_examples=80, deadline=None)
def test_episodes_checked_together_are_valid_if_each_is(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    steps = np.concatenate([np.arange(length) for length in lengths])
    ends = np.cumsum(lengths)
    is_last = np.isin(np.arange(ends[-1]), ends - 1)
    columns: Columns = {
        "observation": {"state": np.zeros((ends[-1], 2))},
        "reward": np.ones(ends[-1], np.float32),
        "is_first": steps == 0,
        "is_last": is_last,
        "is_terminal": is_last.copy(),
    }
    fields: dict[str, Any] = {
        "episode_id": np.array([str(i) for i in range(len(lengths))], object),
        "final_observation_known": np.array([True] * len(lengths)),
    }
    step = data.draw(st.integers(0, len(steps) - 1))
    episode = data.draw(st.integers(0, len(lengths) - 1))
    for field in data.draw(st.sets(st.sampled_from([*columns, *fields, "type", "id"]))):
        if field == "observation":
            columns["observation"]["state"][step, 1] = np.inf
        elif field == "reward":
            columns["reward"][step] = np.nan
        elif field == "type":
            columns["is_terminal"] = columns["is_terminal"].astype(np.int64)
        elif field == "id":
            del fields["episode_id"]
        elif field in columns:
            columns[field][step] ^= True
        elif field == "episode_id" and field in fields:
            fields[field][episode] = "0"
        elif field in fields:
            fields[field][episode] = False
    alone, together = (Validator(["observation", "reward"]) for _ in range(2))
    one_step = {"observation": {"state": np.zeros((1, 2))}, "reward": np.ones(1, np.float32)}
    flags = dict.fromkeys(("is_first", "is_last", "is_terminal"), np.array([True]))
    first = {
        "steps": one_step | flags,
        "episode_id": "first",
        "final_observation_known": np.True_,
    }
    violations = []
    for validator in (alone, together) if data.draw(st.booleans()) else ():
        assert not list(validator.add(first))
    for index, end in enumerate(ends):
        rows = slice(end - lengths[index], end)
        example = {"steps": tf.nest.map_structure(operator.itemgetter(rows), columns)}
        violations += alone.add(example | {name: column[index] for name, column in fields.items()})
    before = (together.num_episodes, together.num_steps)
    is_right = together.add_all(columns, np.array(lengths), fields)
    assert is_right == (not violations)
    after = (alone.num_episodes, alone.num_steps) if is_right else before
    assert (together.num_episodes, together.num_steps) == after


def test_step_fields_may_differ_in_length(tmp_path: Path) -> None:
    words, boxes = [["a"], ["b", "c"], []], [[1.0, 2.0], [3.0], [np.nan]]
    columns = {**episode_columns(3), "words": words, "boxes": boxes, "even": [["d"]] * 3}
    config = rlds.tfds.generate_config_from_spec({"steps": episode_columns(3)}, name="robot")
    config.step_metadata_info = {
        **(config.step_metadata_info or {}),
        "words": tf_features.Sequence(tf_features.Text()),
        "even": tf_features.Sequence(tf_features.Text()),
        "boxes": tf_features.Sequence(np.float32),
    }
    path = tmp_path / "robot" / "1.0.0"
    with rlds.tfds.EpisodeWriter(path, config, version="1.0.0") as writer:
        for _ in range(2):
            writer.add_episode({"steps": columns})
    for data in (path, rlds.tfds.load(path)):
        assert validate(data).is_valid
        first, second = validate(data, finite_fields=["words", "boxes"]).violations
        assert str(first) == "episode 0, step 2, field 'boxes': nan in 1 of 1 elements"
        assert second.episode == 1


# --- Requirements of other loaders ---------------------------------------------------------------

STEP = {
    "observation": {
        "image": tf_features.Image(shape=(8, 8, 3)),
        "raw_image": tf_features.Tensor(shape=(8, 8, 3), dtype=np.uint8),
        "depth": tf_features.Image(shape=(8, 8, 1), dtype=np.uint16),
        "state": tf_features.Tensor(shape=(4,), dtype=np.float64),
        "words": tf_features.Sequence(tf_features.Text()),
    },
    "action": tf_features.Tensor(shape=(7,), dtype=np.float32),
    "reward": np.float32,
    "language_instruction": tf_features.Text(),
}


def tensor(encoding: str, dtype: Any = np.float64) -> Any:
    return tf_features.Tensor(shape=(2,), dtype=dtype, encoding=encoding)


# The loaders themselves fail for these features, or return bytes or nonsense.
@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"reward": tensor("bytes")}, "reward", "not decode: write it with float64='float32'$"),
        (
            {"action": tensor("zlib")},
            "action",
            "float64 of shape .2,., compressed .*: .* float64='float32', tensor_encoding='none'",
        ),
        ({"x": {"y": tensor("bytes", np.complex64)}}, "x/y", "or as integers, or leave it out"),
        ({"camera": tf_features.Image(shape=(8, 8, 1), dtype=np.float32)}, "camera", "for colours"),
        ({"_len": np.int64}, "_len", "dlimp reserves this name"),
        ({"observation": np.float32}, "observation", "float32 of shape ..: .* in a dict"),
        ({"observation": None}, "observation", "missing: the loaders look"),
        ({"action": None}, "action", "missing: the loaders need one vector"),
        ({"action": np.int64}, "action", "int64 of shape ..: the loaders need one vector"),
        ({"action": tf_features.Text()}, "action", "text: the loaders need"),
        ({"action": {"arm": np.float32}}, "action", "action/arm.*standardize_fn"),
        ({"language_instruction": None}, "language_instruction", "no text in the steps"),
        (
            {"language_instruction": None, "task": {"text": tf_features.Text()}},
            "language_instruction",
            "text is in .'task/text'.*standardize_fn",
        ),
    ],
)
def test_octo_profile_reports_unreadable_features(changes: Any, field: str, message: str) -> None:
    step = with_changes(STEP, **changes)
    features = tf_features.FeaturesDict({"steps": tf_features.Dataset(step), "time": np.float64})
    report = validate([], profile="octo", features=features)
    actual = [(violation.field, violation.episode) for violation in report.violations]
    assert actual == [(field, None)]
    assert re.search(message, report.violations[0].what), report
    assert validate([], features=features).is_valid


def test_dataset_directory_is_validated_without_tensorflow(tmp_path: Path) -> None:
    columns = {**episode_columns(5), "language_instruction": ["go"] * 5}
    episode = {"steps": {**columns, "action": np.full((5, 2), 1 / 3)}}
    path = tmp_path / "robot" / "1.0.0"
    config = rlds.tfds.generate_config_from_spec(episode, name="robot")
    with rlds.tfds.EpisodeWriter(path, config, version="1.0.0", split_name=["a", "b"]) as writer:
        writer.add_episode_to_split(episode, "b")
    code = f"""
import sys
from rlds.validation import validate
print(validate({str(path)!r}))
assert "tensorflow" not in sys.modules
"""
    actual = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert actual.stdout == "valid: 1 episode, 5 steps\n"
    report = validate(path, profile="octo")
    assert {v.field for v in report.violations} == {"action", "observation/state"}
    assert not validate(path, profile="octo", max_violations=1).is_complete
    assert "hint: rewrite the dataset: rlds.tfds.EpisodeWriter(new_directory," in str(report)
    # Rewritten as the hint asks, but in the wrong directory; the last action is NaN.
    episode["steps"]["action"][-1] = np.nan
    options = {"float64": "float32", "tensor_encoding": "none", "file_format": "array_record"}
    info = tfds.builder_from_directory(path).info
    with rlds.tfds.EpisodeWriter(tmp_path / "x", info, **options) as writer:
        writer.add_episode(episode)
    with pytest.raises(InvalidDatasetError) as caught:
        validate(tmp_path / "x", profile="octo").raise_if_invalid()
    directory, file_format, action = map(str, caught.value.report.violations)
    assert f"data_dir/robot/0.0.1, but it is in {tmp_path / 'x'}: move it" in directory
    assert "dataset: the files have the format 'array_record'" in file_format
    assert action == "episode 0, step 4, field 'action': nan in 2 of 2 elements"
    with pytest.raises(FileNotFoundError, match=r"features.json is missing"):
        validate(tmp_path / "robot")


def test_profile_needs_the_features() -> None:
    with pytest.raises(ValueError, match="pass its directory instead of the episodes"):
        validate([], profile="octo")
    with pytest.raises(ValueError, match=r"no profile 'rt1'; expected one of \['octo'\]"):
        Validator(profile="rt1")
    with pytest.raises(ValueError, match="these are not features of episodes with steps"):
        validate([], profile="octo", features={"featuresDict": {}})


def test_rows_of_declared_shapes_may_vary_in_size():
    flags = {"is_first": np.array([True]), "is_last": np.array([True])}
    validator = Validator(shapes={"states": (None,)})
    for size in (2, 3):
        steps = {**flags, "states": np.zeros((1, size)), "other": np.zeros((1, size))}
        actual = [violation.field for violation in validator.add({"steps": steps})]
        assert actual == (["other"] if size == 3 else [])
