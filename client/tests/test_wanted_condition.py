"""The conditions of `rlt wait --for`: kubectl's forms, and names that no job has."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rlt.errors import UnknownConditionError
from rlt.wanted_condition import DELETION, WantedCondition, parse_wanted_condition
from rlt_cli.main import cli


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Succeeded", WantedCondition("Succeeded")),
        ("condition=Succeeded", WantedCondition("Succeeded")),
        ("condition=succeeded=true", WantedCondition("Succeeded")),
        ("condition=Suspended=False", WantedCondition("Suspended", "False")),
    ],
)
def test_kubectls_forms_are_parsed(text: str, expected: WantedCondition) -> None:
    assert parse_wanted_condition(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Succeedd", "did you mean Succeeded?"),
        ("condition=Complete", "use one of Accepted, "),
        ("condition=Failed=Maybe", "A condition is not 'Maybe': use True, False, Unknown."),
    ],
)
def test_an_unknown_condition_is_a_usage_error_before_the_connection(text: str, message: str) -> None:
    with pytest.raises(UnknownConditionError, match="condition"):
        parse_wanted_condition(text)
    done = CliRunner().invoke(cli, ["wait", "sum", "--for", text, "--kubeconfig", "/nonexistent"])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_a_misspelt_delete_is_found() -> None:
    done = CliRunner().invoke(cli, ["wait", "sum", f"--for={DELETION[:-1]}", "--kubeconfig", "/nonexistent"])
    assert done.exit_code == 2
    assert "did you mean delete?" in " ".join(done.stderr.split())


def job(status: str, *, generation: int = 1, ended: str | None = None) -> dict[str, object]:
    conditions = [{"type": "Suspended", "status": status, "observedGeneration": 1}]
    conditions += [{"type": ended, "status": "True", "observedGeneration": 1}] if ended else []
    return {"metadata": {"generation": generation}, "status": {"conditions": conditions}}


def test_a_status_of_the_current_generation_meets_the_condition() -> None:
    resumed = WantedCondition("Suspended", "False")
    assert resumed.is_met(job("False"))
    assert not resumed.is_met(job("True"))
    assert not resumed.is_met(job("False", generation=2))
    assert resumed.can_be_met(job("True"))
    assert not resumed.can_be_met(job("True", ended="Failed"))


def test_a_condition_that_never_was_true_is_false() -> None:
    reconciled = {"metadata": {"generation": 2}, "status": {"observedGeneration": 2}}
    assert WantedCondition("Suspended", "False").is_met(reconciled)
    assert not WantedCondition("Admitted", "False").is_met(reconciled)
    assert not WantedCondition("Suspended", "False").is_met({"metadata": {"generation": 2}})


def test_an_ended_job_explains_why_it_does_not_have_the_condition() -> None:
    ended = {"type": "Succeeded", "status": "True", "reason": "Completed", "message": "", "observedGeneration": 1}
    gate = {"type": "Promoted", "status": "False", "reason": "GateFailed", "message": "math: mean 0.1"}
    status = {"phase": "Succeeded", "message": "9 of 9 steps are done.", "conditions": [ended, gate]}
    done = {"metadata": {"generation": 1}, "status": status}
    promoted = WantedCondition("Promoted")
    assert not promoted.can_be_met(done)
    assert promoted.explain(done) == "Succeeded: 9 of 9 steps are done. Promoted is False: math: mean 0.1"
    assert WantedCondition("Failed").explain(done) == "Succeeded: 9 of 9 steps are done."
