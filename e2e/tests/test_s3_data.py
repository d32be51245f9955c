"""The job of examples/28-s3-data.yaml downloads data from a real S3-compatible server, and the trainer reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import train
from pyarrow import fs  # type: ignore[import-untyped]

from rlt import Job
from rlt_api.spec.training_config import CONFIG_FILE, PROGRAMS_PATH, TrainingConfig
from rlt_api.validation.resolved_spec import build_resolved_spec
from rlt_e2e.cluster.s3_server import s3_server
from rlt_operator.diagnosis.progress import extract_error
from rlt_trainer.data.gsm8k import read_gsm8k_rows

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/28-s3-data.yaml"
ROWS = [{"question": f"What is {n} + 1?", "answer": f"{n} + 1 = {n + 1}\n#### {n + 1}"} for n in range(3)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server with the objects that the header of the example names. The variables of its clients are
    set."""
    with s3_server(tmp_path_factory.mktemp("s3")) as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        s3 = fs.S3FileSystem(endpoint_override=variables["AWS_ENDPOINT_URL_S3"], allow_bucket_creation=True)
        s3.create_dir("datasets")
        for split, rows in (("train", ROWS), ("test", ROWS[:1])):
            with s3.open_output_stream(f"datasets/gsm8k/{split}.jsonl") as file:
                file.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())
        yield variables["AWS_ENDPOINT_URL_S3"]


def download(storage: Path, endpoint: str) -> subprocess.CompletedProcess[str]:
    """Run the step that the operator adds, with `storage` as the volume and the variables of this process."""
    manifest = yaml.safe_load(EXAMPLE.read_text())
    (step,) = build_resolved_spec(manifest["spec"], None)["framework"]["prepare"]
    *program, name, option, root = step["command"][:5]
    assert (program, name, option) == (["python3", PROGRAMS_PATH], "download", "--to")
    arguments = ["--to", root.replace("/mnt/rlt", str(storage)), *step["command"][5:]]
    arguments[arguments.index("--endpoint") + 1] = endpoint
    return subprocess.run([sys.executable, "-m", "rlt_pod", "download", *arguments], capture_output=True, text=True)


def build_config(storage: Path) -> TrainingConfig:
    """The trainer's config of the example with a small model and small batches, without vLLM."""
    (config,) = (each["data"] for each in Job.from_file(EXAMPLE).render() if each["kind"] == "ConfigMap")
    parsed: dict[str, Any] = json.loads(config[CONFIG_FILE].replace("/mnt/rlt", str(storage)))
    parsed |= {"cpusPerWorker": 1, "workers": 1}
    parsed["data"] |= {"maxPromptLength": 256, "maxResponseLength": 4}
    parsed["training"] |= {"totalSteps": 2, "totalEpochs": None, "trainBatchSize": 2, "ppoMiniBatchSize": 2}
    parsed["rollout"] |= {"engine": "transformers", "responsesPerPrompt": 2}
    return TrainingConfig.model_validate(parsed)


def test_the_trainer_reads_what_the_step_downloads(server: str, tmp_path: Path) -> None:
    done = download(tmp_path, server)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "s3/datasets/gsm8k"
    assert [len(read_gsm8k_rows(folder, split)) for split in ("train", "test")] == [3, 1]
    config = build_config(tmp_path)
    assert config.data.path == str(folder)
    assert [step["step"] for step in train(config)] == [1, 2]


def test_a_wrong_key_fails_the_step(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    done = download(tmp_path, server)
    assert done.returncode == 1
    error = extract_error(done.stdout + done.stderr)
    assert error.startswith("error: s3://datasets/gsm8k cannot be read: SignatureDoesNotMatch: ")
    assert "in the Secret spec.storage.secretName" in error
    assert not list(tmp_path.glob("s3/datasets/**/*"))
