"""The schema is the one that published versions of EnvLogger read and write."""

import pytest

from envlogger import Data, Datum
from envlogger.proto import storage_pb2


def field_numbers(message_type):
    return {field.name: field.number for field in message_type.DESCRIPTOR.fields}


def test_the_package_has_the_messages_data_and_datum():
    assert storage_pb2.DESCRIPTOR.package == "envlogger"
    assert sorted(storage_pb2.DESCRIPTOR.message_types_by_name) == ["Data", "Datum"]


@pytest.mark.parametrize(
    ("message_type", "expected"),
    [
        (Data, {"datum": 1, "array": 2, "tuple": 3, "dict": 4, "episode_mark": 1000}),
        (Data.Array, {"values": 1}),
        (Data.Tuple, {"values": 1}),
        (Data.Dict, {"values": 1, "kvs": 2}),
        (Datum, {"shape": 1, "values": 2, "empty_dtype": 1000, "num_episodes": 1001}),
        (Datum.Shape, {"dim": 2}),
        (Datum.Shape.Dim, {"size": 1}),
        (
            Datum.Values,
            {
                "float_values": 1,
                "double_values": 2,
                "int32_values": 3,
                "int64_values": 4,
                "uint32_values": 5,
                "uint64_values": 6,
                "bool_values": 7,
                "string_values": 8,
                "bytes_values": 9,
                "bigint_values": 10,
                "int8_values": 11,
                "int16_values": 12,
                "uint8_values": 13,
                "uint16_values": 14,
                "float_values_buffer": 15,
            },
        ),
    ],
)
def test_field_numbers_never_change(message_type, expected):
    assert field_numbers(message_type) == expected


def test_the_kinds_of_values_form_a_oneof():
    assert [field.name for field in Data.DESCRIPTOR.oneofs_by_name["value"].fields] == [
        *("datum", "array", "tuple", "dict")
    ]
