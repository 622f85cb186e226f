"""What can be done with data on the command line, and the same as functions.

    rlds inspect data/walker2d               rlds_tools.inspect("data/walker2d")
    rlds validate data/walker2d --json       rlds_tools.validate("data/walker2d").to_dict()

A function returns a result: a dataclass that prints as the command does, and shows itself as HTML
in a notebook. `rlds_tools.command_line` parses the command line, calls the function, and prints.
Nothing is imported before it is used, because a command has to start in no time.
"""

from typing import TYPE_CHECKING

from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
    from rlds_tools.cards import Card, card
    from rlds_tools.comparing import Difference, Differences, Unmatched, ValueDifference, diff
    from rlds_tools.converting import Conversion, convert, convert_known
    from rlds_tools.describing import Stats, stats
    from rlds_tools.findings import Finding
    from rlds_tools.inspection import (
        EpisodeView,
        Inspection,
        RecordFile,
        StepView,
        inspect,
        inspect_episode,
        inspect_step,
    )
    from rlds_tools.listing import Formats, Listing, list_datasets, list_formats
    from rlds_tools.recording import Recording, Returns, record
    from rlds_tools.recovering import Recovery, recover
    from rlds_tools.reporting import Report, report
    from rlds_tools.results import Result, Table
    from rlds_tools.validating import Check, Validation, validate

__all__ = [
    "Card",
    "Check",
    "Conversion",
    "Difference",
    "Differences",
    "EpisodeView",
    "Finding",
    "Formats",
    "Inspection",
    "Listing",
    "RecordFile",
    "Recording",
    "Recovery",
    "Report",
    "Result",
    "Returns",
    "Stats",
    "StepView",
    "Table",
    "Unmatched",
    "Validation",
    "ValueDifference",
    "card",
    "convert",
    "convert_known",
    "diff",
    "inspect",
    "inspect_episode",
    "inspect_step",
    "list_datasets",
    "list_formats",
    "record",
    "recover",
    "report",
    "stats",
    "validate",
]

_HOMES = {
    "rlds_tools.cards": ["Card", "card"],
    "rlds_tools.comparing": ["Difference", "Differences", "Unmatched", "ValueDifference", "diff"],
    "rlds_tools.converting": ["Conversion", "convert", "convert_known"],
    "rlds_tools.describing": ["Stats", "stats"],
    "rlds_tools.findings": ["Finding"],
    "rlds_tools.inspection": [
        *("EpisodeView", "Inspection", "RecordFile", "StepView"),
        *("inspect", "inspect_episode", "inspect_step"),
    ],
    "rlds_tools.listing": ["Formats", "Listing", "list_datasets", "list_formats"],
    "rlds_tools.recovering": ["Recovery", "recover"],
    "rlds_tools.recording": ["Recording", "Returns", "record"],
    "rlds_tools.reporting": ["Report", "report"],
    "rlds_tools.results": ["Result", "Table"],
    "rlds_tools.validating": ["Check", "Validation", "validate"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
