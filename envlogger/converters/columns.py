"""Decodes stored steps to columns: arrays `[number of steps, ...]`.

Records that match a template are decoded together by slicing. Other records are decoded one by one.
If the results differ in structure, all records are decoded one by one to raise the right error.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np

from envlogger.converters.rlds_episode import to_rlds_episode, to_rlds_episodes
from envlogger.converters.step_decoder import StepDecoder
from envlogger.converters.step_template import ByteArray, NoMatchError, Template
from envlogger.errors import DamagedDataError
from envlogger.step_data import StepData
from riegeli import JoinedRecords
from rlds_ecosystem.model.columns import dtype_and_shape, map_columns, stack_values, zeros_like

__all__ = ["StoredRecords", "as_fields", "recorded_columns", "rlds_columns", "stacked_columns"]

Buffer = bytes | memoryview

# Records below this mean size are joined to runs of at most `_MAX_JOINED_BYTES` for decoding.
_SMALL_RECORD_BYTES = 2048
_MAX_JOINED_BYTES = 4 << 20

_FIELDS = ("step_type", "reward", "discount", "observation", "action", "custom_data")
_TRANSITION_FIELDS = ("reward", "discount", "action")
_FIRST = int(dm_env.StepType.FIRST)


class StoredRecords:
    """The serialized steps of one or several episodes, read on demand.

    If each record consists almost only of a byte array, such as an image, all records are read into
    shared memory, and the column of the arrays is a view of this memory.

    Args:
      num_records: The number of records.
      read: A function that reads the records in batches, and may decompress them into `remaining`;
        it is called again if the records must be decoded one by one.
      name: The name of the records in error messages.

    Attributes:
      record_size: The number of bytes of each record in the shared memory; 0 without this memory.
    """

    def __init__(
        self,
        num_records: int,
        read: Callable[[StoredRecords], Iterable[JoinedRecords]],
        *,
        name: str = "",
    ) -> None:
        self.record_size = 0
        self._num_records = num_records
        self._name = name
        self._read = read
        self._num_read = 0
        self._main: ByteArray | None = None
        self._memory = np.empty((0, 0), np.uint8)
        self._bytes = memoryview(b"")

    def __len__(self) -> int:
        return self._num_records

    def describe(self, index: int) -> str:
        """Returns the name of a record in error messages."""
        prefix = f"{self._name}: " if self._name else ""
        return f"{prefix}step {index} of {self._num_records}"

    def read(self) -> Iterator[JoinedRecords]:
        """Reads the records in batches."""
        self._num_read = num_yielded = 0
        for batch in self._read(self):
            num_old = self._num_read
            self._num_read += len(batch.sizes)
            if self._copy_batch(batch):
                continue  # The batch is yielded together with the next records.
            if num_yielded < num_old:
                yield self._get_records(num_yielded, num_old)
            yield batch
            del batch
            num_yielded = self._num_read
        if num_yielded < self._num_read:
            yield self._get_records(num_yielded, self._num_read)

    def allocate(self, template: Template) -> None:
        """Allocates the shared memory for records of a template that has a main array, once."""
        if self._main is None and template.main is not None:
            self._main = template.main
            self.record_size = template.size
            memory = np.empty(self._num_records * template.size, np.uint8)
            self._memory = memory.reshape(-1, template.size)
            self._bytes = memory.data

    def remaining(self) -> memoryview | None:
        """Returns the shared memory for the unread records, if allocated."""
        return None if self._main is None else self._bytes[self._num_read * self.record_size :]

    def column(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray | None:
        """Returns the column of arrays in the shared memory, if dtype and shape match."""
        if self._main is None or (self._main.dtype, self._main.shape) != (dtype, shape):
            return None
        begin = self._main.offset
        arrays = self._memory[:, begin : begin + math.prod(shape)]
        return arrays.view(dtype).reshape(-1, *shape)

    def _copy_batch(self, batch: JoinedRecords) -> bool:
        """Copies the last batch to the shared memory; returns False if it does not fit."""
        if self._main is None or batch.sizes != [self.record_size] * len(batch.sizes):
            return False
        if getattr(batch.values, "obj", None) is not self._bytes.obj:
            begin = (self._num_read - len(batch.sizes)) * self.record_size
            self._bytes[begin : begin + len(batch.values)] = batch.values
        return True

    def _get_records(self, begin: int, end: int) -> JoinedRecords:
        """Returns the records from `begin` to `end` of the shared memory."""
        values = self._bytes[begin * self.record_size : end * self.record_size]
        return JoinedRecords([self.record_size] * (end - begin), values)


def recorded_columns(records: StoredRecords, decoder: StepDecoder) -> StepData:
    """Decodes steps to columns in the order in which they were recorded.

    Args:
      records: Steps, at least one, of one or several episodes.
      decoder: The decoder with the templates; it learns templates of new records.

    Returns:
      A step whose values are columns; the column of the step types is int64. See `to_rlds_episode`
      for dtypes. If the action, reward and discount of a FIRST step are None, as usual, the columns
      have zeros (empty strings for strings). A field that is None in every step becomes an object
      array of `None`. The arrays are writable, and share no memory with other objects. If one field
      takes up nearly all bytes of the records, its array may have gaps between the rows.

    Raises:
      DamagedDataError: A record is not a step.
      ValueError: There are no records; the dtype, shape or structure of a field changes between
        steps; or an integer does not fit int64.

    >>> from envlogger.converters.step_encoder import StepEncoder
    >>> encode = StepEncoder().encode
    >>> start = StepData(dm_env.restart(observation=10), action=None)
    >>> step = StepData(dm_env.transition(reward=1.5, observation=11), action=5)
    >>> encoded = [encode(start), encode(step)]
    >>> joined = JoinedRecords(list(map(len, encoded)), b"".join(encoded))
    >>> columns = recorded_columns(StoredRecords(2, lambda _: [joined]), StepDecoder())
    >>> columns.timestep.observation, columns.timestep.reward, columns.action
    (array([10, 11]), array([0. , 1.5]), array([0, 5]))
    """
    if not records:
        raise ValueError("There must be at least one step, got none.")
    try:
        columns = _merge_fields(records, decoder)
    except (_MismatchError, NoMatchError, ValueError, TypeError):
        return stacked_columns(_decode_all(records, decoder))
    for field in _TRANSITION_FIELDS:
        columns[field] = map_columns(lambda column: column[:-1], columns[field])
    action, custom_data = columns.pop("action"), columns.pop("custom_data")
    return StepData(dm_env.TimeStep(**columns), action, custom_data)


def rlds_columns(
    records: StoredRecords,
    decoder: StepDecoder,
    *,
    action_spec: Any = None,
    reward_spec: Any = None,
    discount_spec: Any = None,
) -> dict[str, Any]:
    """Decodes the steps of an episode to an RLDS episode.

    Args:
      records: The steps of one episode, at least one.
      decoder: The decoder with the templates; it learns templates of new records.
      action_spec: See `to_rlds_episode`.
      reward_spec: See `to_rlds_episode`.
      discount_spec: See `to_rlds_episode`.

    Returns:
      The result of `to_rlds_episode` for the decoded steps.

    Raises:
      DamagedDataError: A record is not a step.
      ValueError: See `to_rlds_episode`.
      TypeError: See `to_rlds_episode`.
    """
    try:
        if len(records) < 2:
            raise _MismatchError  # `to_rlds_episode` needs the specs, or raises an error.
        columns = _merge_fields(records, decoder)
        return to_rlds_episodes(columns, [len(records)], padded=True)
    except (_MismatchError, NoMatchError, ValueError, TypeError):
        return to_rlds_episode(
            _decode_all(records, decoder),
            action_spec=action_spec,
            reward_spec=reward_spec,
            discount_spec=discount_spec,
        )


def stacked_columns(steps: Iterable[StepData]) -> StepData:
    """Stacks steps to columns, like `recorded_columns` for stored steps."""
    steps = list(steps)
    if not steps:
        raise ValueError("There must be at least one step, got none.")

    def stack_field(field: str, values: list[Any]) -> Any:
        if field not in _TRANSITION_FIELDS:
            return stack_values(values, field)
        present_rows = [
            index
            for index, value in enumerate(values)
            if value is not None or not steps[index].timestep.first()
        ] or list(range(len(values)))
        column = stack_values([values[index] for index in present_rows], field, steps=present_rows)
        builder = _Builder(len(values))
        builder.put(np.array(present_rows), column, len(present_rows))
        return builder.columns()

    return _stack_steps(steps, stack_field)


def _stack_steps(steps: Sequence[StepData], stack: Callable[[str, list[Any]], Any]) -> StepData:
    """Stacks steps to columns, with a function that stacks the values of a field."""
    fields = [as_fields(step) for step in steps]
    columns = {field: stack(field, [step[field] for step in fields]) for field in _FIELDS[1:]}
    action, custom_data = columns.pop("action"), columns.pop("custom_data")
    types = np.array([int(step.timestep.step_type) for step in steps])
    return StepData(dm_env.TimeStep(types, **columns), action, custom_data)


def as_fields(step: StepData) -> dict[str, Any]:
    """Returns the values or columns of a step by field name."""
    return {**step.timestep._asdict(), "action": step.action, "custom_data": step.custom_data}


# If a run has more record sizes, for instance with video packets, no template is learned from a
# single record of its size.
_MAX_TEMPLATE_SIZES = 8


class _MismatchError(Exception):
    """An error for columns that differ in dtype, shape or structure."""


class _StepColumns(NamedTuple):
    """Columns of some of the steps, with increasing step indices."""

    steps: np.ndarray
    columns: StepData


class _Run:
    """Records that are contiguous in memory.

    Attributes:
      sizes: The number of bytes of each record.
      start: The index of the first record in all records.
      records: All records.
    """

    def __init__(self, batch: JoinedRecords, start: int, records: StoredRecords) -> None:
        self.sizes = np.array(batch.sizes)
        self.start = start
        self.records = records
        self._end_offsets = np.cumsum(self.sizes)
        self._values = memoryview(batch.values)

    def get_record(self, index: int) -> bytes:
        """Returns a record by its index in the run."""
        return bytes(self.slice(index, index + 1))

    def slice(self, begin: int, end: int) -> memoryview:
        """Returns the bytes of the records from `begin` to `end`."""
        offset = self._end_offsets[begin] - self.sizes[begin]
        return self._values[offset : self._end_offsets[end - 1]]

    def join(self, rows: np.ndarray) -> Buffer:
        """Joins the bytes of records with increasing indices; a view if they are contiguous."""
        if _is_contiguous(rows):
            return self.slice(int(rows[0]), int(rows[-1]) + 1)
        is_break = np.diff(rows) != 1
        run_starts = rows[np.concatenate([[True], is_break])].tolist()
        run_ends = (rows[np.concatenate([is_break, [True]])] + 1).tolist()
        return b"".join(map(self.slice, run_starts, run_ends))


def _decode_chunks(records: StoredRecords, decoder: StepDecoder) -> Iterator[_StepColumns]:
    """Decodes all records; a first step that was read alone comes after the next run."""
    first_chunk: list[_StepColumns] = []
    for run in _read_runs(records):
        chunks = _decode_run(run, decoder)
        if run.start + len(run.sizes) == 1:
            first_chunk = chunks
        else:
            yield from chunks
            yield from first_chunk
            first_chunk = []
        del run, chunks  # Releases memory before the next run.
    yield from first_chunk


def _read_runs(records: StoredRecords) -> Iterator[_Run]:
    start = 0
    for batch in _join_small_runs(records.read()):
        num_records = len(batch.sizes)
        yield _Run(batch, start, records)
        del batch
        start += num_records


def _join_small_runs(runs: Iterable[JoinedRecords]) -> Iterator[JoinedRecords]:
    """Joins runs of small records: copying them is faster than decoding them separately."""
    pending: list[JoinedRecords] = []
    for run in runs:
        is_small = len(run.values) < _SMALL_RECORD_BYTES * len(run.sizes)
        if pending and not (
            is_small and sum(len(run.values) for run in pending) < _MAX_JOINED_BYTES
        ):
            yield _concatenate(pending)
            pending = []
        if is_small:
            pending.append(run)
        else:
            yield run
        del run
    if pending:
        yield _concatenate(pending)


def _concatenate(runs: list[JoinedRecords]) -> JoinedRecords:
    if len(runs) == 1:
        return runs[0]
    sizes = [size for run in runs for size in run.sizes]
    return JoinedRecords(sizes, b"".join([run.values for run in runs]))


def _decode_run(run: _Run, decoder: StepDecoder) -> list[_StepColumns]:
    """Decodes the records of a run, in the order of the first step of each chunk."""
    chunks = []
    unmatched = []
    sizes = np.unique(run.sizes).tolist()
    for size in sizes:
        rows = np.flatnonzero(run.sizes == size)
        templates = iter(decoder.get_templates(size))
        while len(rows):
            template = next(templates, None)
            if template is None and (len(rows) > 1 or len(sizes) <= _MAX_TEMPLATE_SIZES):
                template = decoder.learn(run.get_record(int(rows[0])))
            if template is None:
                unmatched.append(rows)
                break
            batch = run.join(rows)
            is_match = template.matches(batch)
            matching_rows, rows = rows[is_match], rows[~is_match]
            if not len(matching_rows):
                continue
            if len(rows):  # Not all records match.
                batch = run.join(matching_rows)
            try:
                chunks.append(_StepColumns(matching_rows + run.start, template.columns(batch)))
            except NoMatchError:
                unmatched.append(matching_rows)
                continue
            if run.start + int(matching_rows[-1]):  # The first step usually differs.
                run.records.allocate(template)
    if unmatched:
        chunks += _decode_unmatched(run, np.sort(np.concatenate(unmatched)), decoder)
    return sorted(chunks, key=lambda chunk: int(chunk.steps[0]))


def _is_contiguous(steps: np.ndarray) -> bool:
    return len(steps) > 0 and int(steps[-1]) - int(steps[0]) + 1 == len(steps)


def _decode_unmatched(run: _Run, rows: np.ndarray, decoder: StepDecoder) -> Iterator[_StepColumns]:
    """Decodes steps one by one; separates steps without action, reward and discount."""
    groups: dict[tuple[bool, ...], tuple[list[int], list[StepData]]] = {}
    for row, step in zip(rows.tolist(), _decode_rows(run, rows.tolist(), decoder)):
        timestep, action, _ = step
        missing_fields = (action is None, timestep.reward is None, timestep.discount is None)
        group_rows, group_steps = groups.setdefault(missing_fields, ([], []))
        group_rows.append(row)
        group_steps.append(step)
    for group_rows, group_steps in groups.values():
        columns = _stack_steps(group_steps, lambda field, values: stack_values(values))
        yield _StepColumns(np.array(group_rows) + run.start, columns)


def _decode_rows(run: _Run, rows: Iterable[int], decoder: StepDecoder) -> Iterator[StepData]:
    for row in rows:
        try:
            yield decoder.decode(run.get_record(row))
        except DamagedDataError as e:
            name = run.records.describe(run.start + row)
            raise DamagedDataError(f"{name} is damaged: {e}") from e


def _decode_all(records: StoredRecords, decoder: StepDecoder) -> Iterator[StepData]:
    for run in _read_runs(records):
        yield from _decode_rows(run, range(len(run.sizes)), decoder)


# --- Merging.


def _merge_fields(records: StoredRecords, decoder: StepDecoder) -> dict[str, Any]:
    """Decodes all steps to columns; fields of transitions end with a row of placeholders."""
    num_steps = len(records)
    builders = {
        field: _Builder(num_steps + 1)
        if field in _TRANSITION_FIELDS
        else _Builder(num_steps, records)
        for field in _FIELDS
    }
    missing: dict[str, list[tuple[slice | np.ndarray, Any, int]]] = {field: [] for field in _FIELDS}
    for steps, chunk in _decode_chunks(records, decoder):
        fields = as_fields(chunk)
        rows = slice(int(steps[0]), int(steps[-1]) + 1) if _is_contiguous(steps) else steps
        for field, column in fields.items():
            is_none = field in _TRANSITION_FIELDS and _is_none(column)
            if is_none and (fields["step_type"] == _FIRST).all():
                missing[field].append((rows, column, len(steps)))
            else:
                builders[field].put(rows, column, len(steps))
        del chunk, fields, column
    for field, entries in missing.items():
        if builders[field].root is None:
            for entry in entries:
                builders[field].put(*entry)
    return {field: columns.columns() for field, columns in builders.items()}


def _is_none(column: Any) -> bool:
    """Returns whether a column has only missing values."""
    if not isinstance(column, np.ndarray) or column.dtype != object or column.ndim != 1:
        return False
    return column[0] is None


@dataclasses.dataclass(frozen=True, slots=True)
class _Leaf:
    """An array of all steps.

    Attributes:
      array: The array.
      expected: The expected dtypes and shapes of the columns.
      zero: The placeholder of rows without a value.
    """

    array: np.ndarray
    expected: tuple[Any, tuple[int, ...]]
    zero: Any


class _Builder:
    """Columns of all steps, filled chunk by chunk; missing rows are zeros.

    Attributes:
      root: The arrays, nested like the columns; None before the first chunk.
    """

    def __init__(self, num_steps: int, records: StoredRecords | None = None) -> None:
        self._num_steps = num_steps
        self._records = records
        self._num_filled = 0
        self._rows_filled: list[slice | np.ndarray] = []
        self.root: Any = None

    def put(self, rows: slice | np.ndarray, columns: Any, num_rows: int) -> None:
        """Fills rows with the columns of a chunk; the first chunk sets dtype, shape and structure.

        Raises:
          _MismatchError: The columns differ in dtype, shape or structure.
        """
        if self.root is None:
            self.root = map_columns(self._create_leaf, columns)
        self._num_filled += num_rows
        self._rows_filled.append(rows)
        _put(self.root, rows, columns)

    def _create_leaf(self, column: np.ndarray) -> _Leaf:
        row = column[:1]
        array = None
        if self._records is not None:
            array = self._records.column(row.dtype, row.shape[1:])
        if array is None:
            array = np.empty((self._num_steps, *row.shape[1:]), row.dtype.newbyteorder("="))
        zero = zeros_like(row) if row.dtype == object else 0
        return _Leaf(array, _to_native(dtype_and_shape(row)), zero)

    def columns(self) -> Any:
        """Returns the columns."""
        is_missing = None
        if self._num_filled < self._num_steps:
            is_missing = np.ones(self._num_steps, bool)
            for rows in self._rows_filled:
                is_missing[rows] = False

        def fill_missing(leaf: _Leaf) -> np.ndarray:
            if is_missing is not None:
                leaf.array[is_missing] = leaf.zero
            return leaf.array

        return map_columns(fill_missing, self.root)


def _put(node: Any, rows: slice | np.ndarray, columns: Any) -> None:
    if isinstance(node, _Leaf):
        if not isinstance(columns, np.ndarray) or not _matches(columns, node):
            raise _MismatchError
        if not np.may_share_memory(node.array, columns):
            node.array[rows] = columns
        elif not _is_same_memory(columns, node.array, rows):
            raise _MismatchError  # Moving the rows might overwrite unread records.
        return
    if isinstance(columns, np.ndarray) or _describe(columns) != _describe(node):
        raise _MismatchError
    for key in node if isinstance(node, dict) else range(len(node)):
        _put(node[key], rows, columns[key])


def _is_same_memory(column: np.ndarray, array: np.ndarray, rows: slice | np.ndarray) -> bool:
    target = array[rows].__array_interface__
    return all(column.__array_interface__[key] == target[key] for key in ("data", "strides"))


def _matches(column: np.ndarray, leaf: _Leaf) -> bool:
    if column.dtype != object and column.dtype == leaf.array.dtype:  # Compares shapes only.
        return column.shape[1:] == leaf.array.shape[1:]
    return _to_native(dtype_and_shape(column[:1])) == leaf.expected


def _describe(columns: Any) -> tuple[type, Any]:
    return type(columns), set(columns) if isinstance(columns, dict) else len(columns)


def _to_native(description: tuple[Any, tuple[int, ...]]) -> tuple[Any, tuple[int, ...]]:
    dtype, shape = description
    return (dtype.newbyteorder("=") if isinstance(dtype, np.dtype) else dtype), shape
