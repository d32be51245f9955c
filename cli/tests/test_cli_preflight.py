"""The job that rlt preflight submits. operator/tests/apiserver/test_cli_preflight.py runs the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from rlt_api.schema.crd import MAX_NAME_LENGTH
from rlt_api.validation.validate import validate_manifest
from rlt_cli.commands.preflight import build_preflight_job
from rlt_cli.main import cli

ARITHMETIC = Path(__file__).parents[2] / "examples/01-arithmetic-grpo.yaml"


def example(**spec: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = next(
        each for each in yaml.safe_load_all(ARITHMETIC.read_text()) if each["kind"] == "RLTrainingJob"
    )
    return {**manifest, "spec": {**manifest["spec"], **spec}}


LEVELS = [
    ({}, None, "basic"),
    ({"level": "full", "minBusBandwidth": 1.5}, None, "full"),
    ({"level": "none"}, None, "basic"),
    ({"level": "full"}, "basic", "basic"),
]


@pytest.mark.parametrize(("preflight", "option", "level"), LEVELS)
def test_the_job_ends_after_the_checks(preflight: dict[str, Any], option: str | None, level: str) -> None:
    job = build_preflight_job(example(preflight=preflight, suspend=True, failurePolicy={"maxRestarts": 3}), option)
    assert list(validate_manifest(job, {})) == []
    assert job["spec"]["preflight"] == {**preflight, "only": True, "level": level}
    assert (job["spec"]["suspend"], job["spec"]["failurePolicy"]["maxRestarts"]) == (False, 0)
    assert job["spec"]["cluster"] == example()["spec"]["cluster"]


def test_a_long_name_is_cut_to_the_maximum() -> None:
    manifest = example()
    long = build_preflight_job({**manifest, "metadata": {"name": "a" * MAX_NAME_LENGTH}}, None)
    assert len(long["metadata"]["name"]) == MAX_NAME_LENGTH
    assert list(validate_manifest(long, {})) == []
    assert build_preflight_job({**manifest, "metadata": {"name": "sum"}}, None)["metadata"]["name"] == "sum-preflight"


def test_two_jobs_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(yaml.safe_dump_all([example(), {**example(), "metadata": {"name": "other"}}]))
    done = CliRunner().invoke(cli, ["preflight", str(file)])
    assert done.exit_code == 1
    assert "2 RLTrainingJobs, and the checks need one." in done.stderr
