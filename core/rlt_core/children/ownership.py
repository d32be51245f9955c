"""The metadata of every child: labels, and an owner reference so that Kubernetes deletes it with the job."""

from __future__ import annotations

from rlt_api.schema.crd import GROUP, KIND, VERSION
from rlt_core import names
from rlt_core.job import Job, Manifest


def build_metadata(job: Job, name: str) -> Manifest:
    """Build the metadata of the child `name`."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": names.labels(job.name),
        "ownerReferences": [
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": KIND,
                "name": job.name,
                "uid": job.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
