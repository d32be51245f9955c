"""Texts that were probably meant as another value: numbers in quotes, durations, percentages, quantities, names."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from pydantic import JsonValue

from rlt_api.model import AbsolutePath, DnsLabel, EnvName, ObjectName, Quantity, RegistryUrl, Url

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read_number(text: str, kind: str) -> tuple[str, JsonValue]:
    """Return the fix for a text where an integer, a number or a boolean (`kind`: int, float, bool) is required, and the
    value that is meant. None if it is not clear."""
    try:
        value = json.loads(text.lower() if kind == "bool" else text)
    except ValueError:
        value = None
    types = {"int": int, "float": int | float, "bool": bool}[kind]
    if isinstance(value, types) and isinstance(value, bool) == (kind == "bool") and math.isfinite(value):
        return f"write {text} without quotes", value
    if "$" in text:
        return "write the value: variables are not replaced", None
    if match := re.fullmatch(r"([0-9]+)\s*([smhd])", text.strip()):
        seconds = int(match[1]) * SECONDS[match[2]]
        return f"use {seconds}, the number of seconds", seconds
    if (match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", text.strip())) and kind == "float":
        share = float(match[1]) / 100
        return f"use {share:g}", share
    return {"int": "use an integer", "float": "use a number", "bool": "use true or false"}[kind], None


def describe_pattern(pattern: str, text: str) -> tuple[str, str, JsonValue]:
    """Return what a text must be that does not match a pattern of the API, the fix, and the value that is meant. None
    if it is not clear."""
    what, read = KNOWN.get(pattern, (f"must match {pattern}", lambda text: None))
    value = read(text.strip())
    if value is not None and re.fullmatch(pattern, value):
        return what, f"use {value}", value
    return what, "write a value of this form", None


def _read_quantity(text: str) -> str | None:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt])?i?(?:b|bytes?)?", text, re.IGNORECASE)
    if match is None:
        return None
    unit = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}.get((match[2] or "").lower(), "")
    return f"{match[1]}{unit}"


def _read_name(text: str) -> str | None:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or None


def _read_variable(text: str) -> str | None:
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def _read_url(text: str) -> str | None:
    return None if "://" in text else f"http://{text}"


def _read_registry(text: str) -> str | None:
    return f"oci://{text.removeprefix('https://').removeprefix('docker://')}"


def _read_version(text: str) -> str | None:
    return f"{text}.0" if re.fullmatch(r"[0-9]+\.[0-9]+", text) else text.removeprefix("v")


def _pattern(annotation: object) -> str:
    return str(annotation.__metadata__[0].pattern)  # type: ignore[attr-defined] # Annotated[str, StringConstraints]


KNOWN: dict[str, tuple[str, Callable[[str], str | None]]] = {
    _pattern(Quantity): ("must be a quantity such as 500m, 2 or 8Gi", _read_quantity),
    _pattern(DnsLabel): ("must consist of lower-case letters, digits and -", _read_name),
    _pattern(ObjectName): ("must be the name of an object: lower-case letters, digits, - and .", _read_name),
    _pattern(AbsolutePath): ("must be an absolute path in the pods: it begins with /", lambda text: None),
    _pattern(EnvName): ("must be the name of a variable: letters, digits and _", _read_variable),
    _pattern(Url): ("must be a URL that begins with http:// or https://", _read_url),
    _pattern(RegistryUrl): (
        "must be oci://HOST/NAME[:TAG], with a dot or a port in HOST and NAME in lower case",
        _read_registry,
    ),
    r"^[0-9]+\.[0-9]+\.[0-9]+$": ("must be a version such as 2.60.0", _read_version),
    r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$": (
        "must be MODULE:FUNCTION, such as scoring:compute_score",
        lambda text: None,
    ),
}
"""Pattern of the API -> what it requires, and the function that reads the value that is meant."""
