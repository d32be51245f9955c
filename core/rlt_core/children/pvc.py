"""The PersistentVolumeClaim of a job that names a storage class instead of a claim.

The job does not own it: checkpoints and the finished model outlive the job, and a job of the same name uses it again.
`kubectl delete pvc -l rlt.dev/job=NAME` deletes it.
"""

from __future__ import annotations

from rlt_api.blocks.storage import Storage
from rlt_core import names
from rlt_core.job import Job, Manifest


def build_pvc(job: Job, storage: Storage) -> Manifest:
    """The claim: all pods of the job write it, on whatever nodes they are."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.pvc(job.name),
            "namespace": job.namespace,
            "labels": names.labels(job.name),
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": storage.storage_class_name,
            "resources": {"requests": {"storage": storage.size}},
        },
    }
