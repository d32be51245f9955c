"""What a job asks of nodes and network, and who of user and platform team has said it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlt_api.blocks.resources import EnvVar, Toleration
from rlt_api.model import quantity_value
from rlt_api.spec import RLTrainingJobSpec

SECRET = "(from a Secret or ConfigMap)"
"""Stands for a value that the operator does not read."""


@dataclass(frozen=True)
class Demand:
    """One worker group's part of a resolved spec. What the runtime gave is the admin's, the rest the user's."""

    resource: str | None = None
    """Extended resource of the accelerator; None for jobs on CPUs."""
    count: int = 0
    """Accelerators of one worker pod."""
    workers: int = 1
    node_selector: Mapping[str, str] | None = None
    tolerations: tuple[Toleration, ...] = ()
    user_env: tuple[tuple[str, str], ...] = ()
    admin_env: tuple[tuple[str, str], ...] = ()
    require: str = "any"
    """any, rdma or tcp."""
    profile: str | None = None
    """A profile by name instead of the one that the facts choose."""
    attach: str | None = None
    """podNetwork, hostNetwork, multus or dra; None for the profile's own."""
    socket_interface: str | None = None
    hcas: tuple[str, ...] = ()
    admin_fields: frozenset[str] = frozenset()
    """Which of socket_interface and hcas the runtime gave."""
    other_resources: tuple[str, ...] = ()
    """Extended resources in the group's podTemplate."""
    memory: int = 0
    """Bytes of a worker pod, /dev/shm in it. 0: not known."""
    shared_memory: int | None = None
    """Bytes of /dev/shm that the job gives itself."""
    parameters: float | None = None
    """Parameters of the model, for /dev/shm."""
    run_as_user: int = 1000
    supplemental_groups: tuple[int, ...] = ()
    ptrace: bool = False
    ipc_lock: bool = False
    unconfined: bool = False
    privileged: bool = False


def demand_of(spec: RLTrainingJobSpec, job: Mapping[str, Any] | None = None) -> Demand:
    """The demand of a resolved spec. `job` is the job's own spec as JSON; what only `spec` has came from the runtime.

    Without `job` everything counts as the user's.
    """
    (group,) = spec.cluster.workers
    own = job if job is not None else spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    own_env = {each.get("name") for each in (own.get("cluster") or {}).get("env") or []}
    own_network = own.get("network") or {}
    given = spec.network.model_fields_set
    env = [(each.name, _value(each)) for each in spec.cluster.env]
    template_env, template_resources = _template(group.pod_template)
    accelerator, resources, security = group.accelerator, group.resources, spec.security
    aliases = {"socket_interface": "socketInterface", "hcas": "hcas"}
    return Demand(
        resource=accelerator.resource_name if accelerator else None,
        count=accelerator.count if accelerator else 0,
        workers=group.replicas,
        node_selector=dict(group.node_selector),
        tolerations=tuple(group.tolerations),
        user_env=(*((name, value) for name, value in env if name in own_env), *template_env),
        admin_env=tuple((name, value) for name, value in env if name not in own_env),
        require=spec.network.require,
        profile=spec.network.profile,
        attach=spec.network.attach if "attach" in given else None,
        socket_interface=spec.network.socket_interface,
        hcas=tuple(spec.network.hcas),
        admin_fields=frozenset(name for name, alias in aliases.items() if name in given and alias not in own_network),
        other_resources=template_resources,
        memory=int(quantity_value(resources.memory)) if resources else 0,
        shared_memory=int(quantity_value(resources.shared_memory)) if resources and resources.shared_memory else None,
        parameters=quantity_value(spec.model.parameters.replace("B", "G"))
        if spec.model and spec.model.parameters
        else None,
        run_as_user=security.run_as_user,
        supplemental_groups=tuple(security.supplemental_groups),
        ptrace=security.ptrace,
        ipc_lock=security.ipc_lock,
        unconfined=security.unconfined,
        privileged=security.privileged,
    )


def _value(variable: EnvVar) -> str:
    return SECRET if variable.value is None else variable.value


def _template(template: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Variables and extended resources that a podTemplate gives the worker container."""
    env: list[tuple[str, str]] = []
    resources: set[str] = set()
    for container in (template.get("spec") or {}).get("containers") or []:
        if container.get("name") != "ray-worker":
            continue
        env += [(each["name"], str(each.get("value", SECRET))) for each in container.get("env") or []]
        for amounts in (container.get("resources") or {}).values():
            resources |= {name for name in amounts if "/" in name}
    return tuple(env), tuple(sorted(resources))
