"""Every child of a job, in the order in which they are made."""

from __future__ import annotations

from rlt_api.spec import RLTrainingJobSpec
from rlt_operator.children.attachment import network_of
from rlt_operator.children.claim import claim
from rlt_operator.children.compute_domain import compute_domain
from rlt_operator.children.config_map import config_map
from rlt_operator.children.gang import asks_kubernetes, gang
from rlt_operator.children.raycluster import ray_cluster
from rlt_operator.observation import Job, Manifest


def children(job: Job, spec: RLTrainingJobSpec) -> tuple[Manifest, ...]:
    """What `plan` applies for a job whose network is decided."""
    nvlink = (compute_domain(job),) if network_of(job).attach.compute_domain else ()
    volume = (claim(job, spec.storage),) if spec.storage.storage_class_name else ()
    together = (gang(job, spec),) if asks_kubernetes(spec) else ()
    return (config_map(job, spec), *volume, *nvlink, *together, ray_cluster(job, spec))
