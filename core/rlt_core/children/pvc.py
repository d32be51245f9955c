"""The PersistentVolumeClaim of a job with storage.storageClassName.

The job does not own it: checkpoints and the final model remain after the job, and a new job of the same name uses it.
`kubectl delete pvc -l rlt.dev/job=NAME` deletes it.
"""

from __future__ import annotations

from rlt_api.blocks.storage import Storage
from rlt_core import names
from rlt_core.job import Job, Manifest


def build_pvc(job: Job, storage: Storage) -> Manifest:
    """Build the PVC. It is ReadWriteMany: pods on all nodes write to it."""
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
