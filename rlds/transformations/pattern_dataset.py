"""Training examples by patterns, as in Reverb's `PatternDataset`, from a `tf.data` stream of steps.

Steps are processed in chunks: the conditions are evaluated for all steps of a chunk at once, and
one `tf.gather` builds all outputs. The steps that later outputs refer to are carried over from
chunk to chunk.
"""

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tree

from rlds import rlds_types
from rlds.transformations import _layouts, shape_ops
from rlds.transformations._step_function import StepFunction
from rlds.transformations.structured_writer import (
    OPERATORS,
    Condition,
    Config,
    as_config,
    infer_signature,
    source_spec,
)

__all__ = ["PatternDataset"]

# Limits of a chunk, in bytes of steps and outputs, and in steps: large enough to amortize the cost
# of graph calls (about 0.5 ms per chunk).
_CHUNK_SIZE_IN_BYTES = 4_000_000
_MAX_STEPS_IN_CHUNK = 1024
# The limit of a chunk of batched steps, which are not read one by one.
_MAX_BATCHED_STEPS_IN_CHUNK = 4096

# The number of steps in a block of `_choose_spaced`, whose cost grows with the square.
_BLOCK_SIZE = 128

# The referenced fields, with a leading time axis, and a mask of the last steps of episodes.
Chunk: TypeAlias = tuple[tuple[tf.Tensor, ...], tf.Tensor]


def PatternDataset(  # noqa: N802 (the name in reverb)
    input_dataset: Any,
    configs: Sequence[Config],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[..., Any],
    *,
    chunk_size: int | None = None,
) -> Any:
    """Applies patterns to a stream of steps.

    At each step, a config has an output if all its referenced steps exist and its conditions hold;
    outputs are in the order of the configs. At the end of an episode, the remaining configs are
    applied again, with `Condition.is_end_episode`.

    Args:
      input_dataset: a dataset of steps, or batched steps.
      configs: the configs of the outputs, from `structured_writer.create_config`.
      respect_episode_boundaries: whether an output has steps of one episode only.
      is_end_of_episode: takes a step and returns one bool, true for the last step of an episode.
      chunk_size: the number of steps of a dataset to read before outputs are built; up to 1024 by
        default. Online training, with steps of a running agent, needs 1, which is slow.

    Returns:
      A dataset of outputs with the spec `structured_writer.infer_signature`, where lists become
      tuples. For batched steps, the outputs with a leading axis.

    Raises:
      TypeError: if a referenced field is not a dense tensor.
      ValueError: if the configs do not match each other or the steps, if the field of a condition
        is not one number, if `is_end_of_episode` does not return one bool, or if `chunk_size` is
        not positive.

    >>> from rlds.transformations import structured_writer
    >>> steps = {"x": [1, 2, 3, 4], "is_last": [False, False, True, True]}
    >>> pattern = structured_writer.pattern_from_transform(
    ...     {"x": None, "is_last": None}, lambda step: step["x"][-2:])
    >>> config = structured_writer.create_config(pattern, "table")
    >>> PatternDataset(steps, [config], True, lambda step: step["is_last"]).numpy().tolist()
    [[1, 2], [2, 3]]
    >>> PatternDataset(steps, [config], False, lambda step: step["is_last"]).numpy().tolist()
    [[1, 2], [2, 3], [3, 4]]
    """
    are_nested = _layouts.is_nested(input_dataset)
    steps = input_dataset if are_nested else _layouts.as_batch(input_dataset, "PatternDataset")
    spec = _layouts.spec_of_steps(steps)
    function = StepFunction(is_end_of_episode, spec)
    if not is_one_bool(function.output_spec):
        raise ValueError(
            "PatternDataset: is_end_of_episode must return one bool for a step, not "
            f"{function.output_spec}."
        )
    _layouts.check_positive("PatternDataset", chunk_size=chunk_size)
    patterns = Patterns(configs, spec, respect_episode_boundaries, chunk_size)
    if not are_nested:
        return patterns.outputs_of_batch(steps, function.apply(steps))
    traced = tf.function(is_end_of_episode)

    def is_end_of_step(step: Any) -> tf.Tensor:
        return tf.convert_to_tensor(traced(*step) if type(step) is tuple else traced(step))

    return patterns.outputs(patterns.chunks_of_steps(steps, is_end_of_step, function.apply))


