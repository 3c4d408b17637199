"""HTML that cannot be broken out of: elements are made by ``tag``, and text becomes part of one only escaped.

What people and platforms wrote is shown as it is, but nothing in it acts: markup is escaped, and control
characters and direction marks are spelled out, so that a text neither hides nor turns what stands beside it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

Child: TypeAlias = "Html | str | int | float | Iterable[Child] | None"
Attribute: TypeAlias = "str | int | bool | None"

_VOID: Final = frozenset({"input", "br", "hr", "link", "meta", "img"})
_ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


class Html(str):
    """Markup made by this module; any other text is escaped when it is put in."""

    __slots__ = ()


def visible(text: str) -> str:
    """The text with everything that acts instead of being seen written as JSON writes it."""
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def text(child: Child) -> Html:
    """Anything that can stand in an element, escaped unless it is Html already."""
    if isinstance(child, Html):
        return child
    if child is None:
        return Html("")
    if isinstance(child, str | int | float):
        return Html(html.escape(visible(str(child)), quote=True))
    return Html("".join([text(one) for one in child]))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """One element; ``class_`` is class, ``data_x`` is data-x, ``True`` an attribute alone, ``None`` none."""
    given = "".join([_attribute(key, value) for key, value in attributes.items()])
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{text(children)}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value), quote=True)}"'
