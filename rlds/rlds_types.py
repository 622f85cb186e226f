"""The vocabulary of RLDS: the fields of steps and episodes, and functions to build them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "ACTION",
    "ALIGNMENT",
    "CORE_STEP_FIELDS",
    "DISCOUNT",
    "FINAL_OBSERVATION_KNOWN",
    "IS_FIRST",
    "IS_LAST",
    "IS_TERMINAL",
    "OBSERVATION",
    "REWARD",
    "STEPS",
    "STEP_FLAGS",
    "BatchedEpisode",
    "BatchedStep",
    "Episode",
    "EpisodeFilterFn",
    "Step",
    "StepFilterFn",
    "StepMapFn",
    "StepsToStepsFn",
    "are_flags_right",
    "build_episode",
    "build_step",
    "is_valid_rlds_dataset",
]

# Fields of a step.
OBSERVATION: Final = "observation"
ACTION: Final = "action"
REWARD: Final = "reward"
DISCOUNT: Final = "discount"
IS_FIRST: Final = "is_first"
IS_LAST: Final = "is_last"
IS_TERMINAL: Final = "is_terminal"

STEP_FLAGS: Final[tuple[str, ...]] = (IS_FIRST, IS_LAST, IS_TERMINAL)
"""The step fields about the position of a step in its episode."""

CORE_STEP_FIELDS: Final = frozenset({OBSERVATION, ACTION, REWARD, DISCOUNT, *STEP_FLAGS})
"""The step fields whose meaning RLDS defines; any other field is step metadata."""

# Optional step field: the alignment of its other fields.
ALIGNMENT: Final = "alignment"

# Fields of an episode; any other field is episode metadata.
STEPS: Final = "steps"
FINAL_OBSERVATION_KNOWN: Final = "final_observation_known"
"""Optional: False if the last step has a valid action, but its next observation is unknown."""

Step: TypeAlias = dict[str, Any]
Episode: TypeAlias = dict[str, Any]
BatchedStep: TypeAlias = Step
BatchedEpisode: TypeAlias = Episode

StepFilterFn: TypeAlias = Callable[[Step], bool]
EpisodeFilterFn: TypeAlias = Callable[[Episode], bool]
StepMapFn: TypeAlias = Callable[[Step], Step]
StepsToStepsFn: TypeAlias = Callable[["tf.data.Dataset"], "tf.data.Dataset"]


def build_step(
    observation: Any | None,
    action: Any | None,
    reward: Any | None,
    discount: Any | None,
    is_terminal: Any | None,
    is_first: Any,
    is_last: Any,
    metadata: Mapping[str, Any] | None = None,
) -> Step:
    """Builds a step, or a batch of steps, from its fields.

    Values are neither copied nor converted. Values belong to one step, or have a leading time axis.

    Args:
      observation: the observation; None leaves the field out.
      action: the action applied to `observation`; None leaves the field out.
      reward: the reward that followed `action`; None leaves the field out.
      discount: the discount that came with `reward`; None leaves the field out.
      is_terminal: whether `observation` is a terminal state; None leaves the field out.
      is_first: whether this is the first step of the episode.
      is_last: whether this is the last step of the episode. The action, reward and discount of the
        last step have no meaning.
      metadata: further fields of the step.

    Returns:
      A dict with the given fields and the metadata.

    Raises:
      ValueError: if a metadata field has the name of a core step field.

    >>> step = build_step(0.5, 1, 0.0, 1.0, False, True, False, metadata={"timestamp": 12})
    >>> sorted(step)  # doctest: +NORMALIZE_WHITESPACE
    ['action', 'discount', 'is_first', 'is_last', 'is_terminal', 'observation', 'reward',
     'timestamp']
    """
    metadata = metadata or {}
    if conflicts := sorted(CORE_STEP_FIELDS & metadata.keys()):
        raise ValueError(
            f"Invalid Step Metadata: it contains the step fields {conflicts}. "
            "Pass them as arguments of build_step or rename them."
        )
    optional = {
        OBSERVATION: observation,
        ACTION: action,
        REWARD: reward,
        DISCOUNT: discount,
        IS_TERMINAL: is_terminal,
    }
    fields = {name: value for name, value in optional.items() if value is not None}
    return {IS_FIRST: is_first, IS_LAST: is_last, **fields, **metadata}


def build_episode(steps: Any, metadata: Mapping[str, Any]) -> Episode:
    """Builds an episode from its steps and its metadata.

    Args:
      steps: the steps: a `tf.data.Dataset` of steps, or one dict of fields with a leading time
        axis.
      metadata: the other fields of the episode.

    Returns:
      A dict with the steps under `rlds.STEPS`, and the metadata.

    Raises:
      ValueError: if the metadata contains `rlds.STEPS`.

    >>> build_episode({"is_first": [True], "is_last": [True]}, {"episode_id": "a"})
    {'steps': {'is_first': [True], 'is_last': [True]}, 'episode_id': 'a'}
    """
    if STEPS in metadata:
        raise ValueError(
            f"Invalid Episode Metadata: it contains the episode field {STEPS!r}. "
            "Pass the steps as the first argument of build_episode."
        )
    return {STEPS: steps, **metadata}


def is_valid_rlds_dataset(dataset: "tf.data.Dataset") -> bool:
    """Returns whether a dataset of episodes follows the rules of RLDS.

    Each episode needs steps, in either layout, and each step needs the boolean scalars
    `is_first` and `is_last`; the other core fields are optional. Every flag of every episode is
    read: `is_first` must be true only on the first step, `is_last` only on the last step, and the
    optional `is_terminal` at most on the last step. An episode without steps is not valid. A
    dataset without episodes is valid if its structure is valid.

    Args:
      dataset: a finite dataset of episodes. Reading stops at the first invalid episode.

    Returns:
      True if the structure and all flags are right.

    >>> import tensorflow as tf
    >>> steps = {"is_first": [[True, False]], "is_last": [[False, True]]}
    >>> is_valid_rlds_dataset(tf.data.Dataset.from_tensor_slices({"steps": steps}))
    True
    >>> steps = {"is_first": [[True, True]], "is_last": [[False, True]]}
    >>> is_valid_rlds_dataset(tf.data.Dataset.from_tensor_slices({"steps": steps}))
    False
    """
    episode_spec = dataset.element_spec
    if not isinstance(episode_spec, Mapping) or STEPS not in episode_spec:
        return False
    steps_spec = episode_spec[STEPS]
    is_nested = hasattr(steps_spec, "element_spec")
    step_spec = steps_spec.element_spec if is_nested else steps_spec
    if not isinstance(step_spec, Mapping) or not {IS_FIRST, IS_LAST} <= step_spec.keys():
        return False
    names = [name for name in STEP_FLAGS if name in step_spec]
    rank = 0 if is_nested else 1
    if any(
        step_spec[name].dtype != np.bool_ or step_spec[name].shape.rank != rank for name in names
    ):
        return False

    def select(step: Step) -> Step:
        return {name: step[name] for name in names}

    def are_right(batches: Iterable[Step]) -> bool:
        batches = list(batches)
        flags = {
            name: np.concatenate([np.asarray(batch[name]) for batch in batches])
            for name in (names if batches else ())
        }
        return bool(flags) and are_flags_right(flags, [len(flags[IS_FIRST])])

    if is_nested:
        # Only the flags are batched: the other fields may be large, or of varying shape.
        flags = dataset.map(lambda episode: episode[STEPS].map(select).batch(4096))
        return all(map(are_right, flags))
    flags = dataset.map(lambda episode: select(episode[STEPS]))
    return all(are_right([batch]) for batch in flags)


def are_flags_right(columns: Mapping[str, Any], episode_ends: Sequence[int] | np.ndarray) -> bool:
    """Returns whether the flags of steps follow the rules of RLDS.

    Args:
      columns: the concatenated columns of the steps of some episodes.
      episode_ends: the cumulative number of steps at the end of each episode.

    >>> are_flags_right({"is_first": [True, False, True], "is_last": [False, True, True]}, [2, 3])
    True
    """
    flags = [np.asarray(columns[name]) for name in STEP_FLAGS if name in columns]
    is_mask = all(column.dtype == np.bool_ and column.ndim == 1 for column in flags)
    if not is_mask or not episode_ends[-1]:
        return False
    is_last = np.zeros(episode_ends[-1], np.bool_)
    is_last[np.asarray(episode_ends) - 1] = True
    is_first, stored_last, *is_terminal = flags
    return bool(
        np.array_equal(stored_last, is_last)
        and np.array_equal(is_first, np.roll(is_last, 1))
        and not any(np.any(column & ~is_last) for column in is_terminal)
    )