def is_one_bool(spec: Any) -> bool:
    """Returns whether a value of the spec can be one bool."""
    return isinstance(spec, tf.TensorSpec) and tf.TensorSpec([], tf.bool).is_compatible_with(spec)


class Patterns:
    """Configs, compiled for steps of one spec.

    Args:
      configs: the configs of the outputs.
      step_spec: the spec of a step.
      respect_episode_boundaries: whether an output has steps of one episode only.
      chunk_size: the number of nested steps to process at once; depends on their size if None.

    Attributes:
      are_dense: whether all referenced fields have a fully known shape. Other fields are packed:
        each value is serialized to a string, because chunks can hold strings of values of any
        shape.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        step_spec: Any,
        respect_episode_boundaries: bool,
        chunk_size: int | None = None,
    ) -> None:
        configs = [as_config(config) for config in configs]
        self._signature = infer_signature(configs, step_spec)
        signatures = [tree.flatten(infer_signature([config], step_spec)) for config in configs]
        self._are_alike = all(signature == signatures[0] for signature in signatures)
        self._respects_boundaries = respect_episode_boundaries

        fields = tree.flatten(step_spec)
        reaches: dict[int, int] = {}  # The oldest referenced step of each field, counted from 1.
        for config in configs:
            for node in config.flat:
                index = node.flat_source_index
                reaches[index] = max(reaches.get(index, 1), -node.positions[0])
            for condition in config.conditions:
                _check_condition(condition, step_spec)
                if condition.quantity == "data":
                    reaches.setdefault(condition.flat_source_index, 1)
        self._columns = [_Column(i, fields[i], reach - 1) for i, reach in reaches.items()]
        self._rules = [_Rule(config, list(reaches)) for config in configs]
        self.are_dense = not any(column.is_packed for column in self._columns)
        self._max_steps = self._choose_max_steps(step_spec)
        self._chunk_size = chunk_size or min(self._max_steps, _MAX_STEPS_IN_CHUNK)

    def _choose_max_steps(self, step_spec: Any) -> int:
        sizes = [shape_ops.size_from_spec(column.spec) for column in self._columns]
        copies = [
            sizes[leaf.column] * len(leaf.positions) for r in self._rules for leaf in r.leaves
        ]
        step_size = shape_ops.size_from_spec(step_spec) if _layouts.is_static(step_spec) else 0
        return max(1, _CHUNK_SIZE_IN_BYTES // max(1, step_size + sum(sizes) + sum(copies)))

    # Inputs.

    def chunks_of_steps(
        self,
        steps: tf.data.Dataset,
        is_end_of_step: Callable[[Any], tf.Tensor],
        are_ends_of_batch: Callable[[Any], tf.Tensor],
    ) -> tf.data.Dataset:
        """Reads nested steps.

        Args:
          steps: a dataset of steps.
          is_end_of_step: takes a step and returns True if the step ends an episode.
          are_ends_of_batch: takes a batch and returns the same for each step.
        """
        if _layouts.is_static(steps.element_spec):
            # Batches all fields, which takes less time than a map call for each step.
            return _layouts.map_elements(
                _layouts.batch_elements(steps, self._chunk_size),
                lambda batch: (self._columns_of(batch), are_ends_of_batch(batch)),
            )

        def read(step: Any) -> Chunk:
            values = zip(self._columns, self._columns_of(step))
            return tuple(column.pack(value) for column, value in values), is_end_of_step(step)

        return _layouts.batch_elements(_layouts.map_elements(steps, read), self._chunk_size)

    def chunks_of_episodes(
        self, episodes: tf.data.Dataset, end_field: str, end_at_episode_boundary: bool
    ) -> tf.data.Dataset:
        """Reads episodes.

        Args:
          episodes: a dataset of episodes.
          end_field: the field that is true for the last step of an episode.
          end_at_episode_boundary: whether the last step of each element also ends an episode.
        """
        get_end = operator.itemgetter(end_field)
        if not _layouts.have_nested_steps(episodes, "pattern_map"):
            if self.are_dense:

                def read(episode: Any) -> Chunk:
                    steps = episode[rlds_types.STEPS]
                    is_last = get_end(steps)
                    return self._columns_of(steps), (
                        _end_last(is_last) if end_at_episode_boundary else is_last
                    )

                size = min(self._max_steps, _MAX_BATCHED_STEPS_IN_CHUNK)
                return _layouts.map_elements(episodes, read).rebatch(size)
            episodes = _layouts.map_elements(
                episodes,
                lambda episode: {
                    rlds_types.STEPS: tf.data.Dataset.from_tensor_slices(episode[rlds_types.STEPS])
                },
            )

        if not end_at_episode_boundary:
            steps = episodes.flat_map(operator.itemgetter(rlds_types.STEPS))
            return self.chunks_of_steps(steps, get_end, get_end)
        chunks = episodes.flat_map(
            lambda episode: self._end_with_the_last(
                self.chunks_of_steps(episode[rlds_types.STEPS], get_end, get_end)
            )
        )
        return chunks.rebatch(self._chunk_size)

    def _columns_of(self, steps: Any) -> tuple[tf.Tensor, ...]:
        leaves = tree.flatten(steps)
        return tuple(leaves[column.field_index] for column in self._columns)

    def _end_with_the_last(self, chunks: tf.data.Dataset) -> tf.data.Dataset:
        """Marks the last step of a dataset as the end of an episode.

        Each chunk is held back until the next chunk, or the end of the input, has been read.
        """
        empty = (tuple(column.zeros(0) for column in self._columns), tf.zeros([0], tf.bool))

        def hold_back(waiting: Chunk, element: tuple[Chunk, tf.Tensor]) -> tuple[Chunk, Chunk]:
            chunk, is_end = element
            columns, is_last = waiting
            return chunk, (columns, tf.where(is_end, _end_last(is_last), is_last))

        return _scan(_layouts.with_end(chunks, empty), empty, hold_back)

    # Outputs.

    def outputs(self, chunks: tf.data.Dataset, batch_size: int | None = None) -> tf.data.Dataset:
        """Returns the outputs, one by one or in batches."""
        zero = tf.constant(0, tf.int64)
        carried = tuple(column.zeros(column.num_carried) for column in self._columns)
        begin = (carried, zero, zero, tuple(zero for _ in self._rules))
        if self._are_alike and self.are_dense:
            batches = _scan(chunks, begin, self._advance_all)
            if batch_size is None:
                return _layouts.unbatch(batches)
            # The next chunk is computed while the outputs of this chunk are in use.
            return batches.prefetch(1).rebatch(batch_size)
        if batch_size is not None and not self._are_alike:
            raise ValueError(
                "Outputs of several shapes cannot be batched: the configs differ in the first "
                f"dimension ({self._signature}). Use a batch_size of None."
            )
        outputs = _scan(chunks, begin, self._advance).flat_map(self._one_by_one)
        return outputs if batch_size is None else outputs.batch(batch_size)

    def outputs_of_batch(self, batch: Any, is_last: tf.Tensor) -> Any:
        """Returns the outputs of batched steps, given a mask of the ends of episodes."""
        if not self._are_alike:
            raise ValueError(
                "The configs differ in the first dimension of their outputs, which one batch "
                f"cannot hold ({self._signature}). Use the nested layout: a tf.data.Dataset of "
                "steps."
            )
        columns = self._columns_of(batch)
        zero = tf.constant(0, tf.int64)
        carried = tuple(
            tf.zeros(tf.concat([[column.num_carried], tf.shape(values)[1:]], 0), values.dtype)
            for column, values in zip(self._columns, columns)
        )
        begin = (carried, zero, zero, tuple(zero for _ in self._rules))
        return self._advance_all(begin, (columns, is_last))[1]

    def _advance_all(self, state: Any, chunk: Chunk) -> tuple[Any, Any]:
        """Returns the state after the chunk, and the outputs of all configs stacked."""
        state, (order, outputs) = self._advance(state, chunk)
        if len(outputs) == 1:
            leaves = outputs[0]
        else:
            leaves = [tf.gather(tf.concat(leaf, 0), order) for leaf in zip(*outputs)]
        return state, self._pack(leaves)

    def _advance(self, state: Any, chunk: Chunk) -> tuple[Any, Any]:
        """Returns the state after the chunk, and the outputs of each config with their order.

        The state has the carried-over steps, the index of the next step in its episode, the number
        of steps that outputs may refer to, and the steps since each config was last applied.
        """
        carried, next_index, num_available, last_applied = state
        columns, is_last = chunk
        index = _count_from_end(is_last, next_index)
        if self._respects_boundaries:
            available = index
        else:
            available = num_available + tf.range(tf.size(index, tf.int64))
        steps = _Steps(columns, is_last, index, available)
        history = tuple(tf.concat(both, 0) for both in zip(carried, columns))
        keys, outputs, applied = [], [], []
        for rule_index, (rule, counter) in enumerate(zip(self._rules, last_applied)):
            at_step, at_end, counter = rule.apply(steps, counter)
            applied.append(counter)
            times = tf.where(at_step | at_end)[:, 0]
            # The outputs of a step come before the outputs that the end of the episode adds.
            phase = 2 * times + tf.cast(tf.gather(at_end, times), tf.int64)
            keys.append(phase * len(self._rules) + rule_index)
            leaves = [(leaf, self._columns[leaf.column].num_carried) for leaf in rule.leaves]
            outputs.append(
                tuple(leaf.gather(history[leaf.column], times + n) for leaf, n in leaves)
            )
        num_steps = tf.shape(is_last)[0]
        carried = tuple(values[num_steps:] for values in history)
        for column, values in zip(self._columns, carried):
            values.set_shape([column.num_carried, *values.shape[1:]])
        state = (carried, steps.index[-1], steps.available[-1], tuple(applied))
        return state, (tf.argsort(tf.concat(keys, 0)), tuple(outputs))

    def _one_by_one(self, order: tf.Tensor, outputs: Any) -> tf.data.Dataset:
        """Returns the outputs of a chunk, which may differ in shape."""
        counts = [tf.shape(leaves[0])[0] for leaves in outputs]
        configs = tf.repeat(tf.range(len(outputs)), tf.stack(counts))
        rows = tf.concat([tf.range(count) for count in counts], 0)
        unpackers = [
            [self._columns[leaf.column].unpacker(leaf) for leaf in rule.leaves]
            for rule in self._rules
        ]

        def build(config: tf.Tensor, row: tf.Tensor) -> Any:
            def unpack_all(n: int) -> list[tf.Tensor]:
                pairs = zip(unpackers[n], outputs[n])
                return [unpack(tf.gather(values, row)) for unpack, values in pairs]

            branches = [functools.partial(unpack_all, n) for n in range(len(outputs))]
            leaves = tf.switch_case(config, branches)
            for leaf, spec in zip(leaves, tree.flatten(self._signature)):
                leaf.set_shape(spec.shape)
            return self._pack(leaves)

        sequence = (tf.gather(configs, order), tf.gather(rows, order))
        return tf.data.Dataset.from_tensor_slices(sequence).map(_layouts.in_graph(build))

    def _pack(self, leaves: Sequence[tf.Tensor]) -> Any:
        """Returns the structure of an output, with tuples for lists, which tf.data cannot hold."""
        return _convert_lists(tree.unflatten_as(self._signature, leaves))


@dataclasses.dataclass(frozen=True)
class _Column:
    """A field that patterns or conditions refer to.

    Attributes:
      field_index: the index of the field in the step.
      field_spec: the spec of the field.
      num_carried: the number of old values that are carried over from chunk to chunk.
    """

    field_index: int
    field_spec: tf.TensorSpec
    num_carried: int

    @property
    def is_packed(self) -> bool:
        return not _layouts.is_static(self.field_spec)

    @property
    def spec(self) -> tf.TensorSpec:
        """The spec of one value in a chunk."""
        return tf.TensorSpec([], tf.string) if self.is_packed else self.field_spec

    def zeros(self, num_steps: int) -> tf.Tensor:
        return tf.zeros([num_steps, *self.spec.shape], self.spec.dtype)

    def pack(self, value: tf.Tensor) -> tf.Tensor:
        return tf.io.serialize_tensor(value) if self.is_packed else value

    def unpacker(self, leaf: "_Leaf") -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns a function that converts values of the chunk to the leaf of an output."""
        if not self.is_packed:
            return lambda values: values

        def parse(value: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(
                tf.io.parse_tensor(value, self.field_spec.dtype), self.field_spec.shape
            )

        if not leaf.is_window:
            return parse
        return lambda values: tf.stack([parse(value) for value in tf.unstack(values)])


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """A leaf of a pattern: a column, and steps counted back from the newest, -1."""

    column: int
    positions: range
    is_window: bool

    def gather(self, history: tf.Tensor, newest: tf.Tensor) -> tf.Tensor:
        """Gathers the values of outputs; `newest` has the row of the newest step of each output."""
        if not self.is_window:
            return tf.gather(history, newest + (self.positions[0] + 1))
        offsets = tf.constant([position + 1 for position in self.positions], tf.int64)
        return tf.gather(history, newest[:, tf.newaxis] + offsets)


@dataclasses.dataclass(frozen=True)
class _Steps:
    """A chunk of steps, with the quantities of conditions.

    Attributes:
      values: the columns.
      is_last: a mask of the steps that end an episode.
      index: the index of each step in its episode, also of the step after the chunk.
      available: the number of earlier steps that an output at each of these steps may refer to.
    """

    values: Sequence[tf.Tensor]
    is_last: tf.Tensor
    index: tf.Tensor
    available: tf.Tensor


class _Rule:
    """A compiled config.

    Attributes:
      leaves: the leaves of the pattern.
    """

    def __init__(self, config: Config, sources: Sequence[int]) -> None:
        self.leaves = [
            _Leaf(sources.index(node.flat_source_index), node.positions, node.is_window)
            for node in config.flat
        ]
        self._reach = max(-leaf.positions[0] for leaf in self.leaves)
        self._conditions: dict[str, list[Condition]] = collections.defaultdict(list)
        for condition in config.conditions:
            self._conditions[condition.quantity].append(condition)
        self._sources = sources

    def apply(
        self, steps: _Steps, last_applied: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns masks of the steps with an output, and with an output due to the episode's end.

        Args:
          steps: the chunk.
          last_applied: the number of steps since the config was applied.

        Returns:
          Two masks that exclude each other, and `last_applied` after the chunk.
        """
        is_ready = steps.available[:-1] >= self._reach - 1
        for condition in self._conditions["step_index"]:
            is_ready &= _holds(condition, steps.index[:-1])
        for condition in self._conditions["data"]:
            values = steps.values[self._sources.index(condition.flat_source_index)]
            is_ready &= _holds(condition, tf.reshape(values, tf.shape(steps.is_last)))
        at_step = is_ready & self._is_for(is_end_episode=False)
        at_end = is_ready & steps.is_last & self._is_for(is_end_episode=True) & ~at_step

        spacing = self._conditions["steps_since_applied"]
        if spacing:
            applied = _choose_spaced(at_step | at_end, last_applied, spacing)
            at_step &= applied
            at_end &= applied
            last_applied = _count_since_last(applied, last_applied)
        return at_step, at_end, last_applied

    def _is_for(self, is_end_episode: bool) -> bool:
        return all(
            OPERATORS[condition.comparison](int(is_end_episode), condition.value)
            for condition in self._conditions["is_end_episode"]
        )


def _check_condition(condition: Condition, step_spec: Any) -> None:
    """Checks that the condition can be evaluated on steps of a spec."""
    dtype = tf.int64
    if condition.quantity == "data":
        spec = source_spec(condition, step_spec)
        dtype = spec.dtype
        if not (dtype.is_bool or dtype.is_integer or dtype.is_floating):
            raise ValueError(f"'{condition}' needs a number, but the field is {dtype.name}.")
        if spec.shape.num_elements() != 1:
            raise ValueError(
                f"'{condition}' needs one number per step, but the field has the shape "
                f"{spec.shape}."
            )
    if dtype.is_floating:
        if condition.is_from_reverb:
            raise ValueError(
                f"'{condition}' is from reverb, which supports whole numbers only; the field is "
                f"{dtype.name}. Use rlds.transformations.structured_writer.Condition."
            )
    elif isinstance(condition.value, float):
        raise ValueError(f"'{condition}' compares whole numbers ({dtype.name}) with a float.")


def _holds(condition: Condition, values: tf.Tensor) -> tf.Tensor:
    """Returns a mask of the values for which the condition holds."""
    compare = OPERATORS[condition.comparison]
    if values.dtype == tf.uint64:
        if condition.value < 0:
            return tf.fill(tf.shape(values), compare(0, -1))
        if condition.modulo is not None:
            values = tf.math.floormod(values, tf.constant(condition.modulo, tf.uint64))
    else:
        if not values.dtype.is_floating:
            values = tf.cast(values, tf.int64)
        if condition.modulo is not None:
            values = tf.truncatemod(values, tf.constant(condition.modulo, values.dtype))
    return compare(values, tf.constant(condition.value, values.dtype))


def _end_last(is_last: tf.Tensor) -> tf.Tensor:
    """Marks the last step, if there is one."""
    num_steps = tf.shape(is_last)[0]
    return is_last | tf.equal(tf.range(num_steps), num_steps - 1)


def _count_from_end(is_last: tf.Tensor, first_count: tf.Tensor) -> tf.Tensor:
    """Counts the steps from 0 after each end, and from `first_count` at the beginning.

    Returns:
      The count of each step, and of the step after the last one.
    """
    num_steps = tf.shape(is_last, out_type=tf.int64)[0]
    after_ends = tf.where(is_last)[:, 0] + 1
    starts = tf.concat([[first_count], tf.zeros_like(after_ends)], 0)
    lengths = tf.concat([after_ends, [num_steps + 1]], 0) - tf.concat([[0], after_ends], 0)
    return tf.ragged.range(starts, starts + lengths).values


def _count_since_last(is_applied: tf.Tensor, num_before: tf.Tensor) -> tf.Tensor:
    """Returns the number of steps after the last marked step; `num_before` counts earlier steps."""
    num_steps = tf.shape(is_applied, out_type=tf.int64)[0]
    last_marked = tf.reduce_max(tf.where(is_applied, tf.range(num_steps), -1 - num_before))
    return num_steps - 1 - last_marked


def _choose_spaced(
    is_possible: tf.Tensor, num_before: tf.Tensor, conditions: Sequence[Condition]
) -> tf.Tensor:
    """Chooses steps in their order, by conditions on the distances of chosen steps.

    Args:
      is_possible: a mask of the steps to choose from.
      num_before: the number of steps between the previous choice and these steps.
      conditions: conditions on the number of steps since the last choice.

    Returns:
      A mask of the chosen steps.
    """
    num_steps = tf.shape(is_possible)[0]
    padded = tf.pad(is_possible, [[0, -num_steps % _BLOCK_SIZE]])
    blocks = tf.reshape(padded, [-1, _BLOCK_SIZE])

    def choose(state: Any, block: tf.Tensor) -> Any:
        num_before, _ = state
        is_chosen = _choose_in_block(block, num_before, conditions)
        return _count_since_last(is_chosen, num_before), is_chosen

    initial_state = (num_before, tf.zeros([_BLOCK_SIZE], tf.bool))
    _, is_chosen = tf.scan(choose, blocks, initial_state)
    return tf.reshape(is_chosen, [-1])[:num_steps]


def _choose_in_block(
    is_possible: tf.Tensor, num_before: tf.Tensor, conditions: Sequence[Condition]
) -> tf.Tensor:
    """Like `_choose_spaced`, for one block.

    Each choice determines the next choice. The choices are therefore a path through a graph, whose
    nodes are the steps (from 1), the last choice before the block (0), and the end. The nodes
    within n jumps, and the node after n jumps from each node, determine both for 2n jumps.
    """
    after_block = _BLOCK_SIZE + 1
    steps = tf.range(1, after_block, dtype=tf.int64)
    nodes = tf.range(after_block, dtype=tf.int64)[:, tf.newaxis]
    num_steps = steps - nodes + tf.where(nodes == 0, num_before, 0)
    is_next = is_possible & (steps > nodes)
    for condition in conditions:
        is_next &= _holds(condition, num_steps)
    jumps = tf.reduce_min(tf.where(is_next, steps, after_block), axis=1)
    jumps = tf.concat([jumps, [after_block]], 0)
    is_reached = tf.equal(tf.range(after_block + 1), 0)
    for _ in range(_BLOCK_SIZE.bit_length()):
        flags = tf.cast(is_reached, tf.int32)
        is_reached |= tf.math.unsorted_segment_max(flags, jumps, after_block + 1) > 0
        jumps = tf.gather(jumps, jumps)
    return is_reached[1:after_block]


def _scan(
    dataset: tf.data.Dataset, initial_state: Any, function: Callable[[Any, Any], tuple[Any, Any]]
) -> tf.data.Dataset:
    return dataset.scan(initial_state, _layouts.in_graph(function))


def _convert_lists(structure: Any) -> Any:
    """Converts lists to tuples."""
    if isinstance(structure, Mapping):
        return {key: _convert_lists(value) for key, value in structure.items()}
    if isinstance(structure, list):
        return tuple(map(_convert_lists, structure))
    if isinstance(structure, tuple):
        members = map(_convert_lists, structure)
        return type(structure)(*members) if hasattr(structure, "_fields") else tuple(members)
    return structure
