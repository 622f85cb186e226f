from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Datum(_message.Message):
    __slots__ = ("shape", "values", "empty_dtype", "num_episodes")
    class Shape(_message.Message):
        __slots__ = ("dim",)
        class Dim(_message.Message):
            __slots__ = ("size",)
            SIZE_FIELD_NUMBER: _ClassVar[int]
            size: int
            def __init__(self, size: _Optional[int] = ...) -> None: ...
        DIM_FIELD_NUMBER: _ClassVar[int]
        dim: _containers.RepeatedCompositeFieldContainer[Datum.Shape.Dim]
        def __init__(self, dim: _Optional[_Iterable[_Union[Datum.Shape.Dim, _Mapping]]] = ...) -> None: ...
    class Values(_message.Message):
        __slots__ = ("float_values", "double_values", "int32_values", "int64_values", "uint32_values", "uint64_values", "bool_values", "string_values", "bytes_values", "bigint_values", "int8_values", "int16_values", "uint8_values", "uint16_values", "float_values_buffer")
        FLOAT_VALUES_FIELD_NUMBER: _ClassVar[int]
        DOUBLE_VALUES_FIELD_NUMBER: _ClassVar[int]
        INT32_VALUES_FIELD_NUMBER: _ClassVar[int]
        INT64_VALUES_FIELD_NUMBER: _ClassVar[int]
        UINT32_VALUES_FIELD_NUMBER: _ClassVar[int]
        UINT64_VALUES_FIELD_NUMBER: _ClassVar[int]
        BOOL_VALUES_FIELD_NUMBER: _ClassVar[int]
        STRING_VALUES_FIELD_NUMBER: _ClassVar[int]
        BYTES_VALUES_FIELD_NUMBER: _ClassVar[int]
        BIGINT_VALUES_FIELD_NUMBER: _ClassVar[int]
        INT8_VALUES_FIELD_NUMBER: _ClassVar[int]
        INT16_VALUES_FIELD_NUMBER: _ClassVar[int]
        UINT8_VALUES_FIELD_NUMBER: _ClassVar[int]
        UINT16_VALUES_FIELD_NUMBER: _ClassVar[int]
        FLOAT_VALUES_BUFFER_FIELD_NUMBER: _ClassVar[int]
        float_values: _containers.RepeatedScalarFieldContainer[float]
        double_values: _containers.RepeatedScalarFieldContainer[float]
        int32_values: _containers.RepeatedScalarFieldContainer[int]
        int64_values: _containers.RepeatedScalarFieldContainer[int]
        uint32_values: _containers.RepeatedScalarFieldContainer[int]
        uint64_values: _containers.RepeatedScalarFieldContainer[int]
        bool_values: _containers.RepeatedScalarFieldContainer[bool]
        string_values: _containers.RepeatedScalarFieldContainer[str]
        bytes_values: _containers.RepeatedScalarFieldContainer[bytes]
        bigint_values: _containers.RepeatedScalarFieldContainer[bytes]
        int8_values: bytes
        int16_values: bytes
        uint8_values: bytes
        uint16_values: bytes
        float_values_buffer: bytes
        def __init__(self, float_values: _Optional[_Iterable[float]] = ..., double_values: _Optional[_Iterable[float]] = ..., int32_values: _Optional[_Iterable[int]] = ..., int64_values: _Optional[_Iterable[int]] = ..., uint32_values: _Optional[_Iterable[int]] = ..., uint64_values: _Optional[_Iterable[int]] = ..., bool_values: _Optional[_Iterable[bool]] = ..., string_values: _Optional[_Iterable[str]] = ..., bytes_values: _Optional[_Iterable[bytes]] = ..., bigint_values: _Optional[_Iterable[bytes]] = ..., int8_values: _Optional[bytes] = ..., int16_values: _Optional[bytes] = ..., uint8_values: _Optional[bytes] = ..., uint16_values: _Optional[bytes] = ..., float_values_buffer: _Optional[bytes] = ...) -> None: ...
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    EMPTY_DTYPE_FIELD_NUMBER: _ClassVar[int]
    NUM_EPISODES_FIELD_NUMBER: _ClassVar[int]
    shape: Datum.Shape
    values: Datum.Values
    empty_dtype: str
    num_episodes: int
    def __init__(self, shape: _Optional[_Union[Datum.Shape, _Mapping]] = ..., values: _Optional[_Union[Datum.Values, _Mapping]] = ..., empty_dtype: _Optional[str] = ..., num_episodes: _Optional[int] = ...) -> None: ...

class Data(_message.Message):
    __slots__ = ("datum", "array", "tuple", "dict", "episode_mark")
    class EpisodeMark(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[Data.EpisodeMark]
        BEGINS: _ClassVar[Data.EpisodeMark]
        CONTINUES: _ClassVar[Data.EpisodeMark]
        DISCARDED: _ClassVar[Data.EpisodeMark]
        METADATA: _ClassVar[Data.EpisodeMark]
    NONE: Data.EpisodeMark
    BEGINS: Data.EpisodeMark
    CONTINUES: Data.EpisodeMark
    DISCARDED: Data.EpisodeMark
    METADATA: Data.EpisodeMark
    class Array(_message.Message):
        __slots__ = ("values",)
        VALUES_FIELD_NUMBER: _ClassVar[int]
        values: _containers.RepeatedCompositeFieldContainer[Data]
        def __init__(self, values: _Optional[_Iterable[_Union[Data, _Mapping]]] = ...) -> None: ...
    class Tuple(_message.Message):
        __slots__ = ("values",)
        VALUES_FIELD_NUMBER: _ClassVar[int]
        values: _containers.RepeatedCompositeFieldContainer[Data]
        def __init__(self, values: _Optional[_Iterable[_Union[Data, _Mapping]]] = ...) -> None: ...
    class Dict(_message.Message):
        __slots__ = ("values", "kvs")
        class ValuesEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: Data
            def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Data, _Mapping]] = ...) -> None: ...
        VALUES_FIELD_NUMBER: _ClassVar[int]
        KVS_FIELD_NUMBER: _ClassVar[int]
        values: _containers.MessageMap[str, Data]
        kvs: Data.Array
        def __init__(self, values: _Optional[_Mapping[str, Data]] = ..., kvs: _Optional[_Union[Data.Array, _Mapping]] = ...) -> None: ...
    DATUM_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    DICT_FIELD_NUMBER: _ClassVar[int]
    EPISODE_MARK_FIELD_NUMBER: _ClassVar[int]
    datum: Datum
    array: Data.Array
    tuple: Data.Tuple
    dict: Data.Dict
    episode_mark: Data.EpisodeMark
    def __init__(self, datum: _Optional[_Union[Datum, _Mapping]] = ..., array: _Optional[_Union[Data.Array, _Mapping]] = ..., tuple: _Optional[_Union[Data.Tuple, _Mapping]] = ..., dict: _Optional[_Union[Data.Dict, _Mapping]] = ..., episode_mark: _Optional[_Union[Data.EpisodeMark, str]] = ...) -> None: ...
