"""Environment variables: misspelled names, values, reserved names, and the debugger."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from rlt_api.blocks.resources import EnvVar
from rlt_api.findings.finding import Finding, remove, use
from rlt_api.findings.kinds import exactly_one, misspelled
from rlt_api.findings.masking import MASK
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.rules.fault_tolerance import FAULT_TOLERANCE, NO_FAULT_TOLERANCE
from rlt_api.spec.job_spec import RLTrainingJobSpec

ENV = "spec.cluster.env"
GRACE = "spec.cluster.terminationGracePeriodSeconds"
REQUIRE = "spec.network.require"
MODE = "spec.observability.debugger"
PREFIXES = ("NCCL", "RCCL", "GLOO", "VLLM", "HF", "TORCH", "HIP", "HSA", "GPU", "CUDA", "TRANSFORMERS", "AMD", "ROCR")
"""Prefixes of the names in known_environment.txt."""
RESERVED_NAMES = {
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        "is set by the device plugin and Ray for each process (ray#52701, ray#51104)",
    ),
    **dict.fromkeys(
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
        "must differ in each process, and would be the same in all pods",
    ),
    **dict.fromkeys(
        ("RAY_ADDRESS", "RAY_IP", "RAY_PORT", "FQ_RAY_IP", "RAY_CLUSTER_NAME", "REDIS_PASSWORD"),
        "is set by KubeRay to the address of the head",
    ),
    **dict.fromkeys(
        ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"), "is set by the operator (spec.security.rayToken)"
    ),
    **dict.fromkeys(FAULT_TOLERANCE, NO_FAULT_TOLERANCE),
}
"""Name that a user must not set -> the reason."""
WITHOUT_RDMA = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "socket"}
"""Variables and their values, in lower case, with which NCCL uses TCP."""
DEBUGGER = ("RAY_DEBUG", "RAY_DEBUG_POST_MORTEM")
JOB_STOP_TIMEOUT = "RAY_JOB_STOP_WAIT_TIME_S"
"""Seconds from SIGTERM to SIGKILL for a stopped Ray job (ray/dashboard/modules/job/job_supervisor.py, Ray 2.60)."""


def validate_env_names(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Names must not be misspelled: libraries ignore unknown variables. Names unlike any known one are valid."""
    for index, variable in enumerate(spec.cluster.env):
        if meant := find_meant_name(variable.name):
            message = f"is not a variable of {meant.split('_')[0]}, which would ignore it"
            yield misspelled(f"{ENV}[{index}].name", variable.name, message, meant, rule="env-name")


def find_meant_name(name: str) -> str | None:
    """Return the known variable that a misspelled name probably means; None if the name is valid."""
    known = known_names()
    upper = name.upper()
    first = upper.partition("_")[0]
    similar = (find_nearest_word(first, [prefix], max_distance=len(prefix) > 3) for prefix in PREFIXES)
    if name in known or not any(similar):
        return None
    if upper in known:
        return upper
    max_distance = 2 if len(name) > 12 else 1 if len(name) > 6 else 0
    return find_nearest_word(upper, sorted(known), max_distance=max_distance)


@functools.cache
def known_names() -> frozenset[str]:
    """Return the names in known_environment.txt."""
    lines = Path(__file__).with_name("known_environment.txt").read_text(encoding="ascii").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def list_variables(spec: RLTrainingJobSpec) -> Iterator[tuple[str, EnvVar]]:
    """Yield the path and the value of each variable in the spec."""
    tools = spec.rollout.multi_turn.tools if spec.rollout.multi_turn else []
    lists = {
        ENV: spec.cluster.env,
        **{f"spec.rewards[{index}].env": reward.env for index, reward in enumerate(spec.rewards)},
        **{
            f"spec.rollout.multiTurn.tools[{index}].mcp.env": tool.mcp.env
            for index, tool in enumerate(tools)
            if tool.mcp is not None
        },
    }
    for path, variables in lists.items():
        for index, variable in enumerate(variables):
            yield f"{path}[{index}]", variable


