"""Output of all commands: results as text or JSON, and messages."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from rlds_ecosystem.model.texts import replaced
from rlds_tools.results import Result

__all__ = [
    "BEAM_SETTINGS",
    "Command",
    "Invocation",
    "format_option",
    "invocation",
    "jobs_option",
    "opens_source",
    "option",
    "parsed_options",
    "prints_result",
    "source_options",
    "split_words",
    "wants_progress",
    "where_option",
    "writers_option",
]

# Words of the command line that no command knows may be options of Apache Beam.
BEAM_SETTINGS = {"ignore_unknown_options": True}

# The texts around the commands of `next_commands`.
_NEXT, _BETWEEN = "next: ", " · "

_STYLES: dict[str, dict[str, Any]] = {
    "title": {"bold": True},
    "heading": {"dim": True},
    "hint": {"fg": "cyan"},
}


@dataclasses.dataclass
class Invocation:
    """The invocation of a command: verbosity, condition, and options of the opened paths.

    Attributes:
      owns_process: Whether the process is the command's own, so that it may change settings of the
        whole process.
      quiet: Whether to print errors only.
      verbose: Whether to show the messages of libraries.
      where: The condition of the episodes that were read.
      carried: By path, the options it was opened with, as words of the next commands.
      then: Called after the result is printed.
    """

    owns_process: bool = False
    quiet: bool = False
    verbose: bool = False
    where: str | None = None
    carried: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    then: Callable[[], None] | None = None

    def carry(
        self, path: str, format: str | None, words: Sequence[str], *, split: str | None = None
    ) -> None:
        """Remembers how a path was opened: `words` are options of the format, as `name=value`."""
        options = [
            *(["--split", split] if split else []),
            *(["--format", format] if format else []),
        ]
        self.carried[path] = [*options, *(part for word in words for part in ("-O", word))]

    def complete(self, hint: str) -> str:
        """Returns a line of `next_commands` with the words that its commands need."""
        commands = hint.removeprefix(_NEXT).split(_BETWEEN)
        return _NEXT + _BETWEEN.join(map(self.completed, commands))

    def completed(self, command: str) -> str:
        """Returns a command with the words that it needs."""
        words = shlex.split(command)
        carried = next((self.carried[word] for word in words if word in self.carried), [])
        if carried[:1] == ["--split"] and (words[1] == "edit" or "--split" in words):
            # `edit --split` means something else; other commands may name theirs.
            carried = carried[2:]
        if self.where is not None and words[1] in ("stats", "report"):
            carried = [*carried, "--where", self.where]
        return " ".join(filter(None, [command, shlex.join(carried)]))


def invocation() -> Invocation:
    """Returns how the command that is running was called."""
    return click.get_current_context().ensure_object(Invocation)


def wants_progress() -> bool | None:
    """Returns whether to show progress; None for what suits the terminal."""
    return False if invocation().quiet else None


class Command(click.Command):
    """A command whose docstring ends with its examples, which end its page, too."""

    def __init__(self, *, help: str, **settings: Any) -> None:
        text, _, examples = inspect.cleandoc(help).partition("\nExamples:\n")
        super().__init__(help=text, epilog=f"\b\nExamples:\n{examples}", **settings)


def option(shown: str, help: str, **settings: Any) -> Callable[[Any], Any]:
    """Returns a decorator that adds an option, which is written as its page shows it.

    Args:
      shown: The names, then what stands for the value: "-o --output FILE". With "..." after it, the
        option is repeatable. Without it, and without a type in the settings, the option is a flag.
        A word in lower case is the name of the argument, if that is not the longest name.
      help: Its description.
      **settings: Other arguments of `click.option`.
    """
    words = shown.split()
    names = [word for word in words if word[0] == "-" or (word.isidentifier() and word.islower())]
    value = "".join(word for word in words if word not in names)
    if value.endswith("..."):
        settings, help = {"multiple": True, **settings}, f"{help} Repeatable."
    elif not value and "type" not in settings:
        settings = {"is_flag": True, **settings}
    return click.option(*names, metavar=value.removesuffix("...") or None, help=help, **settings)


def _default_jobs() -> int:
    from rlds_ecosystem.files.processes import default_jobs

    return default_jobs()


writers_option = option(
    "--jobs N",
    "Write large datasets in N processes, in parts with which a repeated command resumes. Default: "
    "one per processor.",
    type=click.IntRange(1),
)
jobs_option = option(
    "--jobs N",
    "Number of processes that read thousands of small episodes. Default: one per processor.",
    type=click.IntRange(1),
    default=_default_jobs,
)
most_findings_option = option(
    "--max most",
    "Maximum number of findings to print per split.",
    type=click.IntRange(1),
    default=20,
    show_default=True,
)
where_option = option(
    "--where CONDITION",
    "Only the episodes that match this SQL condition, such as 'steps > 50 and success'.",
)


def format_option(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds `-O`, options of a format, as the argument `given`.

    It also adds `--layout FILE`, which is short for `--format layout -O layout=FILE`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @option("--layout FILE", "Description in YAML of files of your own.")
        @option("--option -O given NAME=VALUE...", help)
        @functools.wraps(function)
        def command(
            layout: str | None, given: Sequence[str], format: str | None, **kwargs: Any
        ) -> Any:
            if layout is not None:
                format, given = format or "layout", (*given, f"layout={layout}")
            return function(given=given, format=format, **kwargs)

        return command

    return decorate


def opens_source(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options by which data is opened: its `format`, and `options` of the format.

    The data is at the argument `path`, or at all of `paths`.
    """

    @option("--format TEXT", "Format of the data, if it is not recognized.")
    @format_option("Option of the format.")
    @functools.wraps(function)
    def command(format: str | None, given: Sequence[str], **kwargs: Any) -> Any:
        paths = kwargs.get("paths") or [kwargs["path"]]
        options, *_ = [source_options(path, format, given) for path in paths]
        invocation().where = kwargs.get("where")
        for path in paths:
            invocation().carry(path, format, given, split=kwargs.get("split"))
        return function(format=format, options=options, **kwargs)

    return command


