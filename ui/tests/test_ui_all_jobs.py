"""The page of `rlt ui -A`: the jobs of all namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_api_server import SERVER_TOKEN, SimulatedApiServer, serve, write_kubeconfig

from rlt.connection import connect
from rlt.errors import NotFoundError
from rlt.kube_context import KubeContext
from rlt_ui.all_jobs import AllJobs


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
            assert (await jobs.list_logs("a/first"))["logs"][0]["id"] == "file/1/program.log"
            assert await jobs.get_version("b/second") == "b/second:1"
            for run in ("a/second", "first", "a/../b/second", "/first", "a/"):
                with pytest.raises(NotFoundError, match=f"Job {run} does not exist"):
                    await jobs.describe(run)
