"""The code of pages runs from top to bottom, with the shown output.

Blocks of Python run in one session for each page; a block of `output` is the expected output of the
block before. Calls of `$ rlds` in blocks of the console run in between, in the same directory, with
the expected output after them. `...` matches anything.
"""

import codeop
import doctest
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlds_tools.command_line import commands as rlds_commands

ROOT = Path(__file__).parents[2]

# The number of blocks of Python of each page, so that no block can be lost.
BLOCKS = {
    "README.md": 1,
    "docs/audit.md": 2,
    "docs/cluster.md": 1,
    "docs/conversion.md": 4,
    "docs/cookbook.md": 18,
    "docs/creator.md": 1,
    "docs/editing.md": 1,
    "docs/envlogger.md": 5,
    "docs/envlogger_reference.md": 2,
    "docs/evaluation.md": 6,
    "docs/feeds.md": 7,
    "docs/feeds_performance.md": 2,
    "docs/feeds_resume.md": 3,
    "docs/feeds_robotics.md": 7,
    "docs/feeds_samples.md": 14,
    "docs/feeds_scripts.md": 6,
    "docs/gymnasium.md": 2,
    "docs/labels.md": 5,
    "docs/layouts.md": 2,
    "docs/migration.md": 6,
    "docs/own_format.md": 6,
    "docs/patterns.md": 7,
    "docs/readers.md": 7,
    "docs/recording.md": 3,
    "docs/recover.md": 3,
    "docs/riegeli.md": 3,
    "docs/riegeli_format.md": 4,
    "docs/report.md": 1,
    "docs/rlds_tfds.md": 11,
    "docs/robotics.md": 1,
    "docs/robotics_oxe.md": 6,
    "docs/robotics_hdf5.md": 6,
    "docs/robotics_bags.md": 5,
    "docs/robotics_lerobot.md": 3,
    "docs/robotics_video.md": 7,
    "docs/robotics_zarr.md": 6,
    "docs/semantics.md": 5,
    "docs/sources.md": 5,
    "docs/tfds_builders.md": 2,
    "docs/tfds_files.md": 5,
    "docs/tour.md": 4,
    "docs/transformations.md": 17,
}
# The number of blocks of output, and the number of calls of `rlds`.
OUTPUTS = {
    "README.md": 1,
    "docs/conversion.md": 2,
    "docs/cookbook.md": 1,
    "docs/envlogger.md": 2,
    "docs/evaluation.md": 5,
    "docs/feeds.md": 1,
    "docs/feeds_performance.md": 1,
    "docs/feeds_resume.md": 1,
    "docs/feeds_samples.md": 1,
    "docs/labels.md": 4,
    "docs/layouts.md": 1,
    "docs/recording.md": 2,
    "docs/recover.md": 1,
    "docs/rlds_tfds.md": 1,
    "docs/robotics_zarr.md": 1,
    "docs/robotics_oxe.md": 3,
    "docs/sources.md": 2,
    "docs/tfds_files.md": 1,
    "docs/tour.md": 2,
}
COMMANDS = {
    "README.md": 4,
    "docs/audit.md": 1,
    "docs/cards.md": 7,
    "docs/cli.md": 26,
    "docs/editing.md": 11,
    "docs/labels.md": 6,
    "docs/layouts.md": 1,
    "docs/recover.md": 5,
    "docs/report.md": 1,
    "docs/robotics_oxe.md": 2,
    "docs/tour.md": 5,
}

# Pages with empty lines within classes, which end the class in a Python session.
WITH_CLASSES = {
    *("docs/creator.md", "docs/envlogger.md", "docs/own_format.md", "docs/riegeli_format.md"),
    "docs/envlogger_reference.md",
    "docs/recording.md",
    "docs/robotics_video.md",
}
# Pages of many small examples, whose functions have other tests; and one of many processes.
LONG = {"docs/cluster.md", "docs/cookbook.md", "docs/patterns.md", "docs/transformations.md"}

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """Returns the blocks of code of a page, each with the index of its first line."""
    text = page.read_text(encoding="utf-8")
    matches = re.finditer(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in matches]


def commands(page: Path) -> list[tuple[int, tuple[str, str]]]:
    """Returns the calls of `rlds` in a page, each with its line, arguments and expected output."""
    return [
        (line + block.count("\n", 0, match.start()), (match[1], match[2]))
        for line, block in blocks(page, "console")
        for match in re.finditer(r"^\$ rlds (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE)
    ]


def count_by_page(find) -> dict[str, int]:
    counts = {page.relative_to(ROOT).as_posix(): len(find(page)) for page in PAGES}
    return {page: count for page, count in counts.items() if count}


@pytest.fixture
def no_alias_left() -> Iterator[None]:
    """Undoes `install_reverb_alias()` of a page."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "reverb"]:
        del sys.modules[name]


def test_all_blocks_of_code_are_counted() -> None:
    assert count_by_page(lambda page: blocks(page, "python")) == BLOCKS
    assert count_by_page(lambda page: blocks(page, "output")) == OUTPUTS
    assert count_by_page(commands) == COMMANDS


def test_the_page_of_commands_runs_every_command() -> None:
    called = {call.split()[0] for _, (call, _) in commands(ROOT / "docs" / "cli.md")}
    assert called - {"--help"} == {*rlds_commands.COMMANDS}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page in LONG else [])
        for page in sorted({*BLOCKS, *COMMANDS})
    ],
)
@pytest.mark.usefixtures("no_alias_left")
def test_code_prints_the_shown_output(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    main = types.ModuleType("__main__")  # Pickles of its classes need it.
    monkeypatch.setitem(sys.modules, "__main__", main)
    actual = ""
    for line, kind, code, expected in sorted(
        [
            *((line, "python", code, "") for line, code in blocks(ROOT / page, "python")),
            *((line, "rlds", *command) for line, command in commands(ROOT / page)),
            *((line, "output", "", expected) for line, expected in blocks(ROOT / page, "output")),
        ]
    ):
        if kind == "output":
            check_output(expected, actual, f"{page}, line {line}")
        elif kind == "rlds":
            check_command(code, expected, capsys)
        else:
            capsys.readouterr()
            # Empty lines align the lines of tracebacks with those of the page.
            exec(compile("\n" * line + code, ROOT / page, "exec"), main.__dict__)
            actual = capsys.readouterr().out


def check_command(arguments: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    rlds_commands.run(shlex.split(arguments))
    check_output(expected, "".join(capsys.readouterr()), f"rlds {arguments}")


def check_output(expected: str, actual: str, location: str) -> None:
    same = doctest.OutputChecker().check_output(expected, actual, doctest.ELLIPSIS)
    assert same, f"{location}\n{actual}"


@pytest.mark.parametrize("page", sorted(BLOCKS.keys() - WITH_CLASSES))
def test_pages_can_be_pasted_into_a_python_session(page: str) -> None:
    for _, block in blocks(ROOT / page, "python"):
        statement: list[str] = []
        for line in [*block.split("\n"), ""]:
            # At the prompt, an empty line ends a statement.
            statement.append(line)
            if codeop.compile_command("\n".join(statement)) is not None:
                statement = []
        assert not statement


def test_first_code_of_the_readme_prints_only_the_shown_output(
    tmp_path: Path,
) -> None:
    page = ROOT / "README.md"
    (_, code), (_, expected) = blocks(page, "python")[0], blocks(page, "output")[0]
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (process.stdout, process.stderr) == (expected, "")


def test_a_command_with_other_output_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError, match="No such command"):
        check_command("inspekt", "walker2d 1.0.0 ...\n", capsys)
