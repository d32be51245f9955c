"""The usage of deleted jobs: a ConfigMap for each namespace, in the operator's namespace. Pure.

The operator writes it and `rlt usage` reads it. It has the parts of a job's manifest that the usage depends on. Users
who may edit jobs cannot change it, because it is not in their namespace.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from rlt_core.job import Manifest
from rlt_core.names import CREATOR_ANNOTATION

RECORD_LABEL = "rlt.dev/usage-of"
"""On a record: the namespace of its jobs."""
MAX_JOBS = 5000
"""Deleted jobs of a namespace. Later ones replace those that held accelerators longest ago."""
MAX_BYTES = 700 * 2**10
"""Bytes of the compressed jobs: a ConfigMap has 1 MiB at most, in base64."""
MAX_TEXT_BYTES = 64 * 2**20
"""Bytes of the jobs after decompression: MAX_JOBS jobs of 31 days and with long names have half of it."""
MAX_NAME = 256
"""Characters of a user's name. Longer ones are cut."""
FIELD = "jobs.json.gz"
PRODUCT = "product "
"""Start of the fact in status.network.evidence that names the accelerator."""


def name_record(namespace: str) -> str:
    """Name of the ConfigMap with the deleted jobs of a namespace."""
    return f"rlt-usage-{namespace}"


def reduce_job(job: Mapping[str, Any]) -> Manifest | None:
    """The parts of a job that its usage depends on. None if it has held no accelerators."""
    status = job.get("status") or {}
    usage = status.get("usage")
    if not usage:
        return None
    metadata = {key: job["metadata"][key] for key in ("namespace", "name", "uid")}
    if creator := (job["metadata"].get("annotations") or {}).get(CREATOR_ANNOTATION):
        metadata["annotations"] = {CREATOR_ANNOTATION: creator[:MAX_NAME]}
    workers = ((job.get("spec") or {}).get("cluster") or {}).get("workers") or []
    resources = [name for each in workers if (name := (each.get("accelerator") or {}).get("resourceName"))]
    facts = [fact for fact in (status.get("network") or {}).get("evidence") or [] if fact.startswith(PRODUCT)]
    kept = {key: status[key] for key in ("model", "algorithm") if status.get(key)}
    days = [{**each, "by": _drop_zeros(each["by"])} for each in usage.get("days") or []]
    counted = {key: usage[key] for key in ("acceleratorSeconds", "observedTime")}
    return {
        "metadata": metadata,
        "spec": {"cluster": {"workers": [{"accelerator": {"resourceName": name}} for name in resources[:1]]}},
        "status": {
            **kept,
            "network": {"evidence": facts[:1]},
            "usage": {**counted, "by": _drop_zeros(usage["by"]), "days": days},
        },
    }


def merge_jobs(recorded: Iterable[Manifest], deleted: Iterable[Manifest]) -> list[Manifest]:
    """The recorded jobs with those that were deleted since. A job that is in both counts once, as it was deleted."""
    by_uid = {job["metadata"]["uid"]: job for job in (*recorded, *deleted)}
    return sorted(by_uid.values(), key=lambda job: str(job["status"]["usage"]["observedTime"]))[-MAX_JOBS:]


def build_record(operator: str, namespace: str, jobs: list[Manifest], replaced: Manifest | None) -> Manifest:
    """The ConfigMap in the namespace of the operator. It replaces exactly the version that was read.

    Without the jobs that held accelerators longest ago, if all are too large.
    """
    packed = _pack(jobs)
    while len(packed) > MAX_BYTES:
        kept = int(0.9 * len(jobs) * MAX_BYTES / len(packed))
        jobs = jobs[len(jobs) - kept :]
        packed = _pack(jobs)
    version = {"resourceVersion": replaced["metadata"]["resourceVersion"]} if replaced else {}
    metadata = {"name": name_record(namespace), "namespace": operator, "labels": {RECORD_LABEL: namespace}, **version}
    data = {FIELD: base64.b64encode(packed).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data}


def parse_record(config_map: Manifest | None) -> list[Manifest]:
    """The jobs of a record. None of a missing ConfigMap. Raises ValueError if the content is damaged."""
    if config_map is None:
        return []
    try:
        packed = base64.b64decode(config_map["binaryData"][FIELD])
        with gzip.open(io.BytesIO(packed)) as file:
            text = file.read(MAX_TEXT_BYTES + 1)
        if len(text) > MAX_TEXT_BYTES:
            raise ValueError(f"has more than {MAX_TEXT_BYTES} bytes")
        jobs: list[Manifest] = json.loads(text)["jobs"]
    except (KeyError, TypeError, EOFError, OSError, ValueError) as error:
        metadata = config_map["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        raise ValueError(f"ConfigMap {name}, key {FIELD}: cannot be read ({error}): restore or delete it") from error
    return jobs


def _pack(jobs: list[Manifest]) -> bytes:
    return gzip.compress(json.dumps({"jobs": jobs}, separators=(",", ":")).encode(), mtime=0)


def _drop_zeros(parts: Mapping[str, int]) -> dict[str, int]:
    return {name: seconds for name, seconds in parts.items() if seconds}
