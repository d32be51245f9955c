"""The page of `rlt ui -A`: the jobs of all namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_api_server import SERVER_TOKEN, SimulatedApiServer, serve, write_kubeconfig

from rlt.connection import connect
from rlt.errors import NotFoundError
from rlt.kube_context import KubeContext
from rlt.runs.pages import RolloutQuery
from rlt_ui.all_jobs import AllJobs
from rlt_ui.jobs import NO_CHANGES, JobList
from rlt_ui.source import UsageQuery

RESPONSES = (("2", 1.0), ("3", 0.0))
RECORD = {
    "version": 1,
    "steps": [8, 9],
    "metrics": {"critic/rewards/mean": [0.25, 0.5]},
    "rolloutsStep": 9,
    "rollouts": [
        {"index": 0, "prompt": "1 + 1 =", "response": response, "reward": reward} for response, reward in RESPONSES
    ],
    "spansStep": 9,
    "spans": [{"rank": -1, "phase": "gen", "thread": 0, "start": 1.0, "end": 2.0}],
    "notes": ["Of 9 steps, the last 2 are kept."],
}


async def test_the_jobs_of_all_namespaces_are_read_in_their_namespaces(tmp_path: Path) -> None:
    simulated = SimulatedApiServer(full_rights={SERVER_TOKEN})
    for namespace, name in (("a", "first"), ("b", "second")):
        simulated.add_job(namespace, name)
    with serve(simulated) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        async with connect(KubeContext(kubeconfig=str(tmp_path / "kubeconfig"))) as connection:
            jobs = AllJobs(connection)
            assert [each["id"] for each in await jobs.list_runs()] == ["a/first", "b/second"]
            found = await jobs.describe("b/second")
            assert (found["id"], found["source"]) == ("b/second", "job b/second")
            assert found["commands"][0] == "rlt status second -n b"
            assert (await jobs.read_metrics("b/second"))["metrics"] == {"critic/rewards/mean": [0.5]}
            (rollout,) = (await jobs.read_rollouts("b/second", None, RolloutQuery()))["rollouts"]
            assert rollout["response"] == "a\u2028b"  # a separator of lines in a JSON line
            (suite,) = (await jobs.read_changes("a/first"))["suites"]
            assert (suite["suite"], suite["samples"][0]["response"]) == ("math", "a\u2028b")
            assert (await jobs.list_logs("a/first"))["logs"][0]["id"] == "file/1/program.log"
            assert await jobs.get_version("b/second") == "b/second:1"
            for run in ("a/second", "first", "a/../b/second", "/first", "a/"):
                with pytest.raises(NotFoundError, match=f"Job {run} does not exist"):
                    await jobs.describe(run)


async def test_the_usage_has_the_deleted_jobs_and_names_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    simulated = SimulatedApiServer(full_rights={SERVER_TOKEN})
    simulated.add_job("a", "first")
    simulated.use("a", "first", generate=1800, idle=1800)
    simulated.use("a", "gone", lost=3600)
    simulated.use("b", "old", update=7200)
    query = UsageQuery("namespace")
    with serve(simulated) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        async with connect(KubeContext(kubeconfig=str(tmp_path / "kubeconfig"), namespace="a")) as connection:
            found = await AllJobs(connection).read_usage(query)
            assert [(each["group"], each["jobs"], each["acceleratorSeconds"]) for each in found["bills"]] == [
                ("a", 2, 7200),
                ("b", 1, 7200),
            ]
            assert (found["total"]["by"]["idle"], found["total"]["by"]["lost"]) == (1800, 3600)
            (bill,) = (await JobList(connection).read_usage(query))["bills"]
            assert (bill["group"], bill["acceleratorSeconds"]) == ("a", 7200)
            simulated.usage_records[0]["binaryData"] = {}
            damaged = await AllJobs(connection).read_usage(query)
            assert damaged["total"]["acceleratorSeconds"] == 3600 + 7200
            assert damaged["notes"][0].startswith("Without deleted jobs: ConfigMap rlt-system/rlt-usage-a")


async def test_a_job_that_has_ended_shows_its_kept_record(tmp_path: Path) -> None:
    simulated = SimulatedApiServer(full_rights={SERVER_TOKEN})
    simulated.add_job("a", "first")
    simulated.end_job("first", RECORD)
    with serve(simulated) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        async with connect(KubeContext(kubeconfig=str(tmp_path / "kubeconfig"))) as connection:
            jobs = AllJobs(connection)
            metrics = await jobs.read_metrics("a/first")
            assert (metrics["steps"], metrics["metrics"]) == ([8, 9], {"critic/rewards/mean": [0.25, 0.5]})
            assert metrics["notes"] == ["Of 9 steps, the last 2 are kept."]
            page = await jobs.read_rollouts("a/first", None, RolloutQuery(order="worst"))
            assert (page["step"], page["steps"], page["recorded"]) == (9, [9], 2)
            assert [each["response"] for each in page["rollouts"]] == ["3", "2"]
            assert (await jobs.read_spans("a/first", 9))["spans"] == RECORD["spans"]
            assert (await jobs.read_spans("a/first", 8))["notes"] == ["Only the spans of step 9 are kept."]
            assert await jobs.read_changes("a/first") == {"suites": [], "notes": []}  # it has no suites
            simulated.jobs[0]["spec"]["evaluation"] = [{"name": "math"}]
            (note,) = (await jobs.read_changes("a/first"))["notes"]
            assert note.endswith(NO_CHANGES)
            run = await jobs.load_run("a/first")
            assert ([step["step"] for step in run.steps], run.rollouts_step) == ([8, 9], 9)


async def test_the_record_of_another_job_of_the_name_is_not_shown(tmp_path: Path) -> None:
    simulated = SimulatedApiServer(full_rights={SERVER_TOKEN})
    simulated.add_job("a", "first")
    simulated.end_job("first", RECORD)
    simulated.jobs[0]["metadata"]["uid"] = "new"
    with serve(simulated) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        async with connect(KubeContext(kubeconfig=str(tmp_path / "kubeconfig"))) as connection:
            assert (await AllJobs(connection).read_metrics("a/first"))["steps"] == []
