"""rlt eval: the job that it creates, and its errors, with a stub of the connection to the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import observed as o
import pytest
import yaml
from click.testing import CliRunner, Result
from job_specs import VERL, elastic, merged, separate_engines

from rlt.errors import InvalidJobError, UnavailableError
from rlt.evaluations import build_evaluation_job
from rlt.kube_context import KubeContext
from rlt_api.validation.validate import validate_job
from rlt_cli.main import cli
from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError

SUITES = [
    {"name": "sums", "every": 5, "beforeTrain": True, "promoteIf": {"gainAbove": 0}},
    {"name": "digits", "every": 5, "data": {"preset": "digits"}, "responsesPerPrompt": 4, "temperature": 1.0},
]
TRAINED = merged(
    o.SPEC,
    {
        "evaluation": SUITES,
        "storage": {"storageClassName": "shared", "size": "10Gi", "mountPath": "/data"},
        "checkpoint": {"saveFreq": 5},
        "training.seed": 3,
        "training.learningRate": 1e-4,
        "framework.prepare": [{"name": "data", "command": ["python3", "get.py"]}],
        "observability.recordSteps": [1],
        "publish": [{"hub": "lab/sums"}],
    },
)
FOLDER = "/data/runs/sum-11111111/checkpoints"
SAVED = {"checkpoint": {"latestStep": 20, "path": FOLDER}}


def job(spec: Any = TRAINED, status: Any = SAVED) -> Manifest:
    return {**o.manifest(spec), "status": status}


def build(source: Manifest, *suites: str, steps: tuple[str, ...] = ("latest",)) -> dict[str, Any]:
    spec: dict[str, Any] = build_evaluation_job(source, steps, suites, "sum-eval", KubeContext())["spec"]
    assert validate_job("sum-eval", spec).findings == ()
    return spec


def test_the_job_has_the_model_the_data_and_the_volume_of_the_training() -> None:
    spec = build(job(), steps=("0", "10", "latest"))
    assert spec["evaluateOnly"] == {"checkpoints": FOLDER, "steps": ["0", "10", "latest"]}
    assert spec["storage"] == {"claimName": "sum-storage", "mountPath": "/data"}
    assert spec["training"] == {"seed": 3}
    assert {name: spec[name] for name in ("model", "data", "cluster")} == {
        name: TRAINED[name] for name in ("model", "data", "cluster")
    }
    assert spec["evaluation"] == [
        {"name": "sums", "promoteIf": {"gainAbove": 0}},
        {"name": "digits", "data": {"preset": "digits"}, "responsesPerPrompt": 4, "temperature": 1.0},
    ]
    assert not {"algorithm", "checkpoint", "observability", "framework", "publish"} & set(spec)


def test_a_gate_without_its_base_is_left_out() -> None:
    assert build(job(), "sums")["evaluation"] == [{"name": "sums"}]


def test_separate_engines_keep_their_pods() -> None:
    spec = build(job(merged(TRAINED, {**separate_engines(1, 2), "rollout.staleness": {"maxSteps": 1}})))
    assert [group["name"] for group in spec["cluster"]["workers"]] == ["rollout"]
    assert spec["rollout"] == {"tensorParallelSize": 1}


def test_an_evaluation_has_a_fixed_number_of_engines() -> None:
    spec = build(job(merged(TRAINED, {**elastic(), "rolloutReplicas": 6})))
    assert [group["replicas"] for group in spec["cluster"]["workers"]] == [4]
    assert not {"minReplicas", "maxReplicas"} & set(spec["cluster"]["workers"][0])


@pytest.mark.parametrize(
    ("manifest", "suites", "message"),
    [
        (job(status={}), (), "Job sum has no complete checkpoint: .* and spec.checkpoint.saveFreq is 5"),
        (job(), ("math",), "--suite math: job sum has sums, digits"),
        (job(merged(TRAINED, {"evaluation": None})), (), "Job sum has no suites: spec.evaluation is empty"),
        (job(merged(TRAINED, {"storage": None})), (), "are not on a volume that outlives it"),
        (job(merged(TRAINED, {"training.totalSteps": 0})), (), "The spec of job sum is invalid"),
        (
            job(merged(VERL, {"evaluation": [{"name": "a", "every": 1, "data": {"files": ["/mnt/rlt/b.parquet"]}}]})),
            (),
            "framework.type verl: only checkpoints of rlt's trainer",
        ),
    ],
    ids=["no-checkpoint", "suite", "no-suites", "no-volume", "invalid", "verl"],
)
def test_checkpoints_that_cannot_be_evaluated(manifest: Manifest, suites: tuple[str, ...], message: str) -> None:
    with pytest.raises(UnavailableError, match=message):
        build(manifest, *suites)


def test_a_job_that_needs_train_workers_has_a_finding() -> None:
    with pytest.raises(InvalidJobError, match=r"spec.evaluateOnly: given: cannot be combined with rewards\[0\].model"):
        build(job(merged(TRAINED, {"rewards": [{"model": "/data/judge"}]})))


class StubConnection(SimpleNamespace):
    """A connection to a cluster with one job."""

    async def get_job(self, name: str) -> Manifest:
        assert name == "sum"
        return job()

    async def create(self, path: str, manifest: Manifest) -> Manifest:
        if self.exists:
            raise ApiError(409, "exists")
        self.created.append((path, manifest))
        return manifest


def submit(monkeypatch: pytest.MonkeyPatch, *arguments: str, exists: bool = False) -> tuple[Result, list[Any]]:
    """Run `rlt eval sum`. Return the result and what it creates."""
    created: list[Any] = []

    @asynccontextmanager
    async def connect(kube_context: KubeContext) -> AsyncIterator[Any]:
        stub = StubConnection(namespace="demo", kube_context=kube_context, created=created, exists=exists)
        stub.api = stub
        yield stub

    monkeypatch.setattr("rlt_cli.commands.eval.connect", connect)
    return CliRunner().invoke(cli, ["eval", "sum", "-n", "demo", *arguments]), created


def test_the_job_is_created_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    done, created = submit(monkeypatch, "--step", "0", "--step", "latest", "--suite", "digits")
    assert (done.exit_code, done.stdout) == (0, "sum-eval created: step 0, latest of sum\n")
    assert done.stderr == "next: rlt watch sum-eval -n demo\n"
    ((path, manifest),) = created
    assert path == "/apis/rlt.dev/v1alpha1/namespaces/demo/rltrainingjobs"
    assert [suite["name"] for suite in manifest["spec"]["evaluation"]] == ["digits"]


def test_a_dry_run_creates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    done, created = submit(monkeypatch, "--dry-run", "--name", "later")
    assert (done.exit_code, created) == (0, [])
    assert yaml.safe_load(done.stdout)["metadata"]["name"] == "later"


def test_a_job_that_exists_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = submit(monkeypatch, exists=True)
    assert done.exit_code == 1
    assert "RLTrainingJob sum-eval exists: use another name." in done.stderr
    assert done.stderr.endswith("next: rlt eval sum --name sum-eval-2 -n demo\n")


def test_an_invalid_step_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = submit(monkeypatch, "--step", "last")
    assert done.exit_code == 2
    assert "last is not the step of a checkpoint: use a number, 0 or latest." in done.stderr
