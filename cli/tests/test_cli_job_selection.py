"""The jobs that arguments select: kubectl's forms of names, and files."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rlt_cli.job_selection import JobName, parse_names, read_names
from rlt_cli.main import cli

JOB = "apiVersion: rlt.dev/v1alpha1\nkind: RLTrainingJob\nmetadata: {name: %s}\nspec: {}\n"


@pytest.mark.parametrize(
    "words",
    [("a", "b"), ("rltj", "a", "b"), ("rltrainingjobs.rlt.dev", "a", "b"), ("rltj/a", "rltrainingjob.rlt.dev/b")],
)
def test_names_have_kubectls_forms(words: tuple[str, ...]) -> None:
    assert parse_names(words) == (JobName("a"), JobName("b"))


def test_a_job_can_have_the_name_of_the_type() -> None:
    assert parse_names(["rltj"]) == (JobName("rltj"),)


def test_the_type_alone_is_not_a_name_beside_a_selector() -> None:
    assert parse_names(["rltj"], type_alone=True) == ()
    assert parse_names(["rltj", "a"], type_alone=True) == (JobName("a"),)


def test_another_type_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match="pod/a: is not a job"):
        parse_names(["pod/a"])


def test_files_select_their_jobs_in_their_namespaces(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(JOB % "a" + "---\nkind: ConfigMap\nmetadata: {name: x}\n---\n" + JOB % "a")
    (tmp_path / "b.yaml").write_text(JOB % "b, namespace: team")
    assert read_names([str(tmp_path)]) == (JobName("a"), JobName("b", "team"))
    (tmp_path / "a.yaml").write_text("kind: ConfigMap\n")
    with pytest.raises(click.UsageError, match="no RLTrainingJob"):
        read_names([str(tmp_path / "a.yaml")])


def rlt(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--kubeconfig", "/nonexistent"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "a", "-A"], "omit --all-namespaces"),
        (["delete"], "Name the jobs"),
        (["delete", "a", "-l", "b=c"], "NAME or -f and -l are mutually exclusive"),
        (["delete", "a", "--all"], "NAME or -f and --all are mutually exclusive"),
        (["delete", "--all", "-l", "b=c"], "-l and --all are mutually exclusive"),
        (["logs", "a", "--since", "5m"], "add --head, --worker N or --pod POD"),
        (["logs", "a", "-c", "sidecar"], "add --head, --worker N or --pod POD"),
        (["logs", "a", "--previous"], "add --head, --worker N or --pod POD"),
        (["logs", "a", "--head", "--previous", "-f"], "omit --follow"),
    ],
)
def test_options_that_exclude_each_other_are_usage_errors(arguments: list[str], message: str) -> None:
    done = rlt(*arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_delete_without_a_terminal_names_the_command_with_yes() -> None:
    assert "delete a --yes --kubeconfig /nonexistent" in rlt("delete", "a").stderr
    assert "delete -l team=a --yes --kubeconfig /nonexistent" in rlt("delete", "-l", "team=a").stderr
    assert "delete --all --yes --kubeconfig /nonexistent" in rlt("delete", "--all").stderr
