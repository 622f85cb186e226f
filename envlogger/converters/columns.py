"""Decodes stored steps to columns: arrays `[number of steps, ...]`.

Records that a template fits are sliced all at once. The others are decoded one by one, and so are
all of them if what results does not fit together: then there is an error to be raised.
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

# Records of a smaller mean size are joined to runs of this maximum size, and decoded together.
_SMALL_RECORD_BYTES = 2048
_MAX_JOINED_BYTES = 4 << 20

_FIELDS = ("step_type", "reward", "discount", "observation", "action", "custom_data")
_TRANSITION_FIELDS = ("reward", "discount", "action")
_FIRST = int(dm_env.StepType.FIRST)


class StoredRecords:
    """The serialized steps of one or several episodes, read on demand.

    Records that are little else than an array of bytes each, such as an image, are put into memory
    for all of them, and stay there: the column of the arrays is a view of it.

    Args:
      num_records: The number of records.
      read: Reads them, some at a time, and may decompress them into `remaining`; it is called again
        where they need a closer look.
      name: Their name in messages.

    Attributes:
      record_size: The number of bytes of each record for which there is memory; 0 if there is none.
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

    def describe(self, number: int) -> str:
        """The name of a record in messages."""
        prefix = f"{self._name}: " if self._name else ""
        return f"{prefix}step {number} of {self._num_records}"

    def read(self) -> Iterator[JoinedRecords]:
        """Reads the records in batches."""
        self._num_read = num_given = 0
        for joined in self._read(self):
            num_before = self._num_read
            self._num_read += len(joined.sizes)
            if self._take(joined):
                continue  # Yielded together with the records that follow in the file.
            if num_given < num_before:
                yield self._between(num_given, num_before)
            yield joined
            del joined
            num_given = self._num_read
        if num_given < self._num_read:
            yield self._between(num_given, self._num_read)

    def make_memory(self, template: Template) -> None:
        """Allocates the shared memory for records of a form, if suitable and not yet allocated."""
        if self._main is None and template.main is not None:
            self._main = template.main
            self.record_size = template.size
            memory = np.empty(self._num_records * template.size, np.uint8)
            self._memory = memory.reshape(-1, template.size)
            self._bytes = memory.data

    def remaining(self) -> memoryview | None:
        """Returns the shared memory for the records not read yet, if allocated."""
        return None if self._main is None else self._bytes[self._num_read * self.record_size :]

    def column(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray | None:
        """Returns the column of arrays in the shared memory, if dtype and shape match."""
        if self._main is None or (self._main.dtype, self._main.shape) != (dtype, shape):
            return None
        begin = self._main.begin
        arrays = self._memory[:, begin : begin + math.prod(shape)]
        return arrays.view(dtype).reshape(-1, *shape)

    def _take(self, joined: JoinedRecords) -> bool:
        """Copies the last records to the shared memory; returns whether they fit."""
        if self._main is None or joined.sizes != [self.record_size] * len(joined.sizes):
            return False
        if getattr(joined.values, "obj", None) is not self._bytes.obj:
            begin = (self._num_read - len(joined.sizes)) * self.record_size
            self._bytes[begin : begin + len(joined.values)] = joined.values
        return True

    def _between(self, begin: int, end: int) -> JoinedRecords:
        """The records from `begin` to `end`, which are in the memory."""
        values = self._bytes[begin * self.record_size : end * self.record_size]
        return JoinedRecords([self.record_size] * (end - begin), values)


def recorded_columns(records: StoredRecords, decoder: StepDecoder) -> StepData:
    """Decodes steps to columns in the order in which they were recorded.

    Args:
      records: Steps, at least one, of one or several episodes.
      decoder: Knows templates, and learns more.

    Returns:
      The structure of a step with a column in place of each value; the column of the step types is
      int64. See `to_rlds_episode` for dtypes. The first step of an episode usually has no action,
      reward and discount, but None: there, in a step of type FIRST, the column has zeros (empty
      strings for strings). A field that is None in every step gives an object array of `None`. The
      arrays are writable and share memory with nothing. One that is nearly all of the records may
      have gaps between its rows, where the rest of the records is.

    Raises:
      DamagedDataError: A record is no step; says which.
      ValueError: There is no record. Or a field changes its dtype, shape or structure between
        steps, or an integer does not fit int64.

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
        columns = _merged_fields(records, decoder)
    except (_MismatchError, NoMatchError, ValueError, TypeError):
        return stacked_columns(_all_decoded(records, decoder))
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
      decoder: Knows templates, and learns more.
      action_spec: See `to_rlds_episode`.
      reward_spec: Likewise.
      discount_spec: Likewise.

    Returns:
      What `to_rlds_episode` returns for the decoded steps.

    Raises:
      DamagedDataError: A record is no step; says which.
      ValueError: As `to_rlds_episode` does.
      TypeError: Likewise.
    """
    try:
        if len(records) < 2:
            raise _MismatchError  # This needs specs, or raises an error.
        columns = _merged_fields(records, decoder)
        return to_rlds_episodes(columns, [len(records)], padded=True)
    except (_MismatchError, NoMatchError, ValueError, TypeError):
        return to_rlds_episode(
            _all_decoded(records, decoder),
            action_spec=action_spec,
            reward_spec=reward_spec,
            discount_spec=discount_spec,
        )


def stacked_columns(steps: Iterable[StepData]) -> StepData:
    """Stacks steps to columns, as `recorded_columns` does with stored ones.

    Args:
      steps: At least one.

    Returns:
      See `recorded_columns`.

    Raises:
      ValueError: There is no step; or see `recorded_columns`.
    """
    steps = list(steps)
    if not steps:
        raise ValueError("There must be at least one step, got none.")

    def stacked(field: str, values: list[Any]) -> Any:
        if field not in _TRANSITION_FIELDS:
            return stack_values(values, field)
        present = [
            index
            for index, value in enumerate(values)
            if value is not None or not steps[index].timestep.first()
        ] or list(range(len(values)))
        column = stack_values([values[index] for index in present], field, steps=present)
        builders = _Builder(len(values))
        builders.put(np.array(present), column, len(present))
        return builders.columns()

    return _stacked(steps, stacked)


def _stacked(steps: Sequence[StepData], stack: Callable[[str, list[Any]], Any]) -> StepData:
    """The columns of steps, by a function that stacks the values of a field."""
    fields = [as_fields(step) for step in steps]
    columns = {field: stack(field, [step[field] for step in fields]) for field in _FIELDS[1:]}
    action, custom_data = columns.pop("action"), columns.pop("custom_data")
    types = np.array([int(step.timestep.step_type) for step in steps])
    return StepData(dm_env.TimeStep(types, **columns), action, custom_data)


def as_fields(step: StepData) -> dict[str, Any]:
    """The values, or columns, of a step by the names of their fields."""
    return {**step.timestep._asdict(), "action": step.action, "custom_data": step.custom_data}


# If a run has more record sizes, such as with video packets, single records get no template.
_MAX_TEMPLATE_SIZES = 8


class _MismatchError(Exception):
    """Parts do not fit together."""


class _StepColumns(NamedTuple):
    """Columns of some of the steps, with increasing step numbers."""

    steps: np.ndarray
    columns: StepData


class _Run:
    """Records that are contiguous in memory.

    Attributes:
      sizes: The number of bytes of each.
      num_before: The number of records before them.
      records: All records.
    """

    def __init__(self, joined: JoinedRecords, num_before: int, records: StoredRecords) -> None:
        self.sizes = np.array(joined.sizes)
        self.num_before = num_before
        self.records = records
        self._ends = np.cumsum(self.sizes)
        self._values = memoryview(joined.values)

    def record(self, number: int) -> bytes:
        """A record by its number in the run."""
        return bytes(self.between(number, number + 1))

    def between(self, begin: int, end: int) -> memoryview:
        """The bytes of the records from `begin` to `end`."""
        return self._values[self._ends[begin] - self.sizes[begin] : self._ends[end - 1]]

    def joined(self, numbers: np.ndarray) -> Buffer:
        """Returns the bytes of records with increasing numbers; a view if they are contiguous."""
        if _is_run(numbers):
            return self.between(int(numbers[0]), int(numbers[-1]) + 1)
        is_break = np.diff(numbers) != 1
        begins = numbers[np.concatenate([[True], is_break])].tolist()
        ends = (numbers[np.concatenate([is_break, [True]])] + 1).tolist()
        return b"".join(map(self.between, begins, ends))


def _decoded_parts(records: StoredRecords, decoder: StepDecoder) -> Iterator[_StepColumns]:
    """Decodes all records; a first step that was read alone and differs comes later."""
    first_step: list[_StepColumns] = []
    for run in _runs_of(records):
        parts = _parts_of_run(run, decoder)
        if run.num_before + len(run.sizes) == 1:
            first_step = parts
        else:
            yield from parts
            yield from first_step
            first_step = []
        del run, parts  # Frees their memory for the next run.
    yield from first_step


def _runs_of(records: StoredRecords) -> Iterator[_Run]:
    num_before = 0
    for joined in _join_small_runs(records.read()):
        num_records = len(joined.sizes)
        yield _Run(joined, num_before, records)
        del joined
        num_before += num_records


def _join_small_runs(runs: Iterable[JoinedRecords]) -> Iterator[JoinedRecords]:
    """Joins runs of small records, which take longer to be treated apart than to be copied."""
    small: list[JoinedRecords] = []
    for run in runs:
        is_small = len(run.values) < _SMALL_RECORD_BYTES * len(run.sizes)
        if small and not (is_small and sum(len(one.values) for one in small) < _MAX_JOINED_BYTES):
            yield _joined(small)
            small = []
        if is_small:
            small.append(run)
        else:
            yield run
        del run
    if small:
        yield _joined(small)


def _joined(runs: list[JoinedRecords]) -> JoinedRecords:
    if len(runs) == 1:
        return runs[0]
    sizes = [size for run in runs for size in run.sizes]
    return JoinedRecords(sizes, b"".join([run.values for run in runs]))


def _parts_of_run(run: _Run, decoder: StepDecoder) -> list[_StepColumns]:
    """Decodes the records of a run, in the order of the first step of each part."""
    parts = []
    without_template = []
    sizes = np.unique(run.sizes).tolist()
    for size in sizes:
        numbers = np.flatnonzero(run.sizes == size)
        templates = iter(decoder.templates_of_size(size))
        while len(numbers):
            template = next(templates, None)
            if template is None and (len(numbers) > 1 or len(sizes) <= _MAX_TEMPLATE_SIZES):
                template = decoder.learn(run.record(int(numbers[0])))
            if template is None:
                without_template.append(numbers)
                break
            joined = run.joined(numbers)
            is_match = template.matches(joined)
            matching, numbers = numbers[is_match], numbers[~is_match]
            if not len(matching):
                continue
            if len(numbers):  # Otherwise the records are joined already.
                joined = run.joined(matching)
            try:
                parts.append(_StepColumns(matching + run.num_before, template.columns(joined)))
            except NoMatchError:
                without_template.append(matching)
                continue
            if run.num_before + int(matching[-1]):  # The first step differs from the others.
                run.records.make_memory(template)
    if without_template:
        parts += _stacked_parts(run, np.sort(np.concatenate(without_template)), decoder)
    return sorted(parts, key=lambda part: int(part.steps[0]))


def _is_run(steps: np.ndarray) -> bool:
    return len(steps) > 0 and int(steps[-1]) - int(steps[0]) + 1 == len(steps)


def _stacked_parts(run: _Run, numbers: np.ndarray, decoder: StepDecoder) -> Iterator[_StepColumns]:
    """Decodes steps one by one; separates steps without action, reward and discount."""
    groups: dict[tuple[bool, ...], tuple[list[int], list[StepData]]] = {}
    for record_index, step in zip(numbers.tolist(), _decoded(run, numbers.tolist(), decoder)):
        timestep, action, _ = step
        form = (action is None, timestep.reward is None, timestep.discount is None)
        group_numbers, group = groups.setdefault(form, ([], []))
        group_numbers.append(record_index)
        group.append(step)
    for group_numbers, group in groups.values():
        columns = _stacked(group, lambda field, values: stack_values(values))
        yield _StepColumns(np.array(group_numbers) + run.num_before, columns)


def _decoded(run: _Run, numbers: Iterable[int], decoder: StepDecoder) -> Iterator[StepData]:
    for record_index in numbers:
        try:
            yield decoder.decode(run.record(record_index))
        except DamagedDataError as e:
            name = run.records.describe(run.num_before + record_index)
            raise DamagedDataError(f"{name} is damaged: {e}") from e


def _all_decoded(records: StoredRecords, decoder: StepDecoder) -> Iterator[StepData]:
    for run in _runs_of(records):
        yield from _decoded(run, range(len(run.sizes)), decoder)


# --- Merging.


def _merged_fields(records: StoredRecords, decoder: StepDecoder) -> dict[str, Any]:
    """Decodes all steps to columns; fields of transitions get a final row of placeholders."""
    num_steps = len(records)
    builders = {
        field: _Builder(num_steps + 1)
        if field in _TRANSITION_FIELDS
        else _Builder(num_steps, records)
        for field in _FIELDS
    }
    missing: dict[str, list[tuple[slice | np.ndarray, Any, int]]] = {field: [] for field in _FIELDS}
    for steps, part in _decoded_parts(records, decoder):
        fields = as_fields(part)
        rows = slice(int(steps[0]), int(steps[-1]) + 1) if _is_run(steps) else steps
        for field, column in fields.items():
            is_none = field in _TRANSITION_FIELDS and _is_none(column)
            if is_none and (fields["step_type"] == _FIRST).all():
                missing[field].append((rows, column, len(steps)))
            else:
                builders[field].put(rows, column, len(steps))
        del part, fields, column
    for field, parts in missing.items():
        if builders[field].root is None:
            for missing_part in parts:
                builders[field].put(*missing_part)
    return {field: columns.columns() for field, columns in builders.items()}


def _is_none(column: Any) -> bool:
    """Whether a column of a part has no values."""
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
    """Columns of all steps, filled from parts; missing rows are zeros.

    Attributes:
      root: The arrays, nested as the columns; None as long as there are none.
    """

    def __init__(self, num_steps: int, records: StoredRecords | None = None) -> None:
        self._num_steps = num_steps
        self._records = records
        self._num_filled = 0
        self._rows_filled: list[slice | np.ndarray] = []
        self.root: Any = None

    def put(self, rows: slice | np.ndarray, columns: Any, num_rows: int) -> None:
        """Fills rows with the columns of a part; the first part sets dtype, shape and structure.

        Raises:
          _MismatchError: They differ in dtype, shape or structure.
        """
        if self.root is None:
            self.root = map_columns(self._leaf, columns)
        self._num_filled += num_rows
        self._rows_filled.append(rows)
        _put(self.root, rows, columns)

    def _leaf(self, column: np.ndarray) -> _Leaf:
        head = column[:1]
        array = None
        if self._records is not None:
            array = self._records.column(head.dtype, head.shape[1:])
        if array is None:
            array = np.empty((self._num_steps, *head.shape[1:]), head.dtype.newbyteorder("="))
        zero = zeros_like(head) if head.dtype == object else 0
        return _Leaf(array, _native(dtype_and_shape(head)), zero)

    def columns(self) -> Any:
        """Returns the columns."""
        is_missing = None
        if self._num_filled < self._num_steps:
            is_missing = np.ones(self._num_steps, bool)
            for rows in self._rows_filled:
                is_missing[rows] = False

        def array_of(leaf: _Leaf) -> np.ndarray:
            if is_missing is not None:
                leaf.array[is_missing] = leaf.zero
            return leaf.array

        return map_columns(array_of, self.root)


def _put(node: Any, rows: slice | np.ndarray, columns: Any) -> None:
    if isinstance(node, _Leaf):
        if not isinstance(columns, np.ndarray) or not _is_like(columns, node):
            raise _MismatchError
        if not np.may_share_memory(node.array, columns):
            node.array[rows] = columns
        elif not _is_at(columns, node.array, rows):
            raise _MismatchError  # Moving it might overwrite unread records.
        return
    if isinstance(columns, np.ndarray) or _keys(columns) != _keys(node):
        raise _MismatchError
    for key in node if isinstance(node, dict) else range(len(node)):
        _put(node[key], rows, columns[key])


def _is_at(column: np.ndarray, array: np.ndarray, rows: slice | np.ndarray) -> bool:
    there = array[rows].__array_interface__
    return all(column.__array_interface__[key] == there[key] for key in ("data", "strides"))


def _is_like(column: np.ndarray, leaf: _Leaf) -> bool:
    if column.dtype != object and column.dtype == leaf.array.dtype:  # The cheaper comparison.
        return column.shape[1:] == leaf.array.shape[1:]
    return _native(dtype_and_shape(column[:1])) == leaf.expected


def _keys(columns: Any) -> tuple[type, Any]:
    return type(columns), set(columns) if isinstance(columns, dict) else len(columns)


def _native(description: tuple[Any, tuple[int, ...]]) -> tuple[Any, tuple[int, ...]]:
    dtype, shape = description
    return (dtype.newbyteorder("=") if isinstance(dtype, np.dtype) else dtype), shape
