"""The ComputeDomain (resource.nvidia.com/v1beta1) of a job on NVL72 racks: NVLink over nodes, for this job alone.

NVIDIA's DRA driver makes the ResourceClaimTemplate that it names, and gives each worker that claims from it a channel.
Source: https://github.com/NVIDIA/k8s-dra-driver-gpu and NeMo-RL's infra/, which sets numNodes to 0: as many as come.
"""

from __future__ import annotations

from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest


def build_compute_domain(job: Job) -> Manifest:
    """The ComputeDomain of the job."""
    name = names.compute_domain(job.name)
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": build_metadata(job, name),
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}},
    }
