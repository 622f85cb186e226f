"""Builds HTML that is safe by default: all text is escaped, except for `Markup`."""

from __future__ import annotations

import html

__all__ = ["Markup", "join", "tag"]

_EMPTY_ELEMENTS = ("br", "img", "input", "meta", "path", "line", "rect")


class Markup(str):
    """A string of HTML, which is inserted without escaping."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | float | bool | None) -> Markup:
    """Returns an element.

    Args:
      name: The name of the element.
      *children: The content: text is escaped, `Markup` is not, None is left out.
      **attributes: The attributes. In names, a final underscore is dropped, and the remaining
        underscores become hyphens. True is an attribute without a value; None and False are left
        out.

    >>> tag("p", "a < b", tag("br"), class_="note", aria_label='"')
    '<p class="note" aria-label="&quot;">a &lt; b<br></p>'
    """
    attrs = "".join(
        f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'
        for key, value in ((k.rstrip("_").replace("_", "-"), v) for k, v in attributes.items())
        if value is not None and value is not False
    )
    if name in _EMPTY_ELEMENTS:
        return Markup(f"<{name}{attrs}>" if name in _EMPTY_ELEMENTS[:4] else f"<{name}{attrs}/>")
    return Markup(f"<{name}{attrs}>{join(*children)}</{name}>")


def join(*children: str | None) -> Markup:
    """Joins pieces of markup."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else html.escape(child)
            for child in children
            if child is not None
        )
    )
