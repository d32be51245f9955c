"""The ConfigMap of a job, which its pods mount: the training config, and what the preflight checks expect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.children.preflight_file import TRIAL_DIRECTORY, build_expected, has_preflight, has_trial
from rlt_core.children.program import build_run
from rlt_core.children.programs import build_programs_source
from rlt_core.job import Job, Manifest
from rlt_pod.preflight.expected import EXPECTED_FILE, dump_expected


def build_config_map(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the ConfigMap of a job."""
    framework = get_framework(spec)
    run = build_run(job, spec)
    data = framework.build_files(spec, run)
    if has_trial(spec):
        data |= framework.build_trial_files(spec, replace(run, directory=f"{run.directory}/{TRIAL_DIRECTORY}"))
    if has_preflight(spec):
        data[EXPECTED_FILE] = dump_expected(build_expected(job, spec))
    metadata = build_metadata(job, names.config_map(job.name))
    metadata["annotations"] = {names.HASH_ANNOTATION: compute_hash(digest_data(data))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def digest_data(data: Mapping[str, str]) -> dict[str, str]:
    """Key -> digest of a ConfigMap's data."""
    return {key: sha256(value.encode()).hexdigest() for key, value in data.items()}


def compute_hash(digests: Mapping[str, str]) -> str:
    """Compute the value of HASH_ANNOTATION, which shows whether the data has changed since."""
    return sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]


def build_config_volume(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the projected volume of CONFIG_DIRECTORY: the files of the ConfigMap, and the programs."""
    framework = get_framework(spec)
    files = [*framework.files, *(framework.trial_files if has_trial(spec) else ())]
    files += [EXPECTED_FILE] if has_preflight(spec) else []
    items = [{"key": file, "path": file} for file in files]  # not the keys that a user may add
    config = [{"configMap": {"name": names.config_map(job.name), "items": items}}] if items else []
    return {"sources": [*config, build_programs_source()]}
