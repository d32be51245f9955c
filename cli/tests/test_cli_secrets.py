"""Plain-text secrets: a note at validation, and masked in what rlt prints."""

from __future__ import annotations

import json

import yaml
from click.testing import CliRunner, Result
from job_specs import BUILTIN, merged

from rlt.connection import prepare_output
from rlt_cli.main import cli

SECRET = "correct-horse"
SPEC = merged(BUILTIN, {"cluster": {"env": [{"name": "DB_PASSWORD", "value": SECRET}]}})
JOB = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": SPEC}


def rlt(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "-"], input=yaml.safe_dump(JOB))


def test_validate_warns_with_file_line_and_fix() -> None:
    done = rlt("validate")
    assert done.exit_code == 0
    (note,) = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert "spec.cluster.env[0].value: ***: DB_PASSWORD has a plain-text value" in note
    assert SECRET not in done.output


def test_render_prints_no_secret() -> None:
    done = rlt("render")
    assert done.exit_code == 0, done.stderr
    assert SECRET not in done.output
    assert "value: '***'" in done.stdout


def test_objects_of_the_cluster_are_masked() -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(JOB)}
    stored = {**JOB, "metadata": {"name": "sum", "annotations": applied, "managedFields": []}}
    printed = prepare_output(stored)
    assert SECRET not in json.dumps(printed)
    assert "managedFields" not in printed["metadata"]
    assert prepare_output(printed) == printed
