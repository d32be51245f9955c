"""Random valid and invalid manifests from the JSON schema: the same seed gives the same manifests."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from cases import CASES
from job_specs import BUILTIN, COMMAND

from rlt_api.model import ApiModel
from rlt_api.schema.crd import GROUP, KIND, RUNTIME_KIND, VERSION
from rlt_api.schema.model_schema import load_schema
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import RLRuntimeSpec

Json = Any

TEXTS = (
    "a", "0", "a-b", "a.b", "x" * 63, "7B", "2.60.0", "500m", "4Gi", "64Mi", "0.5Ti", "/mnt/a", "/a/../b", "mod:fn",
    "https://example.com/x", "rlt.dev/operator", "nvidia.com/gpu", "NCCL_DEBUG", "exact", "gsm8k", "eth0", "A_B", "k",
)  # fmt: skip
"""Texts that each match some pattern."""
STRANGE = (
    "", " ", "\0", "a\0b", "\x01", "a\nb", "\x7f", "\x85", "\u2028", "\ufeff", "\ufffd", "ü", "日本", "🙂", "e\u0301",
    "\u202ea", "null", "true", "8", "-1", "1e3", "../..", "'\"`$(x)", "{}", "a" * 64, "a" * 254, "ä" * 512, "x" * 1025,
)  # fmt: skip
NUMBERS: tuple[Json, ...] = (
    0, -1, 1, 2, 8.0, 8.5, 0.1, -0.0, 1e-9, 1e-320, 0.9999999999, 1.0000001, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1,
    2**63, 10**25, 1e308, -(2**63), 100.0, 1e9,
)  # fmt: skip
NAMES = ("sum", "a", "a" * 40, "a" * 41, "1st", "A", "a.b", "ä", "日本", "a b", "a\0b", "-a", "a-", "🙂", "a" * 300, "")
UNKNOWN = ("train_batch_size", "kl_coef", "lr", "foo", "", "日本", "a\0b", "a.b", "x y", "Model", "spec", "n", "\n")


def manifests(seed: int, count: int) -> Iterator[Json]:
    """Yield `count` manifests, most of RLTrainingJobs, none above the API server's limit of 3 MiB."""
    for index in range(count):
        made = manifest(Random(f"{seed} {index}"))
        yield made if len(json.dumps(made)) < 3_000_000 else manifest(Random(f"small {seed} {index}"))


def manifest(random: Random) -> Json:
    """Return one manifest: about three of ten are valid."""
    kind, model = (RUNTIME_KIND, RLRuntimeSpec) if random.random() < 0.15 else (KIND, RLTrainingJobSpec)
    spec = _runtime(random) if kind == RUNTIME_KIND else random_job(random)
    made = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": "sum"}, "spec": spec}
    for _ in range(random.choice((0, 0, 0, 0, 0, 1, 1, 1, 2, 8))):
        random.choice(MUTATIONS)(made, model, random)
    return made


def random_job(random: Random) -> Json:
    if random.random() < 0.2:
        spec = copy.deepcopy(random.choice(CASES).spec)
    else:
        spec = copy.deepcopy(dict(random.choice((BUILTIN, BUILTIN, COMMAND))))
    if random.random() < 0.3:
        spec["runtimeRef"] = {"name": "platform"}
    schema = load_schema(RLTrainingJobSpec)
    for _ in range(random.choice((0, 1, 2, 3, 10))):
        _give(spec, schema, random)
    return spec


def _runtime(random: Random) -> Json:
    spec: Json = {}
    for _ in range(random.randrange(8)):
        _give(spec, load_schema(RLRuntimeSpec), random)
    return spec


def _give(into: Json, schema: Json, random: Random) -> None:
    """Add one more leaf, somewhere."""
    name = random.choice(list(schema["properties"]))
    node = schema["properties"][name]
    if node.get("properties") and isinstance(into.get(name), dict):
        _give(into[name], node, random)
    else:
        into[name] = valid_value(node, random)


def valid_value(node: Json, random: Random, *, depth: int = 0) -> Json:
    """Return a valid value for the schema; patterns are matched by guessing."""
    if "enum" in node or "const" in node:
        return random.choice(node.get("enum") or [node["const"]])
    match node.get("type"):
        case "boolean":
            return random.random() < 0.5
        case "integer":
            low = node.get("minimum", 0)
            high = node.get("maximum", 100)
            return random.choice((low, high, random.randint(low, min(high, low + 64)), 8, 16, 32))
        case "number":
            low, high = (node.get(key, node.get(f"exclusive{key.capitalize()}", 1)) for key in ("minimum", "maximum"))
            return random.choice((high, low + (high - low) / 2, 0.5, 1))
        case ["integer", "string"] if random.random() < 0.5:
            return random.choice((1, 8, 2**31, 2**40))
        case "string" | ["integer", "string"]:
            fitting = [text for text in TEXTS if re.search(node.get("pattern", ""), text)]
            return random.choice(fitting or TEXTS)
        case "array":
            count = random.randint(node.get("minItems", 0), min(node.get("maxItems", 3), 3))
            return [valid_value(node["items"], random, depth=depth + 1) for _ in range(count)]
        case "object" if node.get("properties"):
            required = node.get("required", [])
            share = 0.4 / (depth + 1)
            return {
                name: valid_value(each, random, depth=depth + 1)
                for name, each in node["properties"].items()
                if name in required or random.random() < share
            }
    if isinstance(node.get("additionalProperties"), dict) and node["additionalProperties"]:
        return {random.choice(TEXTS): valid_value(node["additionalProperties"], random)}
    return _any(random, random.randrange(4))


