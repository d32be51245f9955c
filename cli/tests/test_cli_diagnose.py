"""rlt diagnose: findings as JSON and as cards, from files, directories and standard input."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest
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
    text_keys = ["code", "severity", "message", "evidence", "remedy", "source"]
    assert list(first) == [*text_keys, "file", "line", "rank", "process", "node"]
    assert (first["file"], first["line"], first["rank"]) == (str(tmp_path / "worker.log"), 1, 3)
    assert (first["process"], first["node"], second["rank"]) == ("", "", None)
    assert (first["code"], first["severity"], second["code"]) == ("GpuOutOfMemory", "error", "ActorDied")
    assert first["evidence"].endswith("token=***")


def test_json_names_the_process_and_its_node() -> None:
    log = "(WorkerDict pid=411, ip=10.0.0.3) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    (finding,) = json.loads(run("-", "-o", "json", input=log).stdout)
    assert (finding["file"], finding["process"]) == ("-", "WorkerDict pid=411, ip=10.0.0.3")
    assert (finding["node"], finding["rank"]) == ("10.0.0.3", None)


def test_a_card_names_file_line_and_rank(tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("started\n" + OUT_OF_MEMORY)
    done = run("--log", str(tmp_path))
    assert f"where     {tmp_path}/worker.log:2, rank 3\n" in done.stdout
    assert done.stdout.startswith("GpuOutOfMemory (error)\n")


def test_the_logs_in_an_archive_are_read(tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("started\n" + OUT_OF_MEMORY)
    with tarfile.open(tmp_path / "a-bundle.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "worker.log", "a-bundle/logs/worker.log")
    done = run("--log", str(tmp_path / "a-bundle.tar.gz"))
    assert f"where     {tmp_path}/a-bundle.tar.gz:a-bundle/logs/worker.log:2, rank 3\n" in done.stdout
    compressed = tmp_path / "worker.log.gz"
    compressed.write_bytes(gzip.compress((tmp_path / "worker.log").read_bytes()))
    assert json.loads(run(str(compressed), "-o", "json").stdout)[0]["code"] == "GpuOutOfMemory"


@pytest.mark.parametrize("name", ["a.tar.gz", "a.log.gz", "a.tar"])
def test_a_damaged_archive_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(OUT_OF_MEMORY.encode())[:20])
    done = run(str(tmp_path / name))
    assert done.exit_code == 1
    assert f"{name}: not a complete archive" in done.stderr


def test_standard_input_is_read() -> None:
    assert [each["code"] for each in json.loads(run("--log", "-", "-o", "json", input=WRAPPER).stdout)] == ["ActorDied"]


def test_nothing_found_is_an_empty_list_and_a_message() -> None:
    done = run("--log", "-", "-o", "json", input="healthy\n")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])
    assert run("-", input="healthy\n").stderr == "no failure found\n"


def test_what_is_unusual_about_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "core.1234").write_bytes(bytes(range(256)) * 20 + OUT_OF_MEMORY.encode())
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "windows.log").write_bytes(f"step 1\n{OUT_OF_MEMORY}".encode("utf-16"))
    done = run(str(tmp_path), "-o", "json")
    assert f"{tmp_path}/core.1234: is not a text" in done.stderr
    assert f"{tmp_path}/empty.log: is empty" in done.stderr
    assert "windows.log" not in done.stderr
    assert [each["code"] for each in json.loads(done.stdout)] == ["GpuOutOfMemory"]


def test_no_log_is_a_usage_error() -> None:
    assert run().exit_code == 2
