"""Which RLRuntime a job without runtimeRef has, and whether it must have one. Labels of its namespace decide.

Only administrators can change the labels of a namespace, as for Pod Security admission:
https://kubernetes.io/docs/concepts/security/pod-security-admission/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlt_api.findings.finding import Finding

DEFAULT_RUNTIME_LABEL = "rlt.dev/default-runtime"
"""Label of a namespace: name of the RLRuntime for jobs without runtimeRef. Empty: none."""
REQUIRE_RUNTIME_LABEL = "rlt.dev/require-runtime"
"""Label of a namespace: whether each job must have an RLRuntime. Every value but `false` means that it must."""


@dataclass(frozen=True)
class RuntimePolicy:
    """The policy for the jobs of a namespace."""

    default: str | None = None
    """Name of the RLRuntime for jobs without runtimeRef."""
    required: bool = False
    """Whether a job must have an RLRuntime."""
    unknown: bool = False
    """Whether another policy may apply, which cannot be read: what an RLRuntime may give is not missing."""


ANY_RUNTIME = RuntimePolicy()
"""The policy without labels: a job may have an RLRuntime."""


def parse_runtime_policy(labels: Mapping[str, str], cluster: RuntimePolicy = ANY_RUNTIME) -> RuntimePolicy:
    """The policy of a namespace with these labels. A label overrides the policy of the cluster."""
    default = labels.get(DEFAULT_RUNTIME_LABEL, cluster.default)
    required = labels[REQUIRE_RUNTIME_LABEL] != "false" if REQUIRE_RUNTIME_LABEL in labels else cluster.required
    return RuntimePolicy(default or None, required)


def add_default_runtime(spec: Mapping[str, Any], policy: RuntimePolicy) -> Mapping[str, Any]:
    """Return a job's spec with the default runtime as its runtimeRef, if it has none."""
    if policy.default is None or spec.get("runtimeRef") is not None:
        return spec
    return {**spec, "runtimeRef": {"name": policy.default}}


def validate_runtime_given(spec: Mapping[str, Any], policy: RuntimePolicy) -> Iterator[Finding]:
    """A job must have an RLRuntime if its namespace or the cluster requires one."""
    if policy.required and policy.default is None and spec.get("runtimeRef") is None:
        message = "is required: this namespace admits only jobs with an RLRuntime"
        fix = "name one that kubectl get rlruntimes lists"
        yield Finding("spec.runtimeRef", "none", message, fix, rule="runtime-required")
