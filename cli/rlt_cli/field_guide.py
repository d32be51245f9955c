"""What a field of the API is, for people: made from the types alone."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlt_api import mapping
from rlt_api.crd import KIND, RUNTIME_KIND
from rlt_api.mapping import Setting
from rlt_api.model import ApiModel
from rlt_api.rules import BUILTIN, RULES
from rlt_api.runtime import RLRuntimeSpec
from rlt_api.schema import Schema, schema_of
from rlt_api.spec import RLTrainingJobSpec

MODELS: dict[str, type[ApiModel]] = {KIND: RLTrainingJobSpec, RUNTIME_KIND: RLRuntimeSpec}


@dataclass(frozen=True)
class Field:
    """One field of a manifest."""

    kind: str
    """RLTrainingJob or RLRuntime."""
    path: str
    """Such as spec.cluster.workers[].replicas."""
    schema: Schema
    """Its JSON schema, references resolved."""
    parents: tuple[Schema, ...]
    """The schemas of what it lies in, the innermost last."""

    @property
    def type(self) -> str:
        """In words."""
        return _type(self.schema)

    @property
    def required(self) -> bool:
        """Whether the block that it lies in must give it."""
        return bool(self.parents) and self.name in self.parents[-1].get("required", [])

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2].removesuffix("[]")

    @property
    def default(self) -> str | None:
        """The default as YAML has it; None if there is none, or if the description says it."""
        default = self.schema.get("default")
        return None if default in (None, [], {}) or _is_block(self.schema) else json.dumps(default)

    @property
    def bounds(self) -> str | None:
        """The values that are allowed."""
        return _bounds(self.schema) or (_bounds(self.schema["items"]) if "items" in self.schema else None)

    @property
    def description(self) -> str:
        """Its text, in one line."""
        return " ".join(str(self.schema.get("description", "")).split())

    @property
    def rules(self) -> list[str]:
        """What must hold between it and other fields, in words."""
        own = self.parents[-1] if self.parents else {}
        mentioned = [rule for rule in _rules(own) if re.search(rf"\bself\.{self.name}\b", rule["rule"])]
        messages = [rule["message"] for rule in [*_rules(self.schema), *mentioned]]
        if self.kind != KIND or self.fields:
            return messages
        read = {_attribute(part) for part in self.path.replace("[]", "").split(".")[-2:]} - {"spec"}
        readers = [rule for rule in (*BUILTIN, *RULES) if read <= set(rule.__code__.co_names)]
        return messages + [" ".join((rule.__doc__ or "").split()) for rule in readers]

    @property
    def elsewhere(self) -> dict[str, list[str]]:
        """What verl, ROLL, the environment and launch scripts call it; none that has no name for it."""
        names = {
            table: [setting.key for setting in settings if self.kind == KIND and self.path in setting.ours]
            for table, settings in _tables().items()
        }
        return {table: keys for table, keys in names.items() if keys}

    @property
    def fields(self) -> list[Field]:
        """The fields in it."""
        return list(_children(self))


def blocks(kind: str = KIND) -> Field:
    """The whole spec."""
    return Field(kind, "spec", schema_of(MODELS[kind]), ())


def find(path: str) -> Field:
    """The field that a person means: spec.rollout.topP, rollout.topP, topP or top_p; rlruntime.spec.nodePools; verl's
    actor_rollout_ref.rollout.top_p and ROLL's names.

    Raises ValueError with the nearest ones if there is none, or several.
    """
    kind, words = _kind(path)
    wanted = _plain(words)
    kinds = [kind] if kind else list(MODELS)
    fields = [{_plain(field.path): field for field in _all(blocks(each))} for each in kinds]
    for known in fields:
        if field := known.get(wanted) or known.get(f"spec.{wanted}"):
            return field
    for known in fields:
        ending = [field for key, field in known.items() if key.endswith(f".{wanted}")]
        if len(ending) == 1:
            return ending[0]
        if ending:
            raise ValueError(f"{words} may be any of: {', '.join(field.path for field in ending)}")
    if field := _by_their_name(path):
        return field
    raise ValueError(f"There is no field {path}{_meant(wanted, fields[0])}")


def _by_their_name(name: str) -> Field | None:
    """Our field for a setting of verl or ROLL, or for the end of its name. Raises ValueError if there are several, or
    a reason why there is none."""
    settings = [setting for table in _tables().values() for setting in table]
    exact = mapping.find(name, settings)
    named = [exact] if exact else [setting for setting in settings if setting.key.endswith(f".{name}")]
    paths = list(dict.fromkeys(path for setting in named for path in setting.ours))
    if len(paths) == 1:
        return find(paths[0])
    if paths:
        raise ValueError(f"{name} may be any of: {', '.join(paths)}")
    if exact and exact.reason:
        raise ValueError(f"There is no field for {name}: {exact.reason.rstrip('.')}.")
    return find(exact.now) if exact and exact.now else None


def _tables() -> dict[str, tuple[Setting, ...]]:
    mapped = mapping.mapping()
    return {"verl": mapped.verl, "ROLL": mapped.roll, "environment": mapped.environment, "script": mapped.launch}


def _meant(wanted: str, known: Mapping[str, Field]) -> str:
    close = difflib.get_close_matches(wanted, known, n=2, cutoff=0.7)
    if not close:  # a word without its path
        last = {key.rpartition(".")[2]: key for key in known}
        close = [last[word] for word in difflib.get_close_matches(wanted.rpartition(".")[2], last, n=2, cutoff=0.7)]
    return f"; did you mean {' or '.join(known[key].path for key in close)}?" if close else "."


def _kind(path: str) -> tuple[str | None, str]:
    head, _, rest = path.partition(".")
    for kind in MODELS:
        if head.lower() in (kind.lower(), f"{kind.lower()}s"):
            return kind, rest or "spec"
    return None, path


def _plain(path: str) -> str:
    return re.sub(r"\[\d*\]|_", "", path).lower()


def _all(field: Field) -> Iterator[Field]:
    yield field
    for child in field.fields:
        yield from _all(child)


def _children(field: Field) -> Iterator[Field]:
    inner, path = field.schema, field.path
    if "properties" in inner.get("items", {}):
        inner, path = inner["items"], f"{path}[]"
    for name, schema in inner.get("properties", {}).items():
        yield Field(field.kind, f"{path}.{name}", schema, (*field.parents, inner))


def _attribute(field: str) -> str:
    """The field's name in Python."""
    names = {info.alias: name for model in ApiModel.__subclasses__() for name, info in model.model_fields.items()}
    return names.get(field, field)


def _rules(node: Schema) -> list[dict[str, str]]:
    rules = node.get("x-kubernetes-validations", [])
    return [rule for rule in rules if "oldSelf" not in rule["rule"]]


def _is_block(node: Schema) -> bool:
    return bool(node.get("properties") or node.get("items", {}).get("properties"))


def _type(node: Schema) -> str:
    match node:
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"type": "object", "additionalProperties": {"type": _} as values}:
            return f"map of {_type(values)}"
    return str(node.get("type", "any"))


def _bounds(node: Schema) -> str | None:
    if choices := node.get("enum") or ([node["const"]] if "const" in node else None):
        return "one of " + ", ".join(map(str, choices))
    bounds = [f"{sign} {node[key]}" for key, sign in _BOUNDS.items() if key in node and node[key] != _LARGEST]
    if "pattern" in node:
        bounds.append(f"matches {node['pattern']}")
    return ", ".join(bounds) or None


_BOUNDS = {
    "minimum": ">=",
    "exclusiveMinimum": ">",
    "maximum": "<=",
    "exclusiveMaximum": "<",
    "minItems": "items >=",
    "maxItems": "items <=",
    "minLength": "characters >=",
    "maxLength": "characters <=",
}
_LARGEST = 2**31 - 1
