"""A later version of the operator: a folder with a copy of its packages, and with what a release may change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
VERSION = "0.1.1"
PACKAGES = ("pod/rlt_pod", "api/rlt_api", "core/rlt_core", "operator/rlt_operator")

CHANGES = (
    (
        "rlt_api/blocks/training.py",
        '    learning_rate: LearningRate = 1e-6\n    """Learning rate of the optimizer."""\n',
        '    learning_rate: LearningRate = 2e-6\n    """Another default."""\n'
        '    look_ahead: Positive = 3\n    """A new field with a default."""\n'
        '    look_back: Positive | None = None\n    """A new field without a default."""\n',
    ),
    (
        "rlt_api/status/job_status.py",
        '    """The request to stop the program."""\n',
        '    """The request to stop the program."""\n'
        '    recorded_by: Word | None = None\n    """A new field of the status."""\n',
    ),
    (
        "rlt_operator/memory/attempts.py",
        '        "stop": verdict.stop_request or attempt.stop,\n',
        '        "stop": verdict.stop_request or attempt.stop,\n'
        f'        "recorded_by": "{VERSION}" if attempt.accepted_time else None,\n',
    ),
)
"""File, text and its replacement."""
GENERATE = """
import json
from rlt_api.schema.crd import build_job_crd, build_runtime_crd
from rlt_api.schema.model_schema import build_schema
from rlt_api.spec.job_spec import RLTrainingJobSpec as Spec
from rlt_api.status.job_status import RLTrainingJobStatus as Status
models = {model.__name__: build_schema(model) for model in (Spec, Status)}
print(json.dumps({"crds": [build_job_crd(), build_runtime_crd()], "schemas": models}))
"""


def build_later_version(folder: Path) -> list[dict[str, Any]]:
    """Write the packages to the folder. Returns the CRDs of the version."""
    for package in PACKAGES:
        source = ROOT / package
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, replacement in CHANGES:
        path = folder / file
        before = path.read_text()
        assert before.count(text) == 1, f"{file} has not exactly one {text!r}"
        path.write_text(before.replace(text, replacement))
    (folder / "rlt_pod" / "later.py").write_text('"""A program that the version before lacks."""\n')
    metadata = folder / f"rlt_operator-{VERSION}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: rlt-operator\nVersion: {VERSION}\n")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    output = subprocess.run([sys.executable, "-c", GENERATE], env=environment, stdout=subprocess.PIPE, check=True)
    generated = json.loads(output.stdout)
    for model, schema in generated["schemas"].items():
        (folder / "rlt_api" / "generated" / f"{model}.json").write_text(json.dumps(schema))
    crds: list[dict[str, Any]] = generated["crds"]
    return crds


def execute_operator() -> None:
    """Replace this process by `rlt-operator` with the packages in PYTHONPATH. It reads sys.argv."""
    os.execv(sys.executable, [sys.executable, "-m", "rlt_operator", *sys.argv[1:]])
