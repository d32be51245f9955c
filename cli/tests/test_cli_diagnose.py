"""rlt diagnose: findings as JSON and as cards, from files, directories and standard input."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from rlt_cli.main import cli

OUT_OF_MEMORY = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. token=hf_abcdefghijklmnopqrst\n"
)
WRAPPER = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["diagnose", *arguments], input=input)


def test_json_contains_the_findings_the_best_first(tmp_path: Path) -> None:
    (tmp_path / "driver.log").write_text(WRAPPER)
    (tmp_path / "worker.log").write_text(OUT_OF_MEMORY)
    done = run("--log", str(tmp_path / "driver.log"), str(tmp_path / "worker.log"), "-o", "json")
    first, second = json.loads(done.stdout)
    assert list(first) == ["code", "severity", "message", "evidence", "remedy", "source"]
    assert (first["code"], first["severity"], second["code"]) == ("GpuOutOfMemory", "error", "ActorDied")
    assert first["evidence"].endswith("token=***")


def test_a_card_names_file_line_and_rank(tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("started\n" + OUT_OF_MEMORY)
    done = run("--log", str(tmp_path))
    assert f"where     {tmp_path}/worker.log:2, rank 3\n" in done.stdout
    assert done.stdout.startswith("GpuOutOfMemory (error)\n")


def test_standard_input_is_read() -> None:
    assert [each["code"] for each in json.loads(run("--log", "-", "-o", "json", input=WRAPPER).stdout)] == ["ActorDied"]


def test_nothing_found_is_an_empty_list_and_a_message() -> None:
    done = run("--log", "-", "-o", "json", input="healthy\n")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])
    assert run("-", input="healthy\n").stderr == "no known failure found\n"


def test_no_log_is_a_usage_error() -> None:
    assert run().exit_code == 2
