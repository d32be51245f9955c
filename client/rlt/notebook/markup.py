"""HTML and SVG as trees of elements. Texts and attributes are escaped when the tree is written."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that HTML documents must not contain, and surrogates, which UTF-8 cannot encode."""

Child = Element | str | None


def element(tag: str, *children: Child, **attributes: str | float) -> Element:
    """Build an element. None children are left out; `class_` and `stroke_width` are `class` and `stroke-width`."""
    built = Element(tag, {_name(key): _clean(str(value)) for key, value in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            built.append(child)
        elif child:
            _append_text(built, _clean(child))
    return built


def _append_text(built: Element, text: str) -> None:
    if len(built):
        built[-1].tail = (built[-1].tail or "") + text
    else:
        built.text = (built.text or "") + text


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _clean(text: str) -> str:
    return INVALID.sub("\ufffd", text)
