"""What a job asks of nodes and network, and who of user and platform team has said it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.resources import EnvVar, Toleration
from rlt_api.model import quantity_value
from rlt_api.rules.model_size import model_size
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
    networks_named: bool = True
    """Whether the podTemplate has Multus' annotation."""
    claims_made: bool = True
    """Whether the podTemplate has a resourceClaim."""
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


MULTUS = "k8s.v1.cni.cncf.io/networks"
"""The annotation that names a pod's additional networks: https://github.com/k8snetworkplumbingwg/multi-net-spec"""


def demands_of(spec: RLTrainingJobSpec, job: Mapping[str, Any] | None = None) -> tuple[Demand, ...]:
    """The demands of the worker groups that take part in the collectives: those with accelerators, or else the first.

    `job` is the job's own spec as JSON; what only `spec` has came from the runtime. Without it everything counts as the
    user's.
    """
    groups = [group for group in spec.cluster.workers if group.accelerator] or spec.cluster.workers[:1]
    return tuple(_demand(spec, group, job) for group in groups)


def _demand(spec: RLTrainingJobSpec, group: WorkerGroup, job: Mapping[str, Any] | None) -> Demand:
    own = job if job is not None else spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    own_env = {each.get("name") for each in (own.get("cluster") or {}).get("env") or []}
    own_network = own.get("network") or {}
    given = spec.network.model_fields_set
    env = [(each.name, _value(each)) for each in spec.cluster.env]
    template = _template(group.pod_template)
    accelerator, resources, security = group.accelerator, group.resources, spec.security
    aliases = {"socket_interface": "socketInterface", "hcas": "hcas"}
    return Demand(
        resource=accelerator.resource_name if accelerator else None,
        count=accelerator.count if accelerator else 0,
        workers=group.replicas,
        node_selector=dict(group.node_selector),
        tolerations=tuple(group.tolerations),
        user_env=(*((name, value) for name, value in env if name in own_env), *template.env),
        admin_env=tuple((name, value) for name, value in env if name not in own_env),
        require=spec.network.require,
        profile=spec.network.profile,
        attach=spec.network.attach if "attach" in given else None,
        socket_interface=spec.network.socket_interface,
        hcas=tuple(spec.network.hcas),
        admin_fields=frozenset(name for name, alias in aliases.items() if name in given and alias not in own_network),
        other_resources=template.resources,
        networks_named=template.networks_named,
        claims_made=template.claims_made,
        memory=int(quantity_value(resources.memory)) if resources else 0,
        shared_memory=int(quantity_value(resources.shared_memory)) if resources and resources.shared_memory else None,
        parameters=parameters(spec),
        run_as_user=security.run_as_user,
        supplemental_groups=tuple(security.supplemental_groups),
        ptrace=security.ptrace,
        ipc_lock=security.ipc_lock,
        unconfined=security.unconfined,
        privileged=security.privileged,
    )


def parameters(spec: RLTrainingJobSpec) -> float | None:
    """Parameters of the model, as far as that is known."""
    size = model_size(spec.model) if spec.model else None
    return size.parameters if size else None


def _value(variable: EnvVar) -> str:
    return SECRET if variable.value is None else variable.value


@dataclass(frozen=True)
class _Template:
    """What a podTemplate says of the network. The API server is its judge: what is out of shape here says nothing."""

    env: tuple[tuple[str, str], ...]
    resources: tuple[str, ...]
    networks_named: bool
    claims_made: bool


def _template(template: Mapping[str, Any]) -> _Template:
    env: list[tuple[str, str]] = []
    resources: set[str] = set()
    for container in _objects(_at(template, "spec", "containers")):
        if container.get("name") != "ray-worker":
            continue
        env += [(str(each.get("name")), str(each.get("value", SECRET))) for each in _objects(container.get("env"))]
        for kind in ("requests", "limits"):
            amounts = _at(container, "resources", kind)
            resources |= {name for name in amounts if "/" in name} if isinstance(amounts, Mapping) else set()
    return _Template(
        env=tuple(env),
        resources=tuple(sorted(resources)),
        networks_named=_at(template, "metadata", "annotations", MULTUS) is not None,
        claims_made=bool(_objects(_at(template, "spec", "resourceClaims"))),
    )


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
