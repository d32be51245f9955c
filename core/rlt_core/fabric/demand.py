"""What a job asks of nodes and network, and who of user and platform team has said it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.resources import EnvVar, Toleration
from rlt_api.rules.shared_memory import SharedMemory, shared_memory_of
from rlt_api.spec import RLTrainingJobSpec
from rlt_core.fabric.node_affinity import Requirement, Term

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
    declared: bool = False
    """Whether a node pool of the runtime has this accelerator: such nodes can be, even if none is alive."""
    node_selector: Mapping[str, str] | None = None
    node_affinity: tuple[Term, ...] | None = None
    """What the podTemplate requires of nodes; None where it requires nothing."""
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
    shared_memory: SharedMemory | None = None
    """What /dev/shm of a worker pod holds; None where its memory is not known."""
    run_as_user: int = 1000
    supplemental_groups: tuple[int, ...] = ()
    ptrace: bool = False
    ipc_lock: bool = False
    unconfined: bool = False
    privileged: bool = False


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MULTUS = "k8s.v1.cni.cncf.io/networks"
"""The annotation that names a pod's additional networks: https://github.com/k8snetworkplumbingwg/multi-net-spec"""


def demands_of(
    spec: RLTrainingJobSpec, job: Mapping[str, Any] | None = None, runtime: Mapping[str, Any] | None = None
) -> tuple[Demand, ...]:
    """The demands of the worker groups that take part in the collectives: those with accelerators, or else the first.

    `job` is the job's own spec as JSON; what only `spec` has came from the runtime. Without it everything counts as the
    user's. `runtime` is the runtime's spec as JSON, None where the job names none.
    """
    groups = [group for group in spec.cluster.workers if group.accelerator] or spec.cluster.workers[:1]
    pools = [pool.get("accelerator") or {} for pool in (runtime or {}).get("nodePools", [])]
    return tuple(_demand(spec, group, job, {str(pool.get("resourceName")) for pool in pools}) for group in groups)


def _demand(spec: RLTrainingJobSpec, group: WorkerGroup, job: Mapping[str, Any] | None, declared: Set[str]) -> Demand:
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
        declared=accelerator is not None and accelerator.resource_name in declared,
        node_selector={**group.node_selector, **template.node_selector},
        node_affinity=template.node_affinity,
        tolerations=(*group.tolerations, *template.tolerations),
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
        shared_memory=shared_memory_of(spec, group) if resources else None,
        run_as_user=security.run_as_user,
        supplemental_groups=tuple(security.supplemental_groups),
        ptrace=security.ptrace,
        ipc_lock=security.ipc_lock,
        unconfined=security.unconfined,
        privileged=security.privileged,
    )


def _value(variable: EnvVar) -> str:
    return SECRET if variable.value is None else variable.value


@dataclass(frozen=True)
class _Template:
    """What a podTemplate says of the network. The API server is its judge: what is out of shape here says nothing."""

    env: tuple[tuple[str, str], ...]
    resources: tuple[str, ...]
    networks_named: bool
    claims_made: bool
    node_selector: Mapping[str, str]
    node_affinity: tuple[Term, ...] | None
    tolerations: tuple[Toleration, ...]


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
        node_selector=_texts(_at(template, "spec", "nodeSelector")),
        node_affinity=_terms(_at(template, "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")),
        tolerations=tuple(_toleration(each) for each in _objects(_at(template, "spec", "tolerations"))),
    )


def _terms(value: Any) -> tuple[Term, ...] | None:
    if not isinstance(value, list):
        return None
    kinds = ("matchExpressions", "matchFields")
    return tuple(
        tuple(_requirement(each) for kind in kinds for each in _objects(term.get(kind))) for term in _objects(value)
    )


def _requirement(value: Mapping[str, Any]) -> Requirement:
    values = value.get("values")
    texts = tuple(map(str, values)) if isinstance(values, list) else ()
    return Requirement(str(value.get("key")), str(value.get("operator")), texts)


def _toleration(value: Mapping[str, Any]) -> Toleration:
    return Toleration.model_construct(
        key=value.get("key"),
        operator=value.get("operator", "Equal"),
        value=value.get("value"),
        effect=value.get("effect"),
    )


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, Mapping) else {}


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
