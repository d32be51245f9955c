"""Descriptions of the API's fields for `rlt explain` and `rlt init --full`, derived from the API types."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlt_api.frameworks import mapping
from rlt_api.frameworks.mapping import Setting
from rlt_api.model import ApiModel
from rlt_api.schema.crd import KIND, RUNTIME_KIND
from rlt_api.schema.model_schema import Schema, load_schema
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import RLRuntimeSpec
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_api.validation.rules import list_all_rules

MODELS: dict[str, type[ApiModel]] = {KIND: RLTrainingJobSpec, RUNTIME_KIND: RLRuntimeSpec}
SHORT_NAMES = {KIND: "rltj", RUNTIME_KIND: "rltr"}
"""As in the CRD."""
SPEC = "spec"
"""The root of the fields that a user sets."""
STATUS = "status"
"""The root of the fields that the operator writes. They are found by their whole path."""


@dataclass(frozen=True)
class Field:
    """One field of a manifest."""

    kind: str
    """RLTrainingJob or RLRuntime."""
    path: str
    """For example spec.cluster.workers[].replicas."""
    schema: Schema
    """Its JSON schema, with references resolved."""
    parents: tuple[Schema, ...]
    """The schemas of the enclosing blocks, the innermost last."""

    @property
    def type(self) -> str:
        """The type for people, for example `list of string`."""
        return _type(self.schema)

    @property
    def required(self) -> bool:
        """Whether the enclosing block requires it."""
        return bool(self.parents) and self.name in self.parents[-1].get("required", [])

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2].removesuffix("[]")

    @property
    def default(self) -> str | None:
        """The default as YAML. None if the schema has none: the description may still state one."""
        default = self.schema.get("default")
        return None if default in (None, [], {}) or _is_block(self.schema) else json.dumps(default)

    @property
    def bounds(self) -> str | None:
        """The allowed values."""
        return _bounds(self.schema) or (_bounds(self.schema["items"]) if "items" in self.schema else None)

    @property
    def description(self) -> str:
        """The description on one line."""
        return " ".join(str(self.schema.get("description", "")).split())

    @property
    def rules(self) -> list[str]:
        """The rules between this field and others: messages of CEL rules and docstrings of rule functions."""
        own = self.parents[-1] if self.parents else {}
        mentioned = [rule for rule in _rules(own) if re.search(rf"\bself\.{self.name}\b", rule["rule"])]
        messages = [rule["message"] for rule in [*_rules(self.schema), *mentioned]]
        if self.kind != KIND or self.fields or self.path.startswith(STATUS):
            return messages
        read = {_python_name(part) for part in self.path.replace("[]", "").split(".")[-2:]} - {"spec"}
        readers = [rule for rule in list_all_rules() if read <= set(rule.__code__.co_names)]
        return messages + [" ".join((rule.__doc__ or "").split()) for rule in readers]

    @property
    def elsewhere(self) -> dict[str, list[str]]:
        """verl, ROLL, environment or script -> the names of the field there, where it has one."""
        names = {
            table: [setting.key for setting in settings if self.kind == KIND and self.path in setting.fields]
            for table, settings in _tables().items()
        }
        return {table: keys for table, keys in names.items() if keys}

    @property
    def fields(self) -> list[Field]:
        """Its child fields."""
        return list(_children(self))


def spec_field(kind: str = KIND) -> Field:
    """The field `spec`, the root of all others."""
    return Field(kind, SPEC, load_schema(MODELS[kind]), ())


def status_field() -> Field:
    """The field `status` of a job."""
    return Field(KIND, STATUS, load_schema(RLTrainingJobStatus), ())


def complete_path(start: str) -> list[str]:
    """The paths of a job's fields that continue `start`, one level below its last dot."""
    block, _, last = start.rpartition(".")
    if not block:
        names = [SPEC, STATUS, *(field.name for field in spec_field().fields)]
        return [name for name in names if name.startswith(start)]
    try:
        fields = find_field(block).fields
    except ValueError:
        return []
    return [f"{block}.{field.name}" for field in fields if field.name.startswith(last)]


