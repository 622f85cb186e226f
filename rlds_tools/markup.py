"""HTML in which nothing is forgotten to be escaped: text is, unless it is `Markup` already."""

from __future__ import annotations

import html

__all__ = ["Markup", "join", "tag"]

_WITHOUT_END = ("br", "img", "input", "meta", "path", "line", "rect")


class Markup(str):
    """HTML, which is inserted as it is."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | float | bool | None) -> Markup:
    """Returns an element.

    Args:
      name: Its name.
      *children: The content: text is escaped, `Markup` is not, None is left out.
      **attributes: Its attributes. An underscore at the end is dropped, others are hyphens. True
        stands for an attribute without a value; those that are None or False are left out.

    >>> tag("p", "a < b", tag("br"), class_="note", aria_label='"')
    '<p class="note" aria-label="&quot;">a &lt; b<br></p>'
    """
    inside = "".join(
        f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'
        for key, value in ((k.rstrip("_").replace("_", "-"), v) for k, v in attributes.items())
        if value is not None and value is not False
    )
    if name in _WITHOUT_END:
        return Markup(f"<{name}{inside}>" if name in _WITHOUT_END[:4] else f"<{name}{inside}/>")
    return Markup(f"<{name}{inside}>{join(*children)}</{name}>")


def join(*children: str | None) -> Markup:
    """Joins pieces of markup."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else html.escape(child)
            for child in children
            if child is not None
        )
    )
