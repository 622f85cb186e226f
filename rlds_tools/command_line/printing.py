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

from rlds_ecosystem.model.texts import replace_unprintable
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
    "parse_options",
    "prints_result",
    "source_options",
    "split_words",
    "wants_progress",
    "where_option",
    "writers_option",
]

# Unknown options of a command may be options of Apache Beam.
BEAM_SETTINGS = {"ignore_unknown_options": True}

# The texts around the commands of `next_commands`.
_HINT_PREFIX, _COMMAND_SEPARATOR = "next: ", " · "

_STYLES: dict[str, dict[str, Any]] = {
    "title": {"bold": True},
    "heading": {"dim": True},
    "hint": {"fg": "cyan"},
}


@dataclasses.dataclass
class Invocation:
    """The invocation of a command: verbosity, condition, and options of the opened paths.

    Attributes:
      owns_process: Whether the command may change settings of the process.
      quiet: Whether to print errors only.
      verbose: Whether to show the messages of libraries.
      where: The condition of the episodes that were read.
      path_options: The options that opened a path, by path, for the suggested commands.
      after_output: The function to call after the result is printed.
    """

    owns_process: bool = False
    quiet: bool = False
    verbose: bool = False
    where: str | None = None
    path_options: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    after_output: Callable[[], None] | None = None

    def add_path_options(
        self, path: str, format: str | None, pairs: Sequence[str], *, split: str | None = None
    ) -> None:
        """Stores the options that opened a path; `pairs` are options of the format."""
        options = [
            *(["--split", split] if split else []),
            *(["--format", format] if format else []),
        ]
        self.path_options[path] = [*options, *(word for pair in pairs for word in ("-O", pair))]

    def complete(self, hint: str) -> str:
        """Completes the commands of a line of `next_commands`."""
        commands = hint.removeprefix(_HINT_PREFIX).split(_COMMAND_SEPARATOR)
        return _HINT_PREFIX + _COMMAND_SEPARATOR.join(map(self.complete_command, commands))

    def complete_command(self, command: str) -> str:
        """Adds the options to a command that its path needs."""
        words = shlex.split(command)
        options = next((self.path_options[word] for word in words if word in self.path_options), [])
        if options[:1] == ["--split"] and (words[1] == "edit" or "--split" in words):
            # `edit --split` has another meaning; other commands may have the option already.
            options = options[2:]
        if self.where is not None and words[1] in ("stats", "report"):
            options = [*options, "--where", self.where]
        return " ".join(filter(None, [command, shlex.join(options)]))


def invocation() -> Invocation:
    """Returns the invocation of the running command."""
    return click.get_current_context().ensure_object(Invocation)


def wants_progress() -> bool | None:
    """Returns False for `--quiet`; None to show progress on a terminal."""
    return False if invocation().quiet else None


class Command(click.Command):
    """A command whose docstring and help end with examples."""

    def __init__(self, *, help: str, **settings: Any) -> None:
        text, _, examples = inspect.cleandoc(help).partition("\nExamples:\n")
        super().__init__(help=text, epilog=f"\b\nExamples:\n{examples}", **settings)


def option(shown: str, help: str, **settings: Any) -> Callable[[Any], Any]:
    """Returns a decorator that adds an option.

    Args:
      shown: The names, then the placeholder of the value: "-o --output FILE". With "..." after the
        placeholder, the option is repeatable. Without a placeholder or a type in the settings, the
        option is a flag. A word in lower case is the name of the argument, by default the longest
        name.
      help: The description.
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
    "Write large datasets in N processes; a repeated command resumes the unfinished work. Default: "
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
    """Returns a decorator that adds `-O`, options of a format, as the argument `pairs`.

    The decorator also adds `--layout FILE`, short for `--format layout -O layout=FILE`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @option("--layout FILE", "Layout of files of your own, in YAML.")
        @option("--option -O pairs NAME=VALUE...", help)
        @functools.wraps(function)
        def command(
            layout: str | None, pairs: Sequence[str], format: str | None, **kwargs: Any
        ) -> Any:
            if layout is not None:
                format, pairs = format or "layout", (*pairs, f"layout={layout}")
            return function(pairs=pairs, format=format, **kwargs)

        return command

    return decorate


def opens_source(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the arguments that open data: its `format`, and `options` of the format.

    The function has an argument `path` or `paths`.
    """

    @option("--format TEXT", "Format of the data, if it is not recognized.")
    @format_option("Option of the format.")
    @functools.wraps(function)
    def command(format: str | None, pairs: Sequence[str], **kwargs: Any) -> Any:
        paths = kwargs.get("paths") or [kwargs["path"]]
        options, *_ = [source_options(path, format, pairs) for path in paths]
        invocation().where = kwargs.get("where")
        for path in paths:
            invocation().add_path_options(path, format, pairs, split=kwargs.get("split"))
        return function(format=format, options=options, **kwargs)

    return command


def parse_options(accepted: Mapping[str, Any], pairs: Sequence[str], owner: str) -> dict[str, Any]:
    """Parses options of a format from pairs such as `fps=10`.

    Raises:
      UsageError: An option is unknown, or its value is invalid.
    """
    from rlds.sources import options

    try:
        return options.parse_options(accepted, pairs, owner)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def source_options(path: str, format: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    """Returns the options of the format of a path; see `parse_options`.

    Args:
      path: The path of the data.
      format: The name of the format; recognized if None.
      pairs: The options, such as `fps=10`.
    """
    if not pairs:
        return {}
    from rlds import sources

    format = format or sources.format_of(path)
    accepted = sources.formats()[format].options if format in sources.formats() else {}
    return parse_options(accepted, pairs, format)


def prints_result(function: Callable[..., Result]) -> Callable[..., int]:
    """Prints the result that a function returns; adds the options that all commands have.

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
        call = invocation()
        call.quiet, call.verbose = quiet, verbose
        click.get_current_context().color = _wants_color(color)
        result = function(*args, **kwargs)
        if as_json:
            text = json.dumps(result.to_dict(), indent=2, ensure_ascii=False)
            # Control characters are escaped, as they could control the terminal.
            click.echo(replace_unprintable(text, lambda char: json.dumps(char)[1:-1], keep="\n"))
        elif not quiet:
            click.echo(result.text(functools.partial(_apply_style, call)))
        if call.after_output is not None:
            call.after_output()
        return result.exit_code

    return command


def _apply_style(call: Invocation, text: str, kind: str) -> str:
    return click.style(call.complete(text) if kind == "hint" else text, **_STYLES[kind])


def _wants_color(color: str) -> bool:
    if color == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return color == "always"


def split_words(words: Iterable[str], runner: str | None) -> tuple[list[str], list[str]]:
    """Splits words into paths and options of Beam."""
    paths: list[str] = []
    beam_words: list[str] = []
    is_value = False  # True if the word is the value of `--name value`.
    for word in words:
        is_option = word.startswith("-")
        (beam_words if is_option or is_value else paths).append(word)
        is_value = is_option and "=" not in word
    if beam_words and runner is None:
        raise click.UsageError(
            f"unknown options: {' '.join(beam_words)} (options of Beam need --runner)"
        )
    return paths, beam_words
