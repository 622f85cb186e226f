"""Records with and without the form of proto messages, for property tests."""

from hypothesis import strategies as st

from riegeli.varints import encode_varints


def varint(value):
    return encode_varints((value,))


def field(field_id, wire_type, content):
    return varint(field_id << 3 | wire_type) + content


def with_length(content):
    return varint(len(content)) + content


field_ids = st.one_of(st.integers(1, 4), st.integers(1, 70), st.integers(1, 2**29 - 1))
values = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))

flat_fields = st.one_of(
    st.builds(field, field_ids, st.just(0), values.map(varint)),
    st.builds(field, field_ids, st.just(1), st.binary(min_size=8, max_size=8)),
    st.builds(field, field_ids, st.just(5), st.binary(min_size=4, max_size=4)),
    st.builds(field, field_ids, st.just(2), st.binary(max_size=20).map(with_length)),
)


def containers(messages):
    submessages = st.builds(field, field_ids, st.just(2), messages.map(with_length))
    groups = st.builds(lambda n, m: field(n, 3, m) + field(n, 4, b""), field_ids, messages)
    return st.lists(st.one_of(flat_fields, submessages, groups), max_size=6).map(b"".join)


messages = st.recursive(st.lists(flat_fields, max_size=6).map(b"".join), containers, max_leaves=10)

records = st.one_of(messages, messages, st.binary(max_size=20))
"""Mostly canonical proto messages, which the encoder splits into fields."""