def _any(random: Random, depth: int) -> Json:
    """Return a random JSON object."""
    if depth == 0:
        return {random.choice(TEXTS): random.choice((*NUMBERS, *STRANGE, None, True, [], {}))}
    return {random.choice((*TEXTS, *STRANGE)): random.choice(([_any(random, depth - 1)], _any(random, depth - 1)))}


def _places(value: Json) -> list[tuple[Json, Any]]:
    """Return every container with each of its keys or indexes."""
    found: list[tuple[Json, Any]] = []
    waiting = [value]
    while waiting:
        at = waiting.pop()
        for key in list(at) if isinstance(at, dict) else range(len(at)):
            found.append((at, key))
            if isinstance(at[key], dict | list):
                waiting.append(at[key])
    return found


def _replace(made: Json, random: Random, value: Json) -> None:
    if places := _places(made["spec"]):
        at, key = random.choice(places)
        at[key] = value


def wrong_type(made: Json, model: type[ApiModel], random: Random) -> None:
    _replace(made, random, random.choice((None, True, "8", 8, 8.5, [], {}, [None], {"a": None}, [[]], "")))


def wrong_number(made: Json, model: type[ApiModel], random: Random) -> None:
    places = [(at, key) for at, key in _places(made["spec"]) if isinstance(at[key], int | float)]
    at, key = random.choice(places or [(made["spec"], "suspend")])
    at[key] = random.choice(NUMBERS)


def wrong_text(made: Json, model: type[ApiModel], random: Random) -> None:
    places = [(at, key) for at, key in _places(made["spec"]) if isinstance(at[key], str)]
    at, key = random.choice(places or [(made["spec"], "managedBy")])
    at[key] = random.choice(STRANGE)


def unknown_field(made: Json, model: type[ApiModel], random: Random) -> None:
    objects = [made["spec"], *(at[key] for at, key in _places(made["spec"]) if isinstance(at[key], dict))]
    random.choice(objects)[random.choice(UNKNOWN)] = random.choice((1, None, "x", {}, []))


def missing(made: Json, model: type[ApiModel], random: Random) -> None:
    if places := _places(made["spec"]):
        at, key = random.choice(places)
        del at[key]


def twice(made: Json, model: type[ApiModel], random: Random) -> None:
    lists = [at[key] for at, key in _places(made["spec"]) if isinstance(at[key], list) and at[key]]
    for each in lists:
        each.append(copy.deepcopy(random.choice(each)))


def long_list(made: Json, model: type[ApiModel], random: Random) -> None:
    lists = [at[key] for at, key in _places(made["spec"]) if isinstance(at[key], list) and at[key]]
    for each in [each for each in lists if len(str(each)) < 10_000][:1]:
        each *= random.choice((2, 16, 17, 65, 257))


def deep(made: Json, model: type[ApiModel], random: Random) -> None:
    value: Json = random.choice((1, "x", None))
    for level in range(random.choice((5, 50, 93, 95, 97, 150, 300))):
        value = {"a": value} if level % 3 else [value]
    head = {"podTemplate": {"a": value}}
    if made["kind"] == KIND:
        made["spec"]["cluster"] = {**copy.deepcopy(BUILTIN["cluster"]), "head": head}
    else:
        made["spec"]["defaults"] = {"cluster": {"head": head}}


def large(made: Json, model: type[ApiModel], random: Random) -> None:
    if made["kind"] == KIND:
        pieces = random.choice((15, 16, 17, 18, 30))
        made["spec"]["framework"] = {"type": "command", "command": ["x" * 62000] * pieces}


def wide(made: Json, model: type[ApiModel], random: Random) -> None:
    if made["kind"] == KIND:
        many = {f"key-{index}": index for index in range(random.choice((255, 256, 257, 20000)))}
        head = {"podTemplate": random.choice((many, {"metadata": many}))}
        made["spec"]["cluster"] = {**copy.deepcopy(BUILTIN["cluster"]), "head": head}


def name(made: Json, model: type[ApiModel], random: Random) -> None:
    made["metadata"] = {random.choice(("name", "name", "name", "generateName")): random.choice(NAMES)}


def metadata(made: Json, model: type[ApiModel], random: Random) -> None:
    block = random.choice(("labels", "annotations", "labels", "foo"))
    key = random.choice((*TEXTS, *STRANGE, "example.com/a", "a/b/c", "/a", "UPPER.com/x"))
    made["metadata"][block] = random.choice(({key: random.choice((*TEXTS, *STRANGE, 1, None))}, None, [], "x"))


Mutation = Callable[[Json, type[ApiModel], Random], None]
MUTATIONS: list[Mutation] = [
    *[wrong_type, wrong_number, wrong_text, unknown_field, missing] * 6,
    *[twice, name, metadata] * 3,
    *[deep, long_list] * 2,
    wide,
    large,
]
