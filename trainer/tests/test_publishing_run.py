"""A run that publishes its model to a hub and a bucket on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, ModelCardData
from loopback_hub import LoopbackHub, loopback_hub

from rlt_api.blocks.publish import name_variable
from rlt_api.spec.training_config import ProgressReport, RunBucket, TrainingConfig
from rlt_e2e.cluster.s3_server import ACCESS_KEY, SECRET_KEY, s3_server
from rlt_pod.download.signature import Keys
from rlt_pod.report.driver_report import PROGRESS_PREFIX
from rlt_trainer.bucket.s3 import S3Objects
from rlt_trainer.evaluation.gate import Gate
from rlt_trainer.publishing.bucket import MARK

pytestmark = pytest.mark.slow

MakeConfig = Callable[..., TrainingConfig]
SUITE = {"name": "digits", "every": 3, "beforeTrain": True, "promoteIf": {"gainAbove": -1, "minimum": 0}}
BUCKET = "s3://models/tiny"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Servers:
    """A hub and an S3 server, and the variables of a job's pods that publish there."""

    hub: LoopbackHub
    s3: str
    variables: Mapping[str, str]

    def open_bucket(self) -> S3Objects:
        keys = Keys(ACCESS_KEY, SECRET_KEY, "", "us-east-1")
        return S3Objects(RunBucket(url=BUCKET, endpoint=self.s3), keys=keys)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("s3")
    with loopback_hub() as hub, s3_server(folder) as s3:
        (folder / "objects/models").mkdir()
        variables = {
            "HF_ENDPOINT": hub.endpoint,
            "HF_HUB_DISABLE_XET": "1",  # the hub has the LFS API alone
            "no_proxy": "127.0.0.1",
            name_variable(0, "HF_TOKEN"): "write",
            name_variable(1, "AWS_ACCESS_KEY_ID"): s3["AWS_ACCESS_KEY_ID"],
            name_variable(1, "AWS_SECRET_ACCESS_KEY"): s3["AWS_SECRET_ACCESS_KEY"],
        }
        yield Servers(hub, s3["AWS_ENDPOINT_URL_S3"], variables)


@pytest.fixture
def config(make_config: MakeConfig, servers: Servers) -> TrainingConfig:
    return make_config(
        workers=1,
        data={"preset": "digits"},
        rewards=[{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
        evaluation=[SUITE],
        checkpoint={"saveFreq": 3},
        publish=[{"hub": "lab/tiny"}, {"bucket": BUCKET, "endpoint": servers.s3}],
        image="registry.example/trainer:1",
    )


def run_trainer(folder: Path, servers: Servers, *arguments: str, **changes: str) -> tuple[int, str]:
    """Run rlt-trainer. Return the exit code and the output."""
    environment = {**os.environ, **servers.variables, **changes}
    command = [sys.executable, "-m", "rlt_trainer", *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=folder, timeout=600
    )
    return done.returncode, done.stdout


def train(config: TrainingConfig, folder: Path, servers: Servers, **changes: str) -> tuple[int, str]:
    file = folder / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    return run_trainer(folder, servers, "run", "--config", str(file), "--local", **changes)


def read_report(output: str) -> ProgressReport:
    line = [line for line in output.splitlines() if line.startswith(PROGRESS_PREFIX)][-1]
    return ProgressReport.model_validate_json(line.removeprefix(PROGRESS_PREFIX))


def test_a_promoted_model_is_published_once_also_after_a_failure(
    config: TrainingConfig, servers: Servers, tmp_path: Path
) -> None:
    hub = servers.hub
    hub.fail = lambda method, path: 403 if "/commit/" in path else 0
    code, output = train(config, tmp_path, servers)
    assert code == 0, output
    hub_result, bucket_result = read_report(output).published
    run = Path(config.run_directory)
    assert hub_result.revision is None
    assert str(hub_result.error).startswith("spec.publish[0].hub: lab/tiny: its token has no right to write there")
    assert f"The model in {run}/export is unchanged; then `rlt export tiny --publish`" in str(hub_result.error)
    assert hub.repositories["lab/tiny"].commits[1:] == []
    mark = json.loads(servers.open_bucket().read(MARK) or b"")
    assert (bucket_result.url, bucket_result.revision) == (BUCKET, mark["revision"])
    assert SECRET_KEY not in output
    assert "Bearer" not in output

    hub.fail = lambda method, path: 0
    code, output = run_trainer(tmp_path, servers, "publish", str(run))
    assert code == 0, output
    repository = hub.repositories["lab/tiny"]
    revision = repository.commits[-1]
    assert output.splitlines()[-2:] == [f"{hub.endpoint}/lab/tiny: {revision}", f"{BUCKET}: {mark['revision']}"]

    code, output = train(config, tmp_path, servers)  # as after a restart between the export and the end
    assert code == 0, output
    assert "resuming from" in output
    assert [each.revision for each in read_report(output).published] == [revision, mark["revision"]]
    assert len(repository.commits) == 2

    card = ModelCard(repository.files["README.md"].decode())
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert isinstance(card.data, ModelCardData)
    assert card.data.eval_results
    assert [each.metric_value for each in card.data.eval_results] == [last["val/digits/reward/mean"]]
    gate = Gate(**json.loads((run / "evaluation/gates.json").read_text())["gates"]["digits"])
    assert f"passed: {gate.evidence}" in card.text
    assert repository.files[WEIGHTS] == (run / "export" / WEIGHTS).read_bytes()
    objects = servers.open_bucket()
    for name in mark["sizes"]:
        assert objects.read(name) == (run / "export" / name).read_bytes()


def test_a_rejected_token_ends_the_run_before_the_models_are_loaded(
    config: TrainingConfig, servers: Servers, tmp_path: Path
) -> None:
    code, output = train(config, tmp_path, servers, **{name_variable(0, "HF_TOKEN"): "hf_wrong"})
    assert code == 1
    message = "spec.publish[0].hub: lab/tiny: the hub does not accept its token; correct HF_TOKEN in the Secret"
    assert f"{message} spec.publish[0].secretName." in output
    assert "joining Ray" not in output
    assert "hf_wrong" not in output


def test_rejected_keys_of_a_bucket_end_it_with_field_and_fix(
    config: TrainingConfig, servers: Servers, tmp_path: Path
) -> None:
    code, output = train(config, tmp_path, servers, **{name_variable(1, "AWS_SECRET_ACCESS_KEY"): "another-key"})
    assert code == 1
    error = output.splitlines()[-1]
    assert f"spec.publish[1].bucket: {BUCKET}: " in error
    assert "SignatureDoesNotMatch" in error
    assert "in the Secret spec.publish[1].secretName" in error
    assert "another-key" not in output


def test_a_model_that_is_not_promoted_is_not_published(
    config: TrainingConfig, servers: Servers, tmp_path: Path
) -> None:
    gated = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    gated["evaluation"] = [{**SUITE, "promoteIf": {"minimum": 2}}]
    gated["publish"] = [{"hub": "lab/other"}]
    code, output = train(TrainingConfig.model_validate(gated), tmp_path, servers)
    assert code == 0, output
    assert read_report(output).published == []
    assert "lab/other" not in servers.hub.repositories
    code, output = run_trainer(tmp_path, servers, "publish", config.run_directory)
    assert code == 1
    assert "is not promoted: digits: mean" in output
