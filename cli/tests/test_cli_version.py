"""rlt version and rlt completion."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlt_api.schema.crd import build_job_crd
from rlt_cli.commands.version import hash_schemas
from rlt_cli.main import cli


def rlt(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, env=env)


def test_versions_of_cli_and_api() -> None:
    versions = json.loads(rlt("version", "-o", "json").stdout)
    assert list(versions) == ["client", "api", "schema"]
    assert versions["client"] == importlib.metadata.version("rlt")
    assert versions["api"] == "rlt.dev/v1alpha1"


def test_another_type_changes_the_hash() -> None:
    changed = build_job_crd()
    spec = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["suspend"]["type"] = "string"
    assert hash_schemas([changed]) != hash_schemas([build_job_crd()])


def test_the_hash_is_the_same_after_the_api_server_stores_the_schema() -> None:
    bounds = [{"spec": {"versions": [{"schema": {"maximum": bound}}]}} for bound in (1e6, 1000000)]
    assert hash_schemas(bounds[:1]) == hash_schemas(bounds[1:])


def test_server_without_a_cluster_is_an_error_with_the_next_command(tmp_path: Path) -> None:
    done = rlt("version", "--server", env={"KUBECONFIG": str(tmp_path / "none")})
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: Cannot connect to a cluster: {tmp_path}/none does not exist.\n")
    assert done.stderr.splitlines()[-1] == "next: export KUBECONFIG=FILE, or pass --kubeconfig FILE"


@pytest.fixture
def path_with_rlt(tmp_path: Path) -> str:
    """A PATH with `rlt` and kubectl's completion program."""
    programs = {
        "rlt": f'#!/bin/sh\nexec "{sys.executable}" -c "from rlt_cli.main import main; main()" "$@"\n',
        "kubectl_complete-rlt": rlt("completion", "kubectl").stdout,
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def run(*command: str, path: str) -> str:
    return subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True).stdout


def test_bash_completes_commands_and_options(path_with_rlt: str) -> None:
    script = """
        source <(rlt completion bash)
        COMP_WORDS=(rlt val) COMP_CWORD=1; _rlt_completion rlt; echo "${COMPREPLY[@]}"
        COMPREPLY=(); COMP_WORDS=(rlt init --ful) COMP_CWORD=2; _rlt_completion rlt; echo "${COMPREPLY[@]}"
    """
    assert run("bash", "-c", script, path=path_with_rlt) == "validate\n--full\n"


def test_kubectl_completes_the_plugin(path_with_rlt: str) -> None:
    assert run("kubectl_complete-rlt", "val", path=path_with_rlt) == "validate\n:4\n"
    assert run("kubectl_complete-rlt", "validate", "", path=path_with_rlt) == ":0\n"
    assert run("kubectl_complete-rlt", "init", "--kind", "", path=path_with_rlt) == "job\nruntime\n:4\n"
    assert run("kubectl_complete-rlt", "init", "infi", path=path_with_rlt) == "infiniband\n:4\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_have_a_script(shell: str) -> None:
    done = rlt("completion", shell)
    assert "_RLT_COMPLETE=" in done.stdout
    assert done.stderr.startswith(f"next: {'rlt' if shell == 'fish' else 'source'} ")
