"""The ComputeDomain (resource.nvidia.com/v1beta1) of a job on NVL72 racks: multi-node NVLink for this job.

NVIDIA's DRA driver creates the ResourceClaimTemplate in `channel`, and allocates a channel to each worker that uses it.
Source: https://github.com/NVIDIA/k8s-dra-driver-gpu and NeMo-RL's infra/, which sets numNodes to 0 (no fixed number).
"""

from __future__ import annotations

from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest


def build_compute_domain(job: Job) -> Manifest:
    """Build the ComputeDomain of the job."""
    name = names.compute_domain(job.name)
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": build_metadata(job, name),
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}},
    }
