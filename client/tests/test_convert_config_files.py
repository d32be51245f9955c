"""The config files that the program of a script reads: in the job, or named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rlt.convert.convert import Converted, convert

CONTENT = "max_steps: 3  # it's short\nname: ${HOME}\n"
SOURCES = {
    "trl grpo --config configs/run.yaml --num_processes 8": ["--config", "/mnt/rlt/config/run.yaml"],
    "trl sft --config=configs/run.yaml": ["--config=/mnt/rlt/config/run.yaml"],
    "uv run examples/run_grpo.py --config configs/run.yaml cluster.num_nodes=2": [
        "--config",
        "/mnt/rlt/config/run.yaml",
    ],
    "uv run rl @ configs/run.yaml --max-steps 3": ["@", "/mnt/rlt/config/run.yaml"],
    "uv run rl @configs/run.yaml": ["@/mnt/rlt/config/run.yaml"],
    "python examples/start_rlvr_pipeline.py --config_path configs --config_name run": [
        *("--config_path", "/mnt/rlt/config", "--config_name", "run")
    ],
    "python3 -m verl.trainer.main_ppo --config-path=configs --config-name=run": [
        *("--config-path=/mnt/rlt/config", "--config-name=run")
    ],
}


def convert_with(source: str, files: dict[str, str]) -> Converted:
    return convert(source, "run.sh", read=files.get)


@pytest.mark.parametrize("source", SOURCES)
def test_a_file_beside_the_source_is_in_the_job(source: str, tmp_path: Path) -> None:
    converted = convert_with(source, {"configs/run.yaml": CONTENT})
    framework = converted.manifest["spec"]["framework"]
    wanted = SOURCES[source]
    command = framework["command"]
    assert any(command[start : start + len(wanted)] == wanted for start in range(len(command)))
    assert converted.missing_files == ()
    (step,) = framework["prepare"]
    script = step["command"][2].replace("/mnt/rlt/config", str(tmp_path))
    subprocess.run(["bash", "-c", script], check=True)
    assert (tmp_path / "run.yaml").read_text() == CONTENT


@pytest.mark.parametrize("source", SOURCES)
def test_a_file_that_cannot_be_read_is_to_be_filled_in(source: str) -> None:
    converted = convert_with(source, {})
    assert "prepare" not in converted.manifest["spec"]["framework"]
    assert [each.partition(":")[0] for each in converted.missing_files] == ["the file configs/run.yaml"]
    assert any(each.what == "the file configs/run.yaml" for each in converted.left_out)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("defaults: base.yaml\ngrpo: {}\n", "reads other configs"),
        (f"key: hf_{'a' * 20}\n", "it has a secret"),
        ("a" * 40_000, "too large"),
    ],
)
def test_a_file_that_a_job_cannot_carry_is_named(content: str, reason: str) -> None:
    converted = convert_with("trl grpo --config configs/run.yaml", {"configs/run.yaml": content})
    assert any(reason in each.why for each in converted.left_out)
    assert converted.missing_files
    assert "hf_a" not in converted.to_yaml("run.sh")


def test_the_examples_of_a_framework_may_be_in_its_image() -> None:
    converted = convert_with("uv run examples/run_grpo.py --config examples/configs/grpo_math_8B.yaml", {})
    assert converted.missing_files == ()
    assert any("if the image does not have it" in each.why for each in converted.left_out)


def test_two_files_have_a_step_each() -> None:
    files = {"a/rl.toml": "x = 1", "b/rl.toml": "y = 1"}
    steps = convert_with("uv run rl --trainer @ a/rl.toml --orchestrator @ b/rl.toml", files).manifest["spec"][
        "framework"
    ]["prepare"]
    assert [each["name"] for each in steps] == ["config-rl", "config-rl-2"]
    assert "cat > /mnt/rlt/config/rl-2.toml" in steps[1]["command"][2]
