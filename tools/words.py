"""Checks the words of the code: openings of docstrings, vague words of texts, vague names.

    python tools/words.py [FOLDER]

"How many steps it has." is a riddle in a list of names; "The number of steps." is not. `place` does
not tell what a variable holds; `row_offset` does. Texts are docstrings, messages and comments. The
folder is the checkout by default. Prints each violation with its file and line; exits with 1 if
there are any.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

OPENING = re.compile(r"(What|Which|How|Where|Those|That|Whoever|As many)\b")
# Words with a private meaning, after which a reader asks "of what?", "by whom?" or "where?".
WORD = re.compile(
    r"\b(said|found|others|made|beside|parts?|(?<!in[ -])places?|in place of|what there is"
    r"|as it was|known(?= to| of| if|\W*$|[,.;:)])|looked through|gets? to be|in words"
    r"|as far as)\b",
    re.IGNORECASE,
)
# Names that do not tell what a variable, an argument, an attribute, a function or a class holds.
NAME = re.compile(
    r"_*(at|beside|but|found|given|known|made|numbers?|of|on|ones|others|parts?|places?|rest|said"
    r"|there|things?|wanted|ways?|what|which|whole)_*",
    re.IGNORECASE,
)
# Folders that are not checked, and folders of which only the openings are checked.
SKIPPED = {"build": "copies of the packages, and outputs"}
OPENINGS_ONLY = {"tools": "the words are listed here"}
# Words and names that are a term or a key: files, words, reason.
EXCEPTIONS = (
    ("rlds/(conversion|sources|formats)/", "part parts", "the portion of one worker: --part"),
    ("rlds_tools/(command_line/)?convert|benchmarks/", "part parts", "the same"),
    ("tfds_builders/builder", "parts", "the folder of staged files"),
    ("rlds/sources/label_rows|rlds_creator/(model|viewing/labels)", "at number whole", "keys"),
    ("rlds_tools/auditing", "known numbers", "a key; the text of a check"),
    ("rlds_tools/(comparing|labelling)|rlds/validation", "what", "keys"),
    ("rlds_tools/editing|rlds/formats/layout/", "of number", "keys of recipes and layouts"),
    ("rlds_tools/converting|rlds/sources/writing", "place", "a key"),
    ("rlds_creator/(viewing/catalog|server/api)", "place", "a key"),
    ("rlds_tools/reporting/", "made", "the text that identifies a report"),
    ("rlds/editing/operations", "parts", "a key of recipes"),
    ("rlds/robotics/registry", "said part", "keys of datasets.json"),
    ("rlds/sources/(condition_errors|registry)", "found others", "DuckDB's text; robomimic's key"),
    ("envlogger/validation", "found", "dm_env's text"),
    (
        "tests/(rlds/(conversion|sources)/|support/|tfds_builders/|test_benchmarks)",
        "part parts",
        "the same; a file of a Stream; a key of results",
    ),
    ("tests/.*(raw_zarr|hostile_sources|zarr_source|staging)", "made", "names in raw data"),
    ("tests/(rlds_tools|rlds/editing|support)/", "place", "instructions of robots"),
    ("tests/rlds_creator/browser/", "found part place", "texts and CSS classes of pages"),
    ("tests/rlds/formats/lerobot/test_source", "found", "pyarrow's text"),
    ("tests/test_words", "beside found others parts", "cases of this check"),
)


def violations(
    root: Path, exceptions: Sequence[tuple[str, str, str]] = EXCEPTIONS
) -> Iterator[str]:
    """Yields the violations below a folder, and the exceptions without a case there."""
    unused = dict.fromkeys(exceptions)
    for file, line, problem, word in _problems(root):
        if matching := [each for each in exceptions if _is_exception(each, file, word)]:
            unused.pop(matching[0], None)
        else:
            yield f"{file}:{line}: {problem}: {word}"
    yield from (f"tools/words.py: an exception without a case: {each}" for each in unused)


def _is_exception(exception: tuple[str, str, str], file: str, word: str) -> bool:
    files, words, _ = exception
    return bool(re.match(files, file)) and word.strip("_").lower() in words.split()


def _problems(root: Path) -> Iterator[tuple[str, int, str, str]]:
    """Yields the file, the line, the problem and the word of each case below a folder."""
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root)
        if file.parts[0] in SKIPPED or any(name.startswith(".") for name in file.parts):
            continue
        source = path.read_text()
        tree = ast.parse(source)
        cases = {*_openings(tree)}
        if file.parts[0] not in OPENINGS_ONLY:
            cases |= {*_vague_words(tree), *_vague_comments(source), *_vague_names(tree)}
        yield from ((file.as_posix(), *case) for case in sorted(cases))


def _docstrings(tree: ast.AST) -> list[ast.Constant]:
    """Returns the strings that are statements: docstrings, also of constants."""
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return [it for it in values if isinstance(it, ast.Constant) and isinstance(it.value, str)]


def _openings(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    for docstring in _docstrings(tree):
        text = str(docstring.value).lstrip()
        if OPENING.match(text):
            yield docstring.lineno, "docstring begins with a clause", text.splitlines()[0]


def _vague_words(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yields the vague words of docstrings, and of other strings with blanks."""
    docstrings = {id(docstring) for docstring in _docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            kind = "docstring" if id(node) in docstrings else "message"
            for match in WORD.finditer(node.value):
                yield node.lineno + node.value.count("\n", 0, match.start()), kind, match[0]


def _vague_comments(source: str) -> Iterator[tuple[int, str, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for match in WORD.finditer(token.string):
                yield token.start[0], "comment", match[0]


def _vague_names(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        if NAME.fullmatch(name):
            yield getattr(node, "lineno", 0), "name", name


if __name__ == "__main__":
    lines = [*violations(Path(sys.argv[1] if len(sys.argv) > 1 else "."))]
    if lines:
        sys.exit("\n".join([*lines, "Name the thing: see `tools/words.py`."]))
