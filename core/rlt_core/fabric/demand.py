"""What a job requests of nodes and network, and whether the user or the platform team set it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.resources import Accelerator, EnvVar, Toleration
from rlt_api.model import quantity_value
from rlt_api.rules.shared_memory import SharedMemory, size_worker_shared_memory
from rlt_api.spec.accelerators import find_unsupported, find_vendor
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.fabric.node_affinity import Requirement, Term

UNREAD_VALUE = "(from a Secret or ConfigMap)"
"""Placeholder for a value that the operator does not read."""


@dataclass(frozen=True)
class Demand:
    """What one worker group of a resolved spec requests. Fields from the runtime are the admin's, others the user's."""

    resource: str | None = None
    """Extended resource of the accelerator. None for jobs on CPUs."""
    count: int = 0
    """Accelerators per worker pod."""
    workers: int = 1
    declared: bool = False
    """Whether a node pool of the runtime has this accelerator. Such nodes can exist later, even if none exists now."""
    node_selector: Mapping[str, str] | None = None
    node_affinity: tuple[Term, ...] | None = None
    """Required node affinity of the podTemplate. None if it has none."""
    tolerations: tuple[Toleration, ...] = ()
    user_env: tuple[tuple[str, str], ...] = ()
    admin_env: tuple[tuple[str, str], ...] = ()
    require: str = "any"
    """any, rdma or tcp."""
    profile: str | None = None
    """Name of a profile that replaces the one chosen from the facts."""
    attach: str | None = None
    """podNetwork, hostNetwork, multus or dra. None for the default of the profile."""
    socket_interface: str | None = None
    hcas: tuple[str, ...] = ()
    admin_fields: frozenset[str] = frozenset()
    """Which of socket_interface and hcas come from the runtime."""
    other_resources: tuple[str, ...] = ()
    """Extended resources in the group's podTemplate."""
    has_network_annotation: bool = True
    """Whether the podTemplate has the annotation of Multus."""
    has_resource_claims: bool = True
    """Whether the podTemplate has a resourceClaim."""
    shared_memory: SharedMemory | None = None
    """Size of /dev/shm of a worker pod. None if its memory is unknown."""
    accelerator_memory: int | None = None
    """Memory of one accelerator in bytes, as declared. None if it is not declared."""
    run_as_user: int = 1000
    supplemental_groups: tuple[int, ...] = ()
    ptrace: bool = False
    ipc_lock: bool = False
    unconfined: bool = False
    privileged: bool = False

    @property
    def network_resources(self) -> tuple[str, ...]:
        """Extended resources in the podTemplate that are not accelerators. The user requests adapters with them."""
        return tuple(name for name in self.other_resources if not find_vendor(name) and not find_unsupported(name))


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MULTUS_ANNOTATION = "k8s.v1.cni.cncf.io/networks"
"""The annotation with the additional networks of a pod: https://github.com/k8snetworkplumbingwg/multi-net-spec"""


def build_demands(
    spec: RLTrainingJobSpec, job: Mapping[str, Any] | None = None, declared: Sequence[str] = ()
) -> tuple[Demand, ...]:
    """Build the demands of the worker groups in the process group: those with accelerators, or else the first.

    `job` is the spec of the job as submitted, as JSON: fields that only `spec` has come from the runtime. Without it
    all fields are the user's. `declared` are the accelerators of the runtime's node pools.
    """
    groups = [group for group in spec.cluster.workers if group.accelerator] or spec.cluster.workers[:1]
    return tuple(_build_demand(spec, group, job, declared) for group in groups)


