"""RLDS: datasets of episodes of sequential decision making.

The names of a step and of an episode, the helpers that build them, and the transformations that
feed them to an algorithm. Importing this package is cheap: TensorFlow is loaded when
`rlds.transformations` or `rlds.tfds` is first touched.
"""

from typing import TYPE_CHECKING

from rlds import metadata
from rlds.rlds_types import (
    ACTION,
    ALIGNMENT,
    CORE_STEP_FIELDS,
    DISCOUNT,
    FINAL_OBSERVATION_KNOWN,
    IS_FIRST,
    IS_LAST,
    IS_TERMINAL,
    OBSERVATION,
    REWARD,
    STEP_FLAGS,
    STEPS,
    BatchedEpisode,
    BatchedStep,
    Episode,
    EpisodeFilterFn,
    Step,
    StepFilterFn,
    StepMapFn,
    StepsToStepsFn,
    build_episode,
    build_step,
)
from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
    from rlds import sources, tfds, transformations
    from rlds.alignment import append_row, from_rsa, from_sars

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
    "append_row",
    "build_episode",
    "build_step",
    "from_rsa",
    "from_sars",
    "metadata",
    "sources",
    "tfds",
    "transformations",
]

__version__: str

# Loaded on first use, so that a recorder or a command that only needs the names of the fields
# starts in no time: the subpackages import TensorFlow, the functions `envlogger`.
_HOMES = {"rlds.alignment": ["append_row", "from_rsa", "from_sars"]}

_INSTEAD = {
    "load": "rlds.sources.open(path), or rlds.tfds.load(path) for a tf.data.Dataset",
    "open": "rlds.sources.open(path), or rlds.feeds.open(path) for batches",
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES, _INSTEAD)
