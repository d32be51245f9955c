"""Each fix is right: a manifest with the edits of a finding does not have the finding, and has no new one."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cases import CASES, Case
from job_specs import BUILTIN, merged

from rlt_api.findings.finding import Edit, Finding
from rlt_api.validation.validate import validate_job

NEEDS_A_DECISION = {
    "spec.model": "the model",
    "spec.data": "the data",
    "spec.data.path": "the folder with the data",
    "spec.data.hub.name": "the data set",
    "spec.data.preset": "the data with pairs",
    "spec.data.files[0]": "where the file is",
    "spec.evaluation[0].data.files[63]": "where the files are",
    "spec.framework.prepare": "which steps to join",
    "spec.publish[0]": "the place",
    "spec.publish[0].bucket": "the prefix",
    "spec.publish[0].endpoint": "the server",
    "spec.publish[0].hub": "the repository, or whether the pods use the hub",
    "spec.publish[0].registry": "the registry",
    "spec.publish[1].hub": "the place",
    "spec.evaluation[0].data": "the data",
    "spec.evaluation[0].data.files[0]": "where the file is",
    "spec.evaluation[0].data.preset": "the data with pairs",
    "spec.evaluation[1]": "the files of one validation set",
    "spec.training.totalSteps": "the length of the training",
    "spec.training.totalEpochs": "the length of the training",
    "spec.framework.command": "the program",
    "spec.framework.command[0]": "what starts the processes",
    "spec.framework.command[3]": "what the argument is for",
    "spec.framework.overrides[0]": "what to change instead",
    "spec.cluster.image": "the image",
    "spec.cluster.workers": "which groups to keep",
    "spec.cluster.head.podTemplate": "where its large values are",
    "spec.rollout.engineKwargs": "where its large values are",
    "spec.cluster.workers[0].accelerator.memory": "more accelerators, or less state",
    "spec.cluster.workers[0].accelerator.resourceName": "the accelerators of the cluster",
    "spec.cluster.workers[1].accelerator.resourceName": "the accelerators of the cluster",
    "spec.cluster.workers[0].resources": "the size of the pods",
    "spec.cluster.workers[0].resources.cpu": "the size of the pods",
    "spec.cluster.env[0]": "the value",
    "spec.cluster.env[0].value": "the Secret",
    "spec.cluster.head.nodeSelector[a b]": "the label",
    "spec.cluster.head.nodeSelector.pool": "the label",
    "spec.cluster.head.tolerations[0].key": "the taint",
    "spec.model.path": "where the model is",
    "spec.rewards[0]": "the reward",
    "spec.rewards[0].model": "where the model is",
    "spec.rewards[0].env[0]": "the value",
    "spec.rewards[0].env[0].value": "the Secret",
    "spec.rewards[0].options.max": "the maximum",
    "spec.rewards[0].function.name": "the module",
    "spec.rollout.multiTurn.agent": "the agent",
    "spec.rollout.multiTurn.sandbox": "the image",
    "spec.rollout.multiTurn.sandbox.nodeSelector[a b]": "the label",
    "spec.rollout.multiTurn.tools[0]": "the tool",
    "spec.rollout.multiTurn.tools[0].mcp": "the server",
    "spec.rollout.multiTurn.tools[0].mcp.env[0]": "the value",
    "spec.scheduling.queueName": "the queue",
    "spec.storage.bucket": "the bucket",
    "spec.storage.claimName": "the volume",
    "spec.storage.mountPath": "the path",
    "spec.storage.modelCache.mountPath": "the path",
    "spec.checkpoint.resumeFromPath": "the checkpoint",
    "spec.checkpoint.resumeFromJob": "the job",
    "spec": "what to leave out",
}
"""Fields of findings without edits -> what only the user can decide."""


def apply(spec: Mapping[str, Any], name: str, edit: Edit) -> tuple[dict[str, Any], str]:
    """Return spec and name of the job with an edit."""
    manifest: dict[str, Any] = {"metadata": {"name": name}, "spec": copy.deepcopy(dict(spec))}
    for path, value in edit.items():
        *parents, last = _parts(path)
        at: Any = manifest
        for key, following in zip(parents, [*parents[1:], last], strict=True):
            if isinstance(at, dict) and key not in at:
                at[key] = [] if isinstance(following, int) else {}
            if isinstance(at, list) and key == len(at):
                at.append({})
            at = at[key]
        if value is not None:
            at[last] = value
        elif isinstance(at, list):
            at.pop(int(last))
        else:
            at.pop(last, None)
    return manifest["spec"], manifest["metadata"]["name"]


def _parts(path: str) -> list[str | int]:
    """Split a path: a.b[0].c[x/y] -> a, b, 0, c, x/y."""
    found = re.findall(r"([^.\[\]]+)|\[([^\]]+)\]", path)
    return [plain or (int(inner) if inner.isdigit() else inner) for plain, inner in found]


def _find_edits() -> Iterator[Any]:
    for case in CASES:
        for finding in validate_job(case.name, case.spec).findings:
            for index, edit in enumerate(finding.edits):
                yield pytest.param(case, finding, edit, id=f"{case.id}-{finding.field}-{index}")


EDITS = list(_find_edits())


@pytest.mark.parametrize(("case", "finding", "edit"), EDITS)
def test_an_edit_resolves_its_finding(case: Case, finding: Finding, edit: Edit) -> None:
    """A new finding needs a decision of the user, or has an edit that resolves it without a way back."""
    known = {_key(each) for each in validate_job(case.name, case.spec).findings}
    spec, name = apply(case.spec, case.name, edit)
    for _ in range(3):
        found = validate_job(name, spec).findings
        assert _key(finding) not in map(_key, found)
        new = [each for each in found if _key(each) not in known and each.field not in NEEDS_A_DECISION]
        if not new:
            return
        assert new[0].edits, str(new[0])
        spec, name = apply(spec, name, new[0].edits[0])
    raise AssertionError(f"the edits lead to {new}")


def _key(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.field


@pytest.mark.parametrize(("case", "finding", "edit"), EDITS)
def test_the_fix_contains_the_values_of_an_edit(case: Case, finding: Finding, edit: Edit) -> None:
    for path, value in edit.items():
        name = re.split(r"[.\[]", path)[-1].rstrip("]")
        if value is None:
            assert re.search(r"remove|keep one|did you mean|use grpo|colocated", finding.fix), (path, finding.fix)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            assert f"{value:g}" in finding.fix, (name, value, finding.fix)
        elif isinstance(value, str) and "{" not in value:
            assert value in finding.fix, (name, value, finding.fix)


def test_findings_without_edits_need_a_decision() -> None:
    """So do unknown fields: the value moves to the field that is meant, whose type may differ."""
    findings = [finding for case in CASES for finding in validate_job(case.name, case.spec).findings]
    found = [each for each in findings if not each.edits and each.message != "is not a field"]
    unexpected = sorted(
        {f"{each.field} ({each.rule}): {each.fix}" for each in found if each.field not in NEEDS_A_DECISION}
    )
    assert not unexpected, "\n".join(unexpected)


def test_apply_follows_paths() -> None:
    edit: Edit = {"spec.cluster.workers[0].replicas": 3, "spec.data.preset": None, "metadata.name": "b"}
    spec, name = apply(merged(BUILTIN, {}), "a", edit)
    assert (spec["cluster"]["workers"][0]["replicas"], spec["data"], name) == (3, {}, "b")