def parsed_options(accepted: Mapping[str, Any], words: Sequence[str], owner: str) -> dict[str, Any]:
    """Parses options of a format from words such as `fps=10`.

    Raises:
      UsageError: There is no such option, or it cannot have the value.
    """
    from rlds.sources.options import parse_options

    try:
        return parse_options(accepted, words, owner)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def source_options(path: str, format: str | None, words: Sequence[str]) -> dict[str, Any]:
    """Returns the options of the format of a path; see `parsed_options`.

    Args:
      path: The path of the data.
      format: The format; if None, it is recognized.
      words: The options, each as `name=value`.
    """
    if not words:
        return {}
    from rlds import sources

    format = format or sources.format_of(path)
    accepted = sources.formats()[format].options if format in sources.formats() else {}
    return parsed_options(accepted, words, format)


def prints_result(function: Callable[..., Result]) -> Callable[..., int]:
    """Makes a command of a function that returns a result, with the options that all commands have.

    The data goes to the standard output; the command ends with the result's `exit_code`.
    """

    @option("--json as_json", "Print JSON with stable keys.")
    @option(
        "--color",
        "Use colors; auto: on a terminal, unless NO_COLOR is set.",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
    )
    @option("-q --quiet", "Print errors only.")
    @option("-v --verbose", "Show messages of libraries, and tracebacks.")
    @functools.wraps(function)
    def command(
        *args: Any, as_json: bool, color: str, quiet: bool, verbose: bool, **kwargs: Any
    ) -> int:
        called = invocation()
        called.quiet, called.verbose = quiet, verbose
        click.get_current_context().color = _wants_color(color)
        result = function(*args, **kwargs)
        if as_json:
            text = json.dumps(result.to_dict(), indent=2, ensure_ascii=False)
            # Characters that would command a terminal are escaped.
            click.echo(replaced(text, lambda character: json.dumps(character)[1:-1], keep="\n"))
        elif not quiet:
            click.echo(result.text(functools.partial(_styled, called)))
        if called.then is not None:
            called.then()
        return result.exit_code

    return command


def _styled(called: Invocation, text: str, kind: str) -> str:
    return click.style(called.complete(text) if kind == "hint" else text, **_STYLES[kind])


def _wants_color(color: str) -> bool:
    if color == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return color == "always"


def split_words(words: Iterable[str], runner: str | None) -> tuple[list[str], list[str]]:
    """Splits words into paths and options of Beam."""
    paths: list[str] = []
    beam_words: list[str] = []
    is_value = False  # Of the option before: `--name value` is as good as `--name=value`.
    for word in words:
        is_option = word.startswith("-")
        (beam_words if is_option or is_value else paths).append(word)
        is_value = is_option and "=" not in word
    if beam_words and runner is None:
        raise click.UsageError(
            f"unknown options: {' '.join(beam_words)} (options of Beam need --runner)"
        )
    return paths, beam_words
