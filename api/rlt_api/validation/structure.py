"""Conversion of pydantic's errors to findings with path, value, message and the nearest valid value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rlt_api.findings.finding import MAX_LENGTH, Finding, child_path, printable, remove, use
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.findings.text_values import describe_pattern, read_number
from rlt_api.frameworks import foreign_names
from rlt_api.model import ApiModel
from rlt_api.schema.model_schema import list_fields, walk_leaves

MAX_FINDINGS = 100
"""Maximum number of findings about the structure of one manifest."""


def find_nearest_name(name: str, names: list[str]) -> str | None:
    """Return the name that was probably meant, whether in snake_case or in camelCase."""
    by_bare_name = {_bare(each): each for each in names}
    bare = _bare(name[:MAX_LENGTH])
    nearest = find_nearest_word(bare, by_bare_name, max_distance=max(1, len(bare) // 3))
    return by_bare_name.get(bare) or by_bare_name.get(nearest or "")


def report_unknown_field(
    path: str, name: str, known: list[str], elsewhere: list[str] | None = None, rule: str = "schema"
) -> Finding:
    """Build the finding for an unknown field; `known` are its siblings, `elsewhere` the paths of all fields."""
    bare = _bare(name)
    here = {_bare(each): each for each in known}.get(bare)
    there = [each for each in elsewhere or [] if _bare(each.rpartition(".")[2]) == bare]
    foreign = foreign_names.find_field(name, path) if elsewhere else None
    meant = here or foreign or (there[0] if len(there) == 1 else None) or find_nearest_name(name, known)
    if meant is None:
        fix = f"remove it; known fields: {', '.join(sorted(known)) or 'none'}"
        return Finding(path, printable(name), "is not a field", fix, rule=rule, edits=remove(path))
    place = meant if meant.startswith("spec.") else child_path(path.removesuffix(child_path("", name)), meant)
    return Finding(path, printable(name), "is not a field", f"did you mean {meant}?", rule=rule, involved=(place,))


def convert_errors(error: ValidationError, model: type[ApiModel], path: str) -> Iterator[Finding]:
    """Yield a finding for each of pydantic's errors, up to MAX_FINDINGS."""
    for problem in error.errors(include_url=False)[:MAX_FINDINGS]:
        yield _convert_error(problem, model, path)


def _convert_error(problem: ErrorDetails, model: type[ApiModel], path: str) -> Finding:
    location = path
    value = printable(_json(problem["input"]))
    given = problem["input"]
    for part in problem["loc"]:
        location = child_path(location, part)
    context = problem.get("ctx", {})
    message = problem["msg"].replace("Input s", "s", 1)
    match problem["type"]:
        case "extra_forbidden":
            known = list_fields(model, problem["loc"][:-1])
            leaves = [leaf for leaf, _ in walk_leaves(model, path)]
            return report_unknown_field(location, str(problem["loc"][-1]), known, leaves)
        case "missing":
            return Finding(location, "none", "is required", "add it")
        case "literal_error" | "enum":
            return _report_unknown_choice(location, given, context["expected"])
        case "greater_than_equal" | "less_than_equal":
            (bound,) = context.values()
            return Finding(location, value, message, f"use {bound}", edits=use(location, bound))
        case "greater_than" | "less_than" as kind:
            (bound,) = context.values()
            side = "above" if kind == "greater_than" else "below"
            return Finding(location, value, message, f"use a value {side} {bound}")
        case "string_pattern_mismatch":
            message, fix, text = describe_pattern(context["pattern"], str(given))
            return Finding(location, value, message, fix, edits=use(location, text) if text else ())
        case "string_too_long" | "too_long":
            return Finding(location, value, message, f"use at most {context['max_length']}")
        case "int_type" | "int_from_float" if isinstance(given, float) and math.isfinite(given):
            choices = sorted({math.floor(given), math.ceil(given)})
            fix = f"use {' or '.join(map(str, choices))}" if abs(given) < 2**53 else "use an integer with fewer digits"
            edits = use(location, *choices) if abs(given) < 2**53 else ()
            return Finding(location, value, "must be an integer", fix, edits=edits)
        case "int_type" | "float_type" | "bool_type" as kind if isinstance(given, str):
            fix, number = read_number(given, kind.removesuffix("_type"))
            edits = use(location, number) if number is not None else ()
            return Finding(location, value, f"{message}, not text", printable(fix), edits=edits)
        case "string_type" if isinstance(given, float) and not isinstance(given, bool):
            fix = "write it in quotes, with all digits: YAML reads 2.10 as the number 2.1"
            if problem["loc"][-1] == "rayVersion":
                fix = 'write all three numbers of the version, such as "2.60.0"'
            return Finding(location, value, message, fix)
        case "string_type" if isinstance(given, bool | int):
            return Finding(
                location, value, message, f'write "{_json(given)}" in quotes', edits=use(location, _json(given))
            )
        case "string_type" if isinstance(given, dict) and list(given) == ["name"] and isinstance(given["name"], str):
            name = given["name"]
            return Finding(
                location, value, message, f"write the name alone: {printable(name)}", edits=use(location, name)
            )
        case "duplicate_key":
            field = child_path(location, context["index"])
            return Finding(field, str(context["name"]), message, "remove one of them", edits=remove(field))
        case "string_too_short" | "too_short":
            return Finding(location, value, message, "add what is missing, or remove the field")
        case _:
            what = {"dict_type": "an object", "list_type": "a list", "model_type": "an object"}.get(problem["type"])
            return Finding(location, value, message, f"write {what or 'a value of this type'}")


def _report_unknown_choice(location: str, given: object, expected: str) -> Finding:
    """Build the finding for a value that is none of the choices. `expected` is pydantic's list of them, in words."""
    value = printable(_json(given))
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    algorithm, others = foreign_names.ESTIMATORS.get(str(given).lower(), (None, ""))
    if not isinstance(given, str) and _json(given) in choices:  # a version without quotes
        fix = f'write "{_json(given)}" in quotes'
        edits = use(location, _json(given))
    elif algorithm in choices:
        fix = f"use {algorithm}{f', with {others}' if others else ''}"
        edits = use(location, algorithm)
    else:
        is_number = str(given).replace(".", "").isdigit()  # a version, not a misspelled word
        meant = None if is_number else find_nearest_name(str(given), choices)
        fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(choices)}"
        edits = use(location, meant) if meant else use(location, *choices) if is_number else ()
    return Finding(location, value, f"must be {expected}", fix, edits=edits)


def _json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace("pergpu", "perdevice")
