"""Descriptions of patterns, and rejected patterns."""

import dataclasses
import operator
import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.protobuf import struct_pb2

from rlds.transformations import PatternDataset
from rlds.transformations import structured_writer as sw

SPEC = {
    "action": tf.TensorSpec([2], tf.float32),
    "observation": {
        "image": tf.TensorSpec([None, 3], tf.uint8),
        "text": tf.TensorSpec([], tf.string),
    },
    "pair": (tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.bool)),
}


def test_fields_are_numbered_in_the_order_of_flatten() -> None:
    step = sw.create_reference_step({"b": None, "a": {"d": None, "c": (None, None)}})
    nodes = [step["a"]["c"][0][-1], step["a"]["c"][1][-1], step["a"]["d"][-1], step["b"][-1]]
    assert [node.flat_source_index for node in nodes] == [0, 1, 2, 3]
    assert [node.field for node in nodes] == ["a/c/0", "a/c/1", "a/d", "b"]


@pytest.mark.parametrize(
    ("key", "positions", "is_window"),
    [
        (-1, [-1], False),
        (-3, [-3], False),
        (slice(-3, None), [-3, -2, -1], True),
        (slice(-1, None), [-1], True),
        (slice(-3, 0), [-3, -2, -1], True),
        (slice(-3, -1), [-3, -2], True),
        (slice(-5, None, 2), [-5, -3, -1], True),
        (slice(-4, -1, 2), [-4, -2], True),
    ],
)
def test_references_hold_positions(key: Any, positions: list[int], is_window: bool) -> None:
    node = sw.create_reference_step({"x": None})["x"][key]
    assert list(node.positions) == positions
    assert node.is_window == is_window


@pytest.mark.parametrize(
    ("index", "shown"),
    [
        (lambda x: x[0], "x[0]"),
        (lambda x: x[1], "x[1]"),
        (lambda x: x[:], "x[:]"),
        (lambda x: x[:-1], "x[:-1]"),
        (lambda x: x[:-2:2], "x[:-2]"),
        (lambda x: x[0:], "x[0:]"),
        (lambda x: x[1:], "x[1:]"),
        (lambda x: x[-3:1], "x[-3:1]"),
        (lambda x: x[-1:-3], "x[-1:-3]"),
        (lambda x: x[-2:-2], "x[-2:-2]"),
        (lambda x: x[-3::-1], "x[-3::-1]"),
        (lambda x: x[-3::0], "x[-3::0]"),
        (lambda x: x["k"], "x['k']"),
        (lambda x: x[-1.0], "x[-1.0]"),
        (lambda x: x[-1, 0], "x[(-1, 0)]"),
        (lambda x: list(x), "x[0]"),
    ],
)
def test_bad_references_name_the_field(index: Callable[[Any], Any], shown: str) -> None:
    x = sw.create_reference_step({"observation": {"x": None}})["observation"]["x"]
    with pytest.raises(ValueError, match=re.escape(f"Bad reference observation/{shown}: ")):
        index(x)


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.ge])
def test_conditions_keep_their_comparison(compare: Callable[[Any, Any], Any]) -> None:
    condition = compare(sw.Condition.data({"a": None, "b": None})["b"] % 3, True)
    assert (condition.quantity, condition.flat_source_index) == ("data", 1)
    assert (condition.modulo, condition.value) == (3, 1)
    assert condition == compare(sw.Condition.data({"a": None, "c": None})["c"] % 3, 1)


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        (lambda: sw.Condition.step_index() % 3 == -1, "== -1' never holds: .* from 0 to 2"),
        (lambda: sw.Condition.steps_since_applied() % 2 != -1, "!= -1' always holds"),
        (lambda: sw.Condition.data(0) % 3 == -3, "more than -3 and less than 3"),
    ],
)
def test_comparisons_with_impossible_remainders_are_refused(compare: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare()


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        (lambda: sw.Condition.step_index() % 3 == 3, "step_index % 3 == 3' never holds.* from 0"),
        (lambda: sw.Condition.step_index() % 3 >= 3, "never holds"),
        (lambda: sw.Condition.steps_since_applied() % 1 != 2, "!= 2' always holds"),
        (lambda: sw.Condition.step_index() % 3 < -1, "never holds"),
        (lambda: sw.Condition.data(0) % 2 == 2, "more than -2 and less than 2"),
    ],
)
def test_constant_comparisons_that_reverb_accepts_warn(compare: Any, message: str) -> None:
    with pytest.warns(UserWarning, match=message) as caught:
        condition = compare()
    assert caught[0].filename == __file__
    assert isinstance(condition, sw.Condition)


def test_data_may_have_negative_remainders() -> None:
    for value in (-2, -2.5):
        condition = sw.Condition.data(0) % 3 == value
        assert (condition.modulo, condition.value) == (3, value)


