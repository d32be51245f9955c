"""Whether the installed CRDs have every field that this version of the operator reads and writes.

Helm never upgrades CRDs. The API server drops a field of a job that an old CRD lacks, and rejects a status with one.
An upgrade changes what the API server returns for an unchanged job.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from rlt_api.schema.crd import GROUP, PLURAL, RUNTIME_PLURAL, VERSION, build_job_crd, build_runtime_crd
from rlt_core.crd_fields import list_fields, list_missing_fields
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics

INTERVAL_S = 30.0
"""Interval between checks. A check of an unchanged CRD requests its metadata only."""
MAX_FIELDS = 5
"""Maximum number of fields in the message."""
UPGRADE = "kubectl apply --server-side --force-conflicts -f charts/rlt-operator/crds/"

log = logging.getLogger("rlt_operator")


class CrdCheck:
    """The result of each CRD's latest check."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self.on_change: Callable[[], object] = lambda: None
        """Called when a CRD has changed, and INTERVAL_S later: an API server may still use the earlier schema."""
        self.checked = asyncio.Event()
        """Set after the first check. Objects that are read later than that are read again after a change."""
        self._crds: dict[str, Manifest] = {}
        """As the latest check has read them."""
        self._repeat_at = math.inf
        """When to call `on_change` again (time.monotonic)."""
        self._expected: dict[str, frozenset[str]] = {}
        self._messages: dict[str, str] = {}

    async def run(self) -> None:
        """Check now and every INTERVAL_S, until cancelled."""
        while True:
            try:
                await self.check()
            except Exception:  # the next check may succeed
                log.warning("cannot check the CRDs", exc_info=True)
            self.checked.set()
            await asyncio.sleep(INTERVAL_S)

    async def check(self) -> None:
        """Compare the installed CRDs with this version's, and log a change of the result."""
        self._expected = self._expected or await asyncio.to_thread(_list_expected)
        changed = False
        for name, expected in self._expected.items():
            try:
                crd = await self._api.get_large(f"{api_paths.CRDS}/{name}")
            except ApiError as error:
                log.warning("cannot read CustomResourceDefinition %s: %s", name, error)
                continue
            if crd:
                changed |= self.checked.is_set() and crd != self._crds.get(name)
                self._crds[name] = crd
            missing = list_missing_fields(list_fields(crd, VERSION), expected) if crd else []
            metrics.CRD_MISSING_FIELDS.labels(crd=name).set(len(missing))
            message = describe_missing_fields(name, missing)
            if message and message != self._messages.get(name):
                log.error(message)
            if message:
                self._messages[name] = message
            elif self._messages.pop(name, None):
                log.info("CustomResourceDefinition %s has all fields now", name)
        if changed or time.monotonic() >= self._repeat_at:
            self._repeat_at = time.monotonic() + INTERVAL_S if changed else math.inf
            self.on_change()

    async def check_and_describe(self) -> str | None:
        """Check now, and describe the result."""
        await self.check()
        return self.describe()

    def describe(self) -> str | None:
        """Which fields the installed CRDs lack, and how to upgrade them; None if they lack none."""
        return " ".join(self._messages.values()) or None


def describe_missing_fields(name: str, missing: list[str]) -> str | None:
    """The message for a CRD that lacks fields; None if it lacks none."""
    if not missing:
        return None
    more = f" and {len(missing) - MAX_FIELDS} more" if len(missing) > MAX_FIELDS else ""
    return (
        f"CustomResourceDefinition {name} is older than the operator: it lacks "
        f"{', '.join(missing[:MAX_FIELDS])}{more}. "
        f"Helm does not upgrade CRDs. Run with the chart of the operator's version: {UPGRADE}"
    )


def _list_expected() -> dict[str, frozenset[str]]:
    crds: Mapping[str, Mapping[str, Any]] = {PLURAL: build_job_crd(), RUNTIME_PLURAL: build_runtime_crd()}
    return {f"{plural}.{GROUP}": list_fields(crd, VERSION) for plural, crd in crds.items()}
