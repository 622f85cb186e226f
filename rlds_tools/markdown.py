"""Escapes text of datasets for Markdown and YAML, so that it is displayed unchanged."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence

from rlds_ecosystem.model.texts import replace_unprintable

__all__ = ["code", "fenced", "paragraphs", "plain_text", "table", "yaml_text"]

_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_BEGINS_BLOCK = re.compile(r"(\d+)?([#>+=.)-])")
# Texts that YAML needs no quotes for; other texts may be numbers, comments, lists, references, …
_PLAIN_YAML = re.compile(r"[A-Za-z][\w.+/-]*(?: [\w.+/-]+)*")
_NO_TEXT_IN_YAML = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def plain_text(text: str) -> str:
    r"""Escapes a text, and joins its lines.

    >>> print(plain_text("1. <b> & *a_b* _c_\n|"))
    1\. &lt;b&gt; &amp; \*a_b\* \_c\_ \|
    """
    line = " ".join(_without_invisible(text).split())
    line = html.escape(_MARKUP.sub(lambda match: "\\" + match[0], line), quote=False)
    marker = _BEGINS_BLOCK.match(line)
    return line if marker is None else f"{line[: marker.end() - 1]}\\{line[marker.end() - 1 :]}"


def paragraphs(text: str) -> str:
    """Escapes a text of several paragraphs."""
    return "\n\n".join(filter(None, map(plain_text, re.split(r"\n\s*\n", text))))


def code(text: str) -> str:
    r"""Formats a text as code within a line or a cell of a table.

    >>> print(code("a`|b"))
    ``a`\|b``
    """
    text = " ".join(_without_invisible(text).split()).replace("|", "\\|")
    if not text:
        return ""
    ticks = "`" * (_longest_run(text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def fenced(text: str, language: str = "") -> str:
    """Formats a text as a block of code."""
    ticks = "`" * max(3, _longest_run(text) + 1)
    return f"{ticks}{language}\n{_without_invisible(text, keep=chr(10)).strip()}\n{ticks}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Formats a table of Markdown cells; headings of columns of numbers begin with ">".

    >>> print(table(["name", ">number"], [["a", "1"]]))
    | name | number |
    |---|---:|
    | a | 1 |
    """
    rule = ["---:" if heading.startswith(">") else "---" for heading in headings]
    names = [heading.removeprefix(">") for heading in headings]
    lines = [f"| {' | '.join(cells)} |" for cells in (names, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


def yaml_text(text: str) -> str:
    r"""Formats a text as a scalar of YAML.

    >>> print(yaml_text("walker2d"), yaml_text("no"), yaml_text("a: b"), yaml_text("\x85é"))
    walker2d "no" "a: b" "\u0085é"
    """
    if _PLAIN_YAML.fullmatch(text) and text.lower() not in _NO_TEXT_IN_YAML:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return replace_unprintable(quoted, _yaml_escape)


def _yaml_escape(character: str) -> str:
    code_point = ord(character)
    if 0xD800 <= code_point < 0xE000:  # A surrogate, which UTF-8 cannot encode.
        code_point = 0xFFFD
    return f"\\u{code_point:04x}" if code_point < 0x10000 else f"\\U{code_point:08x}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _without_invisible(text: str, keep: str = "") -> str:
    """Replaces invisible characters and surrogates with spaces."""
    return replace_unprintable(text, lambda _: " ", keep)