def _build_demand(
    spec: RLTrainingJobSpec, group: WorkerGroup, job: Mapping[str, Any] | None, declared: Sequence[str]
) -> Demand:
    submitted = job if job is not None else spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    user_variables = {each.get("name") for each in (submitted.get("cluster") or {}).get("env") or []}
    user_network = submitted.get("network") or {}
    env = [(each.name, _get_value(each)) for each in spec.cluster.env]
    template = _parse_template(group.pod_template)
    accelerator = group.accelerator
    resources = group.resources
    security = spec.security
    aliases = {"socket_interface": "socketInterface", "hcas": "hcas"}
    return Demand(
        resource=accelerator.resource_name if accelerator else None,
        count=accelerator.count if accelerator else 0,
        accelerator_memory=_get_memory(accelerator),
        workers=group.replicas,
        declared=accelerator is not None and accelerator.resource_name in declared,
        node_selector={**group.node_selector, **template.node_selector},
        node_affinity=template.node_affinity,
        tolerations=(*group.tolerations, *template.tolerations),
        user_env=(*((name, value) for name, value in env if name in user_variables), *template.env),
        admin_env=tuple((name, value) for name, value in env if name not in user_variables),
        require=spec.network.require,
        profile=spec.network.profile,
        attach=spec.network.attach,
        socket_interface=spec.network.socket_interface,
        hcas=tuple(spec.network.hcas),
        admin_fields=frozenset(
            name for name, alias in aliases.items() if getattr(spec.network, name) and not user_network.get(alias)
        ),
        other_resources=template.resources,
        has_network_annotation=template.has_network_annotation,
        has_resource_claims=template.has_resource_claims,
        shared_memory=size_worker_shared_memory(spec, group) if resources else None,
        run_as_user=security.run_as_user,
        supplemental_groups=tuple(security.supplemental_groups),
        ptrace=security.ptrace,
        ipc_lock=security.ipc_lock,
        unconfined=security.unconfined,
        privileged=security.privileged,
    )


def _get_memory(accelerator: Accelerator | None) -> int | None:
    return int(quantity_value(accelerator.memory)) if accelerator and accelerator.memory else None


def _get_value(variable: EnvVar) -> str:
    return UNREAD_VALUE if variable.value is None else variable.value


@dataclass(frozen=True)
class _Template:
    """The fields of a podTemplate that the fabric reads. Malformed ones are ignored: the API server rejects them."""

    env: tuple[tuple[str, str], ...]
    resources: tuple[str, ...]
    has_network_annotation: bool
    has_resource_claims: bool
    node_selector: Mapping[str, str]
    node_affinity: tuple[Term, ...] | None
    tolerations: tuple[Toleration, ...]


def _parse_template(template: Mapping[str, Any]) -> _Template:
    env: list[tuple[str, str]] = []
    resources: set[str] = set()
    for container in _list_objects(_get_path(template, "spec", "containers")):
        if container.get("name") != "ray-worker":
            continue
        env += [
            (str(each.get("name")), str(each.get("value", UNREAD_VALUE)))
            for each in _list_objects(container.get("env"))
        ]
        for kind in ("requests", "limits"):
            amounts = _get_path(container, "resources", kind)
            resources |= {name for name in amounts if "/" in name} if isinstance(amounts, Mapping) else set()
    return _Template(
        env=tuple(env),
        resources=tuple(sorted(resources)),
        has_network_annotation=_get_path(template, "metadata", "annotations", MULTUS_ANNOTATION) is not None,
        has_resource_claims=bool(_list_objects(_get_path(template, "spec", "resourceClaims"))),
        node_selector=_parse_texts(_get_path(template, "spec", "nodeSelector")),
        node_affinity=_parse_terms(
            _get_path(template, "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
        ),
        tolerations=tuple(parse_toleration(each) for each in _list_objects(_get_path(template, "spec", "tolerations"))),
    )


def _parse_terms(value: Any) -> tuple[Term, ...] | None:
    if not isinstance(value, list):
        return None
    kinds = ("matchExpressions", "matchFields")
    return tuple(
        tuple(_parse_requirement(each) for kind in kinds for each in _list_objects(term.get(kind)))
        for term in _list_objects(value)
    )


def _parse_requirement(value: Mapping[str, Any]) -> Requirement:
    values = value.get("values")
    texts = tuple(map(str, values)) if isinstance(values, list) else ()
    return Requirement(str(value.get("key")), str(value.get("operator")), texts)


def parse_toleration(value: Mapping[str, Any]) -> Toleration:
    """A toleration of a pod's spec, which the API server has validated or will validate."""
    return Toleration.model_construct(
        key=value.get("key"),
        operator=value.get("operator", "Equal"),
        value=value.get("value"),
        effect=value.get("effect"),
    )


def _parse_texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, Mapping) else {}


def _get_path(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _list_objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