def validate_env_values(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Each variable must have exactly one of value, secretKeyRef and configMapKeyRef."""
    for field, variable in list_variables(spec):
        given = [name for name in ("value", "secretKeyRef", "configMapKeyRef") if name in variable.to_json()]
        if len(given) != 1:
            yield exactly_one(field, given, of="value, secretKeyRef and configMapKeyRef", rule="env-value")


def validate_env_owners(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Variables that the device plugin, Ray or KubeRay set for each process must not be given."""
    for index, variable in enumerate(spec.cluster.env):
        if reason := RESERVED_NAMES.get(variable.name):
            field = f"{ENV}[{index}].name"
            edits = remove(f"{ENV}[{index}]")
            yield Finding(field, variable.name, reason, "remove it", rule="env-owner", edits=edits)


def validate_rdma_variables(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With network.require rdma, variables must not disable RDMA: the operator would hold the job."""
    if spec.network.require != "rdma":
        return
    for index, variable in enumerate(spec.cluster.env):
        if (variable.value or "").lower() == WITHOUT_RDMA.get(variable.name):
            field = f"{ENV}[{index}].value"
            value = f"{variable.name}={variable.value}"
            message = "disables RDMA, which network.require demands"
            fix = "remove it, or use network.require: any"
            edits = (*remove(f"{ENV}[{index}]"), *use(REQUIRE, "any"))
            yield Finding(field, value, message, fix, rule="rdma-env", involved=(REQUIRE,), edits=edits)


def validate_stop_timeout(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """RAY_JOB_STOP_WAIT_TIME_S must be a number of seconds, less than terminationGracePeriodSeconds: the pods end with
    that period."""
    grace = spec.cluster.termination_grace_period_seconds
    for index, variable in enumerate(spec.cluster.env):
        value = variable.value
        if variable.name != JOB_STOP_TIMEOUT or value is None:
            continue
        field = f"{ENV}[{index}].value"
        if not (value.isascii() and value.isdigit()):
            fix = "remove it: terminationGracePeriodSeconds sets it"
            edits = remove(f"{ENV}[{index}]")
            yield Finding(field, value, "is not a number of seconds", fix, rule="stop-timeout", edits=edits)
        elif int(value) > grace:
            message = f"is more than terminationGracePeriodSeconds {grace}, after which the pods end"
            fix = f"remove it, and use cluster.terminationGracePeriodSeconds: {value}"
            edits = ({f"{ENV}[{index}]": None, GRACE: int(value)},)
            yield Finding(field, value, message, fix, rule="stop-timeout", involved=(GRACE,), edits=edits)


def validate_masked_values(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A value must not be the mask that `rlt get` prints instead of a plain-text secret: the secret would be lost."""
    for field, variable in list_variables(spec):
        if variable.value == MASK:
            message = "is what rlt prints instead of a secret"
            yield Finding(f"{field}.value", MASK, message, "use secretKeyRef", rule="masked-value")


def validate_debugger(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Only one of Ray's distributed and legacy debuggers can be used (Ray's docs, "remove legacy flags")."""
    values = {variable.name: variable.value for variable in spec.cluster.env}
    indexes = {variable.name: index for index, variable in enumerate(spec.cluster.env)}
    mode = spec.observability.debugger
    given = [name for name in DEBUGGER if name in indexes]
    if mode != "none":
        for name in given:
            item = f"{ENV}[{indexes[name]}]"
            field = f"{item}.name"
            message = f"is set by observability.debugger {mode}"
            edits = remove(item, MODE)
            yield Finding(field, name, message, "remove one of them", rule="debugger", involved=(MODE,), edits=edits)
    elif len(given) == 2 and values["RAY_DEBUG"] == "legacy":
        field = f"{ENV}[{indexes['RAY_DEBUG_POST_MORTEM']}].name"
        message = "is for the distributed debugger, and RAY_DEBUG=legacy selects the other one"
        fix = "remove both, and set observability.debugger to ray or legacy"
        both = {f"{ENV}[{index}]": None for index in sorted((indexes[name] for name in given), reverse=True)}
        edits = tuple({**both, MODE: mode} for mode in ("ray", "legacy"))
        yield Finding(field, "RAY_DEBUG_POST_MORTEM", message, fix, rule="debugger", edits=edits)


RULES = (
    validate_env_names,
    validate_env_values,
    validate_env_owners,
    validate_rdma_variables,
    validate_stop_timeout,
    validate_masked_values,
    validate_debugger,
)