def test_bad_conditions_are_refused() -> None:
    quantity = sw.Condition.step_index()
    with pytest.raises(ValueError, match="modulo of a condition must be positive, got 0"):
        quantity % 0
    with pytest.raises(ValueError, match="modulo of a condition must be positive, got -2"):
        quantity % -2
    with pytest.raises(ValueError, match="one modulo; there are 2 and 3"):
        quantity % 2 % 3
    with pytest.raises(TypeError, match=r"compares with a number, got 'x' \(str\)"):
        quantity == "x"  # noqa: B015 (this is what raises)
    with pytest.raises(ValueError, match="64-bit integers"):
        quantity < 2**63  # noqa: B015
    with pytest.raises(TypeError, match=r"'step_index > 2' has no truth value.*pass a list"):
        2 < quantity < 5  # noqa: B015


def test_create_config_keeps_pattern_table_and_conditions() -> None:
    step = sw.create_reference_step(SPEC)
    pattern = {"x": step["action"][-2:], "y": (step["pair"][0][-1], [step["pair"][1][-1]])}
    condition = sw.Condition.is_end_episode()
    config = sw.create_config(pattern, "table", [condition], priority=2.0)

    assert sw.unpack_pattern(config) == pattern
    assert (config.table, config.conditions, config.priority) == ("table", (condition,), 2.0)
    pattern["z"] = step["action"][-1]
    assert set(sw.unpack_pattern(config)) == {"x", "y"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.table = "other"  # type: ignore[misc]

    leaf = sw.create_config(step["action"][-1], "table")
    assert sw.unpack_pattern(leaf) == step["action"][-1]


def test_bad_configs_are_refused() -> None:
    step = sw.create_reference_step(SPEC)
    with pytest.raises(TypeError, match="but 'x' is field 'action' without an index"):
        sw.create_config({"x": step["action"]}, "table")
    with pytest.raises(TypeError, match="but 'x' is 3"):
        sw.create_config({"x": 3}, "table")
    with pytest.raises(ValueError, match=r"no references in the pattern \{\}"):
        sw.create_config({}, "table")
    with pytest.raises(TypeError, match="a condition is a comparison"):
        sw.create_config(step["action"][-1], "table", [sw.Condition.step_index()])
    with pytest.raises(TypeError, match="Expected a config, as from create_config, got a dict"):
        sw.unpack_pattern({})


def configs(*transforms: Callable[[Any], Any], tables: str = "ttt") -> list[sw.Config]:
    return [
        sw.create_config(sw.pattern_from_transform(SPEC, transform), table)
        for transform, table in zip(transforms, tables)
    ]


def test_signature_has_the_shapes_of_windows() -> None:
    (config,) = configs(
        lambda step: {
            "window": step["observation"]["image"][-3:],
            "value": step["observation"]["image"][-3],
            "stride": (step["action"][-5::2], step["observation"]["text"][-4:-1:2]),
        }
    )
    assert sw.infer_signature([config], SPEC) == {
        "window": tf.TensorSpec([3, None, 3], tf.uint8, "window"),
        "value": tf.TensorSpec([None, 3], tf.uint8, "value"),
        "stride": (
            tf.TensorSpec([3, 2], tf.float32, "stride/0"),
            tf.TensorSpec([2], tf.string, "stride/1"),
        ),
    }
    several = configs(lambda step: step["action"][-2:], lambda step: step["action"][-3:])
    assert sw.infer_signature(several, SPEC).shape.as_list() == [None, 2]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "At least one config is needed"),
        (
            configs(lambda step: {"x": step["action"][-1]}, lambda step: (step["action"][-1],)),
            "must have the same structure, got: {'x': None}; (None,).",
        ),
        (
            configs(lambda s: s["action"][-1], lambda s: s["action"][-1], tables="ba"),
            "must have the same table, got: a, b.",
        ),
        (
            configs(lambda s: {"x": s["pair"][0][-1]}, lambda s: {"x": s["pair"][1][-1]}),
            "differ in the dtype of 'x': [tf.int32, tf.bool]",
        ),
        (
            configs(lambda s: {"x": s["action"][-1]}, lambda s: {"x": s["action"][-2:]}),
            "differ in the shape of 'x', and not only in its first dimension",
        ),
    ],
)
def test_configs_that_contradict_each_other_are_refused(bad: list[sw.Config], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        sw.infer_signature(bad, SPEC)


def test_configs_for_other_steps_are_refused() -> None:
    config = sw.create_config(sw.create_reference_step({"a": None, "z": None})["z"][-1], "table")
    for spec in ({"a": SPEC["action"]}, {"a": SPEC["action"], "b": SPEC["action"]}):
        with pytest.raises(ValueError, match=r"'z\[-1\]' is for other steps.*\['a'"):
            sw.infer_signature([config], spec)


# Configs of reverb. The messages have the names, field numbers and types of reverb 0.14, which
# wrote the config below:
#
#     step = create_reference_step({"a": None, "t": (None, None)})
#     {
#         "x": step["a"][-2],
#         "y": (step["t"][0][-3:-1:2], Pair(step["a"][-1], step["t"][1][-2:])),
#         "z": [step["a"][-1]],
#     }
#
# with conditions of each kind, and the condition on the buffer length that PatternDataset adds.

REVERB_CONFIG = bytes.fromhex(
    "0a0b18feffffffffffffffff010a1a080110fdffffffffffffffff0118ffffffffffffffffff0120020a0b18ffff"
    "ffffffffffffff010a0d080210feffffffffffffffff010a0b18ffffffffffffffffff01124eaa034b0a070a0178"
    "12020a000a320a0179122da2032a0a020a000a24b203210a0450616972120b0a05666972737412020a00120c0a06"
    "7365636f6e6412020a000a0c0a017a12079a03040a020a001a0174220b0a0909000000000000f03f2a0a08013a04"
    "0803100140012a04100130022a04200128012a063003400148002a04280448022a060801300540012a0418013003"
)

INT32 = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
BOOL = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL
STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
MESSAGES: dict[str, list[tuple[str, int, Any, str | None]]] = {
    "PatternNode": [
        ("flat_source_index", 1, INT32, None),
        ("start", 2, INT32, "start_or_none"),
        ("stop", 3, INT32, "stop_or_none"),
        ("step", 4, INT32, "step_or_none"),
    ],
    "ModuloEq": [("mod", 1, INT32, None), ("eq", 2, INT32, None)],
    "Condition": [
        ("step_index", 1, BOOL, "left"),
        ("steps_since_applied", 2, BOOL, "left"),
        ("buffer_length", 3, BOOL, "left"),
        ("is_end_episode", 4, BOOL, "left"),
        ("flat_source_index", 9, INT32, "left"),
        ("eq", 5, INT32, "cmp"),
        ("ge", 6, INT32, "cmp"),
        ("mod_eq", 7, ".patterns.ModuloEq", "cmp"),
        ("inverse", 8, BOOL, None),
    ],
    "Priority": [],
    "StructuredWriterConfig": [
        ("flat", 1, "repeated .patterns.PatternNode", None),
        ("pattern_structure", 2, ".tensorflow.StructuredValue", None),
        ("table", 3, STRING, None),
        ("priority", 4, ".patterns.Priority", None),
        ("conditions", 5, "repeated .patterns.Condition", None),
    ],
}


@pytest.fixture(scope="module")
def reverb_config() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="patterns.proto",
        package="patterns",
        syntax="proto3",
        dependency=[struct_pb2.DESCRIPTOR.name],
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        oneofs = list(dict.fromkeys(oneof for *_, oneof in fields if oneof))
        for oneof in oneofs:
            message.oneof_decl.add(name=oneof)
        for field_name, field_number, type_, oneof in fields:
            field = message.field.add(name=field_name, number=field_number, label=1)
            if isinstance(type_, str):
                field.type, field.type_name = field.TYPE_MESSAGE, type_.split()[-1]
                field.label = 3 if type_.startswith("repeated") else 1
            else:
                field.type = type_
            if oneof:
                field.oneof_index = oneofs.index(oneof)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName("patterns.StructuredWriterConfig")
    return message_factory.GetMessageClass(descriptor).FromString(REVERB_CONFIG)


def test_configs_of_reverb_are_converted(reverb_config: Any) -> None:
    serialized = reverb_config.SerializeToString(deterministic=True)
    config = sw.as_config(reverb_config)
    spec = {"a": None, "t": (None, None)}
    step = sw.create_reference_step(spec)

    assert sw.unpack_pattern(reverb_config) == {
        "x": step["a"][-2],
        "y": (step["t"][0][-3:-1:2], (step["a"][-1], step["t"][1][-2:])),
        "z": [step["a"][-1]],
    }
    assert sw.unpack_pattern(config)["y"][1].second == step["t"][1][-2:]
    assert config.table == "t"
    data = sw.Condition.data(spec)
    assert [dataclasses.replace(c, is_from_reverb=False) for c in config.conditions] == [
        sw.Condition.step_index() % 3 != 1,
        sw.Condition.steps_since_applied() >= 2,
        sw.Condition.is_end_episode(),
        data["a"] < 3,
        data["t"][1] == 4,
        sw.Condition.step_index() < 5,
    ]
    assert reverb_config.SerializeToString(deterministic=True) == serialized


def test_references_and_conditions_of_reverb_are_accepted(reverb_config: Any) -> None:
    pattern = dict(zip("abcde", reverb_config.flat))
    config = sw.create_config(pattern, "t", reverb_config.conditions)
    assert config.flat == sw.as_config(reverb_config).flat
    assert config.conditions == sw.as_config(reverb_config).conditions


def test_conditions_of_reverb_compare_whole_numbers_only(reverb_config: Any) -> None:
    steps = {"a": [1.0], "is_last": [True], "t": ([1], [1])}
    less_than_three = reverb_config.conditions[3]
    pattern = sw.create_reference_step({"a": None, "is_last": None, "t": (None, None)})["a"][-1]
    config = sw.create_config(pattern, "t", [less_than_three])
    with pytest.raises(ValueError, match=r"'data\(0\) < 3' is from reverb.*float32"):
        PatternDataset(steps, [config], True, lambda step: step["is_last"])
