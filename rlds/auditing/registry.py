"""Checks of data: names, faults, reasons and thresholds. Each finding names its check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from rlds.auditing.findings import EpisodeFinding, MeasuredEpisodes

__all__ = ["OF_ROWS", "OF_THUMBNAILS", "ONE_PASS", "DataCheck", "Severity"]

Severity = Literal["error", "warning"]

# Names of checks that are hidden by other checks.
OF_ROWS = ("spike", "jitter", "gap", "saturated", "idle", "frozen", "repeated")
OF_THUMBNAILS = ("cameras swapped", "camera turned", "camera colours")


@dataclasses.dataclass(frozen=True)
class DataCheck:
    """A check of a dataset, by an audit or a validation.

    Attributes:
      name: The name of the check.
      fault: The fault that the check finds.
      impact: The users whom the fault affects, and why.
      threshold: The compared values, and the threshold.
      find: Yields the findings of a comparison of episodes; None for a check of single episodes,
        which `rlds validate` runs.
      hides: The names of the checks that find consequences of the fault.
      is_of_pictures: True if the check compares pictures.
      severity: "error" for a broken rule or lost data, "warning" for a probable mistake.
    """

    name: str
    fault: str
    impact: str
    threshold: str
    find: Callable[[MeasuredEpisodes], Iterator[EpisodeFinding]] | None = None
    hides: Sequence[str] = ()
    is_of_pictures: bool = False
    severity: Severity = "warning"


ONE_PASS: Sequence[DataCheck] = (
    DataCheck(
        "unreadable",
        "an episode, a file or a picture that cannot be read",
        "all: its steps are lost",
        "a wrong checksum, a damaged record or file; of pictures, those that are decoded",
        severity="error",
    ),
    DataCheck(
        "files",
        "files that contradict their declaration",
        "all: episodes or steps are lost",
        "lists of files, numbers of episodes, steps and rows",
        severity="error",
    ),
    DataCheck(
        "rules",
        "a broken rule of RLDS, or of the loaders of a profile",
        "all: a loader fails, or mixes steps of several episodes",
        "`rlds.validation.validate` lists them; `--finite` adds fields without NaN",
        severity="error",
    ),
    DataCheck(
        "description",
        "a name or a field that differs from the registered dataset",
        "all: `tfds.load` or a loader does not find it",
        "the registry of robots",
    ),
    DataCheck(
        "declaration",
        "actions or times that contradict their declaration",
        "policies: degrees are taken for radians, or changes for targets",
        "another kind; 1.3 times the scale, 1.1 to 3.3 times of changes; within 3 % of another"
        " unit; 3 % of the rate",
    ),
    DataCheck(
        "incomplete",
        "an incomplete recording",
        "imitation: the end of the task is missing",
        "a mark of the source",
    ),
    DataCheck(
        "few steps",
        "one or two steps",
        "training: there is no motion in it",
        "a fixed limit; `short` compares episodes",
        hides=("short", "dead", *OF_ROWS),
    ),
    DataCheck(
        "unused task",
        "a declared task has no episode",
        "language-conditioned policies: it cannot be learnt",
        "the table of tasks of LeRobot, in an audit of all episodes",
    ),
    DataCheck(
        "constant",
        "an element of observations or actions has one value in all episodes",
        "training: it tells nothing, and has no deviation to divide by",
        "all steps, if ten or more; `dead` is of single episodes",
    ),
    DataCheck(
        "limit",
        "an element is often at the lowest or the highest value of the dataset",
        "training: values beyond the limit were cut",
        "10 % of all steps, of more than 16 values; `saturated` is of single episodes",
        hides=("saturated",),
    ),
    DataCheck(
        "first action",
        "the first action is zero",
        "imitation: it is a placeholder, or actions are one step late",
        "in 90 % of the episodes, and in at most 10 % of the other steps",
    ),
    DataCheck(
        "terminal",
        "`is_terminal` is missing, or true nowhere",
        "reinforcement learning: terminal and truncated episodes look the same",
        "missing; or false in all steps, though there are rewards",
    ),
    DataCheck(
        "camera gaps",
        "steps without a frame",
        "policies that see: the frame of another step is shown",
        "any",
    ),
    DataCheck(
        "camera blank",
        "a camera shows one picture in the whole episode, or nothing",
        "policies that see: there is nothing to learn",
        "all frames; `camera black` and `camera frozen` compare some frames of each episode",
        hides=("camera black", "camera frozen", "camera blurred", *OF_THUMBNAILS),
    ),
)
"""Checks that need one pass, and no comparison of episodes."""
