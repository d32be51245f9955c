"""The config.json of a job's model, if this machine has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rlt_api.findings.finding import Finding
from rlt_api.rules.model_families import validate_model_config
from rlt_api.spec.job_spec import RLTrainingJobSpec


def validate_local_model(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Validate the family of spec.model.path if it is a folder of this machine with a config.json."""
    file = Path(spec.model.path, "config.json") if spec.model and spec.model.path else None
    if file is None or not file.is_file():
        return
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield Finding(
            "spec.model.path",
            str(file.parent),
            f"config.json is unreadable: {error}",
            "use another folder",
            rule="model-family",
        )
        return
    yield from validate_model_config(spec, config)
