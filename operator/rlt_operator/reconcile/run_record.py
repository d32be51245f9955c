"""Writes the record of a run to a ConfigMap of its job."""

from __future__ import annotations

import asyncio
import logging

from rlt_core.job import Job, Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.run_record import build_record_map, mask_record
from rlt_operator.lifecycle.masking import list_secrets
from rlt_operator.lifecycle.run_record import FoundRecord
from rlt_operator.reconcile.children import NameTakenError, write_child

log = logging.getLogger("rlt_operator")


async def store_record(api: KubernetesApi, job: Job, record: FoundRecord) -> None:
    """Store the record, masked. A record that is invalid, and one that the API server rejects, is left out.

    Raises ApiError for a failure that a retry may fix, if the record has retries. The text of the head is parsed in
    another thread.
    """
    try:
        manifest = await asyncio.to_thread(_build, job, record.text)
        await write_child(api, job, manifest)
    except (ValueError, NameTakenError) as error:
        _log(job, error)
    except ApiError as error:
        if record.retries and not error.rejected:
            raise
        _log(job, error)


def _build(job: Job, text: str) -> Manifest:
    return build_record_map(job, mask_record(text, set(list_secrets(job))))


def _log(job: Job, error: Exception) -> None:
    log.warning("the record of the run is not kept: %s", error, extra={"job": f"{job.namespace}/{job.name}"})
