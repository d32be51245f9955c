"""Two versions of the operator: they ship other programs, render another ConfigMap, and record other fields.

The newer version adds a file to the ConfigMap, has another default, and records two fields of the status that the older
one does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.resolved_spec import build_resolved_spec
from rlt_core import job as jobs
from rlt_core import names
from rlt_core.children import build, config_map, programs
from rlt_core.job import Job, Manifest
from rlt_operator.reconcile import apply, plan
from rlt_operator.reconcile.status import carry_newer_fields

NEWER_FIELD = "newer"
"""The field of the status, and of status.currentAttempt, that only the newer version has."""


class Version:
    """The version of the operator whose code runs."""

    newer = False

    def use(self, newer: bool) -> None:
        """Let the code of one version run from now on."""
        if newer != self.newer:
            self.newer = newer
            programs.name_programs.cache_clear()


VERSION = Version()


@contextmanager
def two_versions() -> Iterator[None]:
    """Let VERSION decide what differs. The programs are short, so that they cost nothing."""

    def render_config_map(job: Job, spec: RLTrainingJobSpec) -> Manifest:
        manifest = config_map.build_config_map(job, spec)
        if not VERSION.newer:
            return manifest
        data = {**manifest["data"], "newer.json": "{}"}
        annotations = {names.HASH_ANNOTATION: config_map.compute_hash(config_map.digest_data(data))}
        return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}, "data": data}

    def resolve(*arguments: Any) -> dict[str, Any]:
        resolved = build_resolved_spec(*arguments)
        return {**resolved, "training": {**resolved["training"], "learningRate": 0.25}} if VERSION.newer else resolved

    def record(job: Job, status: Manifest) -> Manifest:
        carried = carry_newer_fields(job, status)
        if not VERSION.newer:
            return carried
        attempt = carried.get("currentAttempt")
        recorded = {"currentAttempt": {**attempt, NEWER_FIELD: attempt["rayClusterUid"]}} if attempt else {}
        return {**carried, **recorded, NEWER_FIELD: True}

    def build_archive() -> bytes:
        return b"newer" if VERSION.newer else b"older"

    with ExitStack() as stack:
        for module, name, replacement in (
            (programs, "build_archive", build_archive),
            (build, "build_config_map", render_config_map),
            (plan, "build_config_map", render_config_map),
            (jobs, "build_resolved_spec", resolve),
            (apply, "carry_newer_fields", record),
        ):
            stack.enter_context(mock.patch.object(module, name, replacement))
        stack.callback(programs.name_programs.cache_clear)
        stack.callback(VERSION.use, newer=False)
        programs.name_programs.cache_clear()
        yield
