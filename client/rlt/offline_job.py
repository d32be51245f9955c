"""A job built from files, as the operator reads it, with placeholders for the fields that the API server sets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlt.validation import ValidatedFiles, get_name
from rlt_api.findings.masking import mask_json
from rlt_api.spec.runtime import resolve
from rlt_api.status.job_status import RuntimeSnapshot
from rlt_core import names
from rlt_core.children.build import build_children
from rlt_core.children.network_policy import NetworkAccess
from rlt_core.earlier_job import build_step_folder, resume_from, waits_for_earlier_job
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job, Manifest, parse_job
from rlt_core.network_status import build_network_status

DEFAULT_ACCESS = NetworkAccess("rlt-system", ("monitoring",))
"""The namespaces of the documented installation and of the chart's networkPolicy.metricsNamespaces."""
PLACEHOLDER_UID = "00000000-0000-0000-0000-000000000000"


def build_offline_job(
    manifest: Mapping[str, Any], files: ValidatedFiles, *, namespace: str | None = None, uid: str = PLACEHOLDER_UID
) -> Job:
    """Build the job of a valid manifest. `files` contains it and its runtime."""
    name = files.get_runtime_name(manifest)
    metadata = {**manifest["metadata"], "name": get_name(manifest), "uid": uid, "generation": 1, "resourceVersion": "0"}
    metadata.setdefault("namespace", namespace or "default")
    snapshot = RuntimeSnapshot(name=name, generation=1, spec=dict(files.runtimes[name])) if name else None
    return parse_job({**manifest, "metadata": metadata, "status": {}}, snapshot)


def detect_network(job: Job, nodes: Sequence[Node]) -> Job:
    """The job with the status.network that the operator decides for these nodes."""
    assert job.spec
    return replace(job, status=job.status.model_copy(update={"network": build_network_status(job, job.spec, nodes)}))


def render_children(job: Job) -> list[Manifest]:
    """The manifests that the operator creates for a valid job, with plain-text secrets masked.

    The path of checkpoint.resumeFromJob's checkpoint is a placeholder.
    """
    job = place_earlier_checkpoint(job)
    assert job.spec
    return [mask_json(manifest) for manifest in build_children(job, job.spec, DEFAULT_ACCESS)]


def place_earlier_checkpoint(job: Job) -> Job:
    """The job with a placeholder for the path of checkpoint.resumeFromJob's checkpoint."""
    assert job.spec
    if not waits_for_earlier_job(job.spec):
        return job
    other = job.spec.checkpoint.resume_from_job or ""
    checkpoints = f"{names.run_directory(other, uid=PLACEHOLDER_UID, spec=job.spec)}/checkpoints"
    return resume_from(job, build_step_folder(job.spec.framework.type, checkpoints, step=0))


def compute_content_id(manifest: Mapping[str, Any], files: ValidatedFiles) -> str:
    """Eight hexadecimal characters that depend on the job's spec and its runtime alone."""
    spec = resolve(manifest["spec"], files.runtimes.get(files.get_runtime_name(manifest) or ""))
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8]
