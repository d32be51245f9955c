"""The option --shard, the label of a shard, and its Lease."""

from __future__ import annotations

import observed as o
import pytest

from rlt_core.children.build import build_children
from rlt_core.names import SHARD_LABEL
from rlt_core.shards import ALL, Shard
from rlt_operator.__main__ import build_parser, main
from rlt_operator.leader_election import LeaseLocation
from rlt_operator.reconcile.apply import label_shard
from rlt_operator.reconcile.plan import Plan

LEASE = LeaseLocation("rlt-system", "rlt-operator")


def test_without_the_option_the_operator_has_no_shards() -> None:
    assert build_parser().parse_args(["run"]).shard == ALL


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shard=4/4", "--leader-election-lease=ns/name"], "argument --shard: 4/4: use i/n"),
        (["--shard=0/4"], "--shard: give --leader-election-lease too"),
    ],
)
def test_an_option_that_two_processes_could_not_agree_on_is_rejected(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", *options])
    assert message in capsys.readouterr().err


def test_a_process_without_shards_has_the_lease_that_all_shards_share() -> None:
    assert LEASE.of_shard(ALL) == LEASE
    assert LEASE.of_shard(Shard(3, 4)) == LeaseLocation("rlt-system", "rlt-operator-3")


def test_what_a_job_owns_has_the_label_of_the_shard() -> None:
    """A PVC outlives its job. The next job recognizes it by its labels, maybe in another shard."""
    spec = {**o.SPEC, "storage": {"storageClassName": "fast", "size": "1Gi"}}
    job = o.job(spec)
    assert job.spec
    plan = Plan(apply=build_children(job, job.spec))
    children = label_shard(plan, Shard(3, 4)).apply
    found = {each["kind"]: each["metadata"].get("labels", {}).get(SHARD_LABEL) for each in children}
    assert found.pop("PersistentVolumeClaim") is None
    assert set(found.values()) == {"3"}
    assert set(found) >= {"RayCluster", "ConfigMap", "PodDisruptionBudget", "Secret"}
    assert label_shard(plan, ALL) == plan
