"""The recurring kinds of findings. The arguments are what differs; message, fix, edits and involved fields follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Required, TypedDict, Unpack

from pydantic import JsonValue

from rlt_api.findings.factors import join_or, nearest_divisors, nearest_multiples
from rlt_api.findings.finding import Edit, Finding, keep_one, remove, use


class Rule(TypedDict, total=False):
    """The rule that yields a finding, and the other fields that it reads."""

    rule: Required[str]
    involved: tuple[str, ...]


class Alternative(Rule, total=False):
    """Another way to resolve a finding. The fields of the edit are involved, if `involved` is not given."""

    or_set: Edit
    """The edit that does so."""
    instead: str
    """Its text. By default the edit as `use FIELD: VALUE`, or as `remove FIELD`."""


def show(value: object) -> str:
    """Return a value as a finding shows it: "none" for None, true or false for a boolean."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def superfluous(field: str, value: object, message: str, **rest: Unpack[Alternative]) -> Finding:
    """Build the finding for a field that must be removed."""
    return _resolve(field, value, message, "remove it", remove(field), rest)


def not_used(field: str, by: str, *, value: object = "given", **rest: Unpack[Alternative]) -> Finding:
    """Build the finding for a field that the selected type, mode or source does not use."""
    return superfluous(field, value, f"is not used by {by}", **rest)


def only_for(field: str, what: str, *, value: object = "given", **rest: Unpack[Alternative]) -> Finding:
    """Build the finding for a field of another type, mode or engine than the selected one."""
    return superfluous(field, value, f"is only for {what}", **rest)


def effect_only_with(field: str, other: str, *, value: object = "given", **rest: Unpack[Alternative]) -> Finding:
    """Build the finding for a field without effect, because `other` is not given."""
    return superfluous(field, value, f"has an effect only with {other}", **rest)


def replaceable(field: str, value: object, message: str, *values: JsonValue, **rest: Unpack[Alternative]) -> Finding:
    """Build the finding for a value that one of `values` must replace."""
    return _resolve(field, value, message, f"use {join_or(map(show, values))}", use(field, *values), rest)


def not_divisor(field: str, value: int, of: int, what: str, **rest: Unpack[Alternative]) -> Finding:
    """Build the finding for a size that does not divide `of`, described by `what`. The fix is the nearest divisors."""
    return replaceable(field, value, f"does not divide {what}", *nearest_divisors(value, of), **rest)


def not_multiple(field: str, value: int, of: int, what: str, **rest: Unpack[Alternative]) -> Finding:
    """Build the finding for a size that `of` does not divide. The fix is the nearest multiples."""
    return replaceable(field, value, f"is not divisible by {what}", *nearest_multiples(value, of), **rest)


def above(field: str, value: object, maximum: JsonValue, what: str, **rest: Unpack[Rule]) -> Finding:
    """Build the finding for a value above the maximum, described by `what`."""
    edits = use(field, maximum)
    return Finding(field, show(value), f"is above {what}", f"use {maximum} or less", edits=edits, **rest)


def below(field: str, value: object, minimum: JsonValue, message: str, **rest: Unpack[Rule]) -> Finding:
    """Build the finding for a value below the minimum."""
    return Finding(field, show(value), message, f"use {minimum} or more", edits=use(field, minimum), **rest)


def required(field: str, by: str, fix: str, *values: JsonValue, **rest: Unpack[Rule]) -> Finding:
    """Build the finding for a missing field. `values` are those in the fix."""
    return Finding(field, "none", f"is required by {by}", fix, edits=use(field, *values), **rest)


def needs(field: str, value: object, other: str, wanted: str, *, rule: str) -> Finding:
    """Build the finding for a field that requires the value `wanted` of another field."""
    message = f"requires {_without_spec(other)}: {wanted}"
    fix = f"use {wanted}, or remove {_name(field)}"
    edits = ({other: wanted}, {field: None})
    return Finding(field, show(value), message, fix, rule=rule, involved=(other,), edits=edits)


def conflict(field: str, value: object, other: str, *, rule: str, message: str = "") -> Finding:
    """Build the finding for two fields of which only one can be given."""
    message = message or f"cannot be combined with {_without_spec(other)}"
    edits = remove(field, other)
    return Finding(field, show(value), message, "remove one of them", rule=rule, involved=(other,), edits=edits)


def conflicts(field: str, value: object, others: Mapping[str, bool], *, rule: str) -> Iterator[Finding]:
    """Yield the conflicts of a field with each of the others that is given: path -> whether it is."""
    yield from (conflict(field, value, other, rule=rule) for other, is_given in others.items() if is_given)


def exactly_one(
    field: str, given: Sequence[str], *, of: str, value: str | None = None, **rest: Unpack[Rule]
) -> Finding:
    """Build the finding for a block in which not exactly one field is given. `value` replaces their names."""
    fix = "keep one of them" if given else "add one of them"
    edits = keep_one(*(f"{field}.{name}" for name in given))
    shown = value or " and ".join(given) or "none"
    return Finding(field, shown, f"must have exactly one of {of}", fix, edits=edits, **rest)


def misspelled(field: str, value: str, message: str, meant: str | None, *, rule: str, otherwise: str = "") -> Finding:
    """Build the finding for an unknown name. `otherwise` is the fix if no known name is similar."""
    fix = f"did you mean {meant}?" if meant else otherwise
    return Finding(field, value, message, fix, rule=rule, edits=use(field, meant) if meant else ())


def _resolve(field: str, value: object, message: str, fix: str, edits: tuple[Edit, ...], rest: Alternative) -> Finding:
    other = rest.get("or_set", {})
    instead = rest.get("instead") or " and ".join(_describe(path, wanted) for path, wanted in other.items())
    return Finding(
        field,
        show(value),
        message,
        f"{fix}, or {instead}" if instead else fix,
        rule=rest["rule"],
        involved=rest.get("involved", tuple(other)),
        edits=(*edits, other) if other else edits,
    )


def _describe(path: str, wanted: JsonValue) -> str:
    return f"remove {_name(path)}" if wanted is None else f"use {_name(path)}: {show(wanted)}"


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _without_spec(path: str) -> str:
    return path.removeprefix("spec.")