def find_field(path: str) -> Field:
    """Find a field by its path, by a unique end of it, or by its name in verl, ROLL or OpenRLHF.

    For example spec.rollout.topP, rollout.topP, topP or top_p; status.progress.step; rlruntime.spec.nodePools;
    actor_rollout_ref.rollout.top_p. Raises ValueError, with the nearest paths, if no field or several fields match.
    """
    kind, rest = _split_kind(path)
    wanted = _normalize(rest)
    if kind != RUNTIME_KIND and wanted.partition(".")[0] == STATUS:
        in_status = {_normalize(field.path): field for field in _walk(status_field())}
        if wanted in in_status:
            return in_status[wanted]
        raise ValueError(f"Field {path} does not exist{_suggest(wanted, in_status)}")
    kinds = [kind] if kind else list(MODELS)
    fields = [{_normalize(field.path): field for field in _walk(spec_field(each))} for each in kinds]
    for known in fields:
        if field := known.get(wanted) or known.get(f"spec.{wanted}"):
            return field
    for known in fields:
        ending = [field for key, field in known.items() if key.endswith(f".{wanted}")]
        if len(ending) == 1:
            return ending[0]
        if ending:
            raise ValueError(f"{rest} is ambiguous: {', '.join(field.path for field in ending)}")
    if field := _find_by_other_name(path):
        return field
    raise ValueError(f"Field {path} does not exist{_suggest(wanted, fields[0])}")


def _find_by_other_name(name: str) -> Field | None:
    """The field for a setting of verl, ROLL or OpenRLHF, for the end of its name, or for a block of settings.

    Raises ValueError if several fields match, or if the mapping gives a reason why no field does.
    """
    settings = [setting for table in _tables().values() for setting in table]
    exact = mapping.find(name, settings)
    named = [exact] if exact else [setting for setting in settings if setting.key.endswith(f".{name}")]
    named = named or [setting for setting in settings if setting.key.startswith(f"{name}.")]
    paths = list(dict.fromkeys(path for setting in named for path in setting.fields))
    if len(paths) == 1:
        return find_field(paths[0])
    if paths:
        raise ValueError(f"{name} is ambiguous: {', '.join(paths)}")
    if exact and exact.reason:
        raise ValueError(f"No field corresponds to {name}: {exact.reason.rstrip('.')}.")
    return find_field(exact.renamed) if exact and exact.renamed else None


def _tables() -> dict[str, tuple[Setting, ...]]:
    mapped = mapping.load_mapping()
    return {
        "verl": mapped.verl,
        "ROLL": mapped.roll,
        "OpenRLHF": mapped.openrlhf,
        "environment": mapped.environment,
        "script": mapped.launch,
    }


def _suggest(wanted: str, known: Mapping[str, Field]) -> str:
    close = difflib.get_close_matches(wanted, known, n=2, cutoff=0.7)
    if not close:  # compare the last parts of the paths
        longest_first = sorted(known, key=len, reverse=True)  # of several fields with a name, the shortest path counts
        last = {key.rpartition(".")[2]: key for key in longest_first}
        close = [last[name] for name in difflib.get_close_matches(wanted.rpartition(".")[2], last, n=2, cutoff=0.7)]
    return f"; did you mean {' or '.join(known[key].path for key in close)}?" if close else "."


def _split_kind(path: str) -> tuple[str | None, str]:
    path = path.removeprefix(".")  # as in jq and jsonpath
    head, _, rest = path.partition(".")
    for kind in MODELS:
        if head.lower() in (kind.lower(), f"{kind.lower()}s", SHORT_NAMES[kind]):
            return kind, rest or "spec"
    return None, path


def _normalize(path: str) -> str:
    return re.sub(r"\[\d*\]|_", "", path).lower()


def _walk(field: Field) -> Iterator[Field]:
    yield field
    for child in field.fields:
        yield from _walk(child)


def _children(field: Field) -> Iterator[Field]:
    inner = field.schema
    path = field.path
    if "properties" in inner.get("items", {}):
        inner = inner["items"]
        path = f"{path}[]"
    for name, schema in inner.get("properties", {}).items():
        yield Field(field.kind, f"{path}.{name}", schema, (*field.parents, inner))


def _python_name(field: str) -> str:
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
    bounds = [f"{sign} {node[key]}" for key, sign in _BOUNDS.items() if key in node and node[key] != _MAX_INT32]
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
_MAX_INT32 = 2**31 - 1
"""The bound of every integer field."""
