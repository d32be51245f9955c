"""Environment variables: misspelt, given twice, not the user's to give, or against the debugger's mode."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from rlt_api.finding import Finding
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.spelling import nearest_word

ENV = "spec.cluster.env"
PREFIXES = ("NCCL", "RCCL", "GLOO", "VLLM", "HF", "TORCH")
"""First words of the names that known_environment.txt lists."""
NOT_YOURS = {
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        "the device plugin and Ray decide which devices a process sees (ray#52701, ray#51104)",
    ),
    **dict.fromkeys(
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
        "each process has its own: it would be the same in all pods",
    ),
    **dict.fromkeys(
        ("RAY_ADDRESS", "RAY_IP", "RAY_PORT", "FQ_RAY_IP", "RAY_CLUSTER_NAME", "REDIS_PASSWORD"),
        "KubeRay sets it to find the head",
    ),
}
"""Names that no pod can be given by its user, with the reason."""
DEBUGGER = ("RAY_DEBUG", "RAY_DEBUG_POST_MORTEM")


def names_are_spelt_right(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A misspelt name is ignored in silence by the library that it is for. Names near to no known one pass."""
    for index, variable in enumerate(spec.cluster.env):
        if meant := meant_name(variable.name):
            message = f"is no variable of {meant.split('_')[0]}, and would be ignored"
            yield Finding(f"{ENV}[{index}].name", variable.name, message, f"did you mean {meant}?", "env-name")


def meant_name(name: str) -> str | None:
    """The known variable that a misspelt name was probably meant to be."""
    known, upper = known_names(), name.upper()
    first = upper.partition("_")[0]
    if name in known or not any(nearest_word(first, [each], most=len(each) > 3) for each in PREFIXES):
        return None
    if upper in known:
        return upper
    most = 2 if len(name) > 12 else 1 if len(name) > 6 else 0
    return nearest_word(upper, sorted(known), most=most)


@functools.cache
def known_names() -> frozenset[str]:
    """The names in known_environment.txt."""
    lines = Path(__file__).with_name("known_environment.txt").read_text(encoding="ascii").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def each_has_one_value(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A value, or a reference to one."""
    for index, variable in enumerate(spec.cluster.env):
        given = [name for name in ("value", "secretKeyRef", "configMapKeyRef") if name in variable.to_json()]
        if len(given) != 1:
            message = "exactly one of value, secretKeyRef and configMapKeyRef is needed"
            value = " and ".join(given) or "none"
            yield Finding(f"{ENV}[{index}]", value, message, "give one of them", "env-value")


def names_are_the_users(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """What the device plugin, Ray and KubeRay give each process."""
    for index, variable in enumerate(spec.cluster.env):
        if reason := NOT_YOURS.get(variable.name):
            yield Finding(f"{ENV}[{index}].name", variable.name, reason, "leave it out", "env-owner")


def debugger_has_one_mode(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Ray's distributed debugger and its legacy one exclude each other (Ray's docs, "remove legacy flags")."""
    at = {variable.name: (index, variable.value) for index, variable in enumerate(spec.cluster.env)}
    mode, rule = spec.observability.debugger, "debugger"
    given = [name for name in DEBUGGER if name in at]
    if mode != "none":
        for name in given:
            message = f"observability.debugger {mode} sets it"
            fix = "leave one of them out"
            yield Finding(f"{ENV}[{at[name][0]}].name", name, message, fix, rule, ("spec.observability.debugger",))
    elif len(given) == 2 and at["RAY_DEBUG"][1] == "legacy":
        message = "excludes RAY_DEBUG=legacy: it is of the distributed debugger"
        fix = "leave both out, and give observability.debugger: ray or legacy"
        yield Finding(f"{ENV}[{at['RAY_DEBUG_POST_MORTEM'][0]}].name", "RAY_DEBUG_POST_MORTEM", message, fix, rule)


RULES = (names_are_spelt_right, each_has_one_value, names_are_the_users, debugger_has_one_mode)
