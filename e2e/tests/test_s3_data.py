"""The step of examples/28-s3-data.yaml copies data from a real S3-compatible server, and the trainer reads it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import train
from pyarrow import fs  # type: ignore[import-untyped]

from rlt import Job
from rlt_api.spec.training_config import CONFIG_FILE, TrainingConfig
from rlt_core.knowledge.diagnosis import diagnose_logs
from rlt_e2e.cluster.s3_server import s3_server
from rlt_trainer.data.gsm8k import read_gsm8k_rows

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/28-s3-data.yaml"
ROWS = [{"question": f"What is {n} + 1?", "answer": f"{n} + 1 = {n + 1}\n#### {n + 1}"} for n in range(3)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The server with the objects that the header of the example names. Yields the variables of its clients."""
    with s3_server(tmp_path_factory.mktemp("s3")) as variables:
        s3 = fs.S3FileSystem(
            access_key=variables["AWS_ACCESS_KEY_ID"],
            secret_key=variables["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=variables["AWS_ENDPOINT_URL_S3"],
            allow_bucket_creation=True,
        )
        s3.create_dir("datasets")
        for split, rows in (("train", ROWS), ("test", ROWS[:1])):
            with s3.open_output_stream(f"datasets/gsm8k/{split}.jsonl") as file:
                file.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())
        yield variables


def copy_data(storage: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the step with the variables of the job, whose storage is `storage`."""
    spec = yaml.safe_load(EXAMPLE.read_text())["spec"]
    assert {each["name"] for each in spec["cluster"]["env"]} == set(variables)
    (step,) = spec["framework"]["prepare"]
    program, *arguments = step["command"]
    assert program == "python3"
    command = [sys.executable, *(each.replace("/mnt/rlt", str(storage)) for each in arguments)]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)


def build_config(storage: Path) -> TrainingConfig:
    """The trainer's config of the example with a small model and small batches, without vLLM."""
    (config,) = (each["data"] for each in Job.from_file(EXAMPLE).render() if each["kind"] == "ConfigMap")
    parsed: dict[str, Any] = json.loads(config[CONFIG_FILE].replace("/mnt/rlt", str(storage)))
    parsed |= {"cpusPerWorker": 1, "workers": 1}
    parsed["data"] |= {"maxPromptLength": 256, "maxResponseLength": 4}
    parsed["training"] |= {"totalSteps": 2, "totalEpochs": None, "trainBatchSize": 2, "ppoMiniBatchSize": 2}
    parsed["rollout"] |= {"engine": "transformers", "responsesPerPrompt": 2}
    return TrainingConfig.model_validate(parsed)


def test_the_step_copies_the_objects_that_the_trainer_reads(server: dict[str, str], tmp_path: Path) -> None:
    done = copy_data(tmp_path, server)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["test.jsonl", "train.jsonl"]
    folder = tmp_path / "data/gsm8k"
    assert [len(read_gsm8k_rows(folder, split)) for split in ("train", "test")] == [3, 1]
    config = build_config(tmp_path)
    assert config.data.path == str(folder)
    assert [step["step"] for step in train(config)] == [1, 2]


def test_a_wrong_key_fails_the_step_with_a_known_failure(server: dict[str, str], tmp_path: Path) -> None:
    done = copy_data(tmp_path, {**server, "AWS_SECRET_ACCESS_KEY": "another"})
    assert done.returncode == 1
    assert [finding.code for finding in diagnose_logs([io.BytesIO(done.stderr.encode())])] == ["ObjectStorageDenied"]
    assert not list((tmp_path / "data/gsm8k").iterdir())
