"""All children of a job."""

from __future__ import annotations

from rlt_api.rules.security import has_ray_token
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.children.attachment import get_network
from rlt_core.children.compute_domain import build_compute_domain
from rlt_core.children.config_map import build_config_map
from rlt_core.children.disruption_budget import build_disruption_budgets
from rlt_core.children.gang import build_gang, uses_kubernetes_gang
from rlt_core.children.network_policy import NetworkAccess, build_network_policy, uses_host_network
from rlt_core.children.pvc import build_pvc
from rlt_core.children.ray_token import build_ray_token
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.children.sandboxes import build_sandbox_policy, build_sandbox_service, get_sandbox
from rlt_core.job import Job, Manifest


def build_children(job: Job, spec: RLTrainingJobSpec, access: NetworkAccess | None = None) -> tuple[Manifest, ...]:
    """Build the children of a job that has status.network, in the order in which the operator applies them.

    `access` is None if the jobs get no NetworkPolicy. The Secret with the token has no data.
    """
    ray_cluster = build_ray_cluster(job, spec)
    config_map = build_config_map(job, spec)
    config = (config_map,) if config_map["data"] else ()
    compute_domain = (build_compute_domain(job),) if get_network(job).attach.compute_domain else ()
    pvc = (build_pvc(job, spec.storage),) if spec.storage.storage_class_name else ()
    gang = (build_gang(job, spec),) if uses_kubernetes_gang(spec) else ()
    budgets = build_disruption_budgets(job, spec)
    ray_token = (build_ray_token(job),) if has_ray_token(spec) else ()
    on_host_network = uses_host_network(ray_cluster)
    policy = (build_network_policy(job, access),) if access and not on_host_network else ()
    sandboxes: tuple[Manifest, ...] = ()
    if get_sandbox(spec):
        limits = (build_sandbox_policy(job, head_on_host_network=on_host_network),) if access else ()
        sandboxes = (build_sandbox_service(job), *limits)
    return (*config, *pvc, *compute_domain, *gang, *budgets, *ray_token, *policy, *sandboxes, ray_cluster)
