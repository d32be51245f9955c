"""`python -m operator_bench`: measure, write out/bench-operator.json and the table of docs/performance.md.

With --quick: 30 jobs, without Kubeflow Trainer, the fleet of nodes and the shards, in about three minutes. The page
stays as it is, also with --only-shards.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from bench_report import ROOT, Row, write_json

from operator_bench import isolation, peers, rows
from operator_bench.environment import run_control_plane, run_pods, running
from operator_bench.fleet import measure_fleet
from operator_bench.measurements import (
    FOREVER,
    Kind,
    measure_creation,
    measure_freshness,
    measure_restart,
    run_to_success,
    set_training,
    start_bare_clusters,
    start_jobs,
    watch_running,
)
from operator_bench.objects import clear, create_namespace, make_job, make_ray_job, make_train_job
from operator_bench.observer import connecting
from operator_bench.processes import Operator, Process, make_operator
from operator_bench.report import render_table, write_page
from operator_bench.shards import measure_shards
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.fake_nodes import build as build_kwok
from rlt_e2e.cluster.programs import obtain_built

RAY_JOBS = "/apis/ray.io/v1/namespaces/{}/rayjobs"
TRAIN_JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
FEW = 20
"""Jobs for the requests of a job and for the time until a step is seen."""
STEP_S = 10.0
FRESH_STEP_S = 7.0
WATCH_S = 60.0


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    command = argparse.ArgumentParser(prog="operator_bench", description=__doc__.splitlines()[0])
    command.add_argument("--quick", action="store_true", help="a short form with the ratios only")
    command.add_argument("--jobs", default="100,300,1000", help="numbers of jobs (default 100,300,1000)")
    command.add_argument("--nodes", type=int, default=5000, help="nodes of the fleet (default 5000; 0: without it)")
    command.add_argument(
        "--sharded-jobs", type=int, default=10_000, help="running jobs on shards (default 10000; 0: without them)"
    )
    command.add_argument(
        "--shard-minutes", type=float, default=40, help="time for the start of the jobs on shards (default 40)"
    )
    command.add_argument("--only-shards", action="store_true", help="the jobs on shards alone")
    command.add_argument("--samples", type=int, default=100, help="jobs created one at a time (default 100)")
    command.add_argument("--output", type=Path, default=ROOT / "out/bench-operator.json", help="file for the figures")
    return command.parse_args()


class Rows(list[Row]):
    """The rows so far. Each is printed and written to the file of figures when it is known."""

    def __init__(self, output: Path) -> None:
        super().__init__()
        self._output = output

    def add(self, *rows: Row) -> None:
        """Add rows."""
        for row in rows:
            print(f"{row.what}: {row.measured} ({'' if row.met else 'MISSED, '}target: {row.target})", flush=True)
            self.append(row)
        write_json(self, self._output)


async def measure(arguments: argparse.Namespace) -> list[Row]:
    """All rows: one operator on one control plane; the fleet of nodes, and the shards, on their own."""
    found = Rows(arguments.output)
    if not arguments.only_shards:
        await _measure_operator(arguments, found)
    if arguments.nodes and not arguments.quick and not arguments.only_shards:
        with run_control_plane() as cluster:
            found.add(rows.describe_fleet(await measure_fleet(cluster, arguments.nodes)))
    if arguments.sharded_jobs and not arguments.quick:
        with run_control_plane() as cluster, run_pods(cluster) as kuberay, showing_logs(kuberay):
            sharded = await measure_shards(cluster, arguments.sharded_jobs, 60 * arguments.shard_minutes)
            found.add(rows.describe_sharded(sharded))
    return found


async def _measure_operator(arguments: argparse.Namespace, found: Rows) -> None:
    sizes = [30] if arguments.quick else [int(each) for each in arguments.jobs.split(",")]
    with run_control_plane() as cluster, run_pods(cluster) as kuberay:
        operator = make_operator(cluster)
        with running(operator), showing_logs(operator, kuberay):
            operator.wait()
            async with connecting(cluster.kubeconfig) as api:
                set_training(seconds_per_step=STEP_S, total_steps=FOREVER)
                await start_jobs(api, operator, kuberay, 1, "first")
                template = await api.get(api_paths.ray_cluster("first", "job-0"))
                assert template
                found.add(*await _compare_creation(cluster, api, template, arguments))
                found.add(rows.describe_success(await run_to_success(api, operator, FEW, "to-success")))
                await clear(api, "to-success")
                set_training(seconds_per_step=FRESH_STEP_S, total_steps=FOREVER)
                await start_jobs(api, operator, kuberay, FEW, "few")
                ages = await measure_freshness(api, "few", WATCH_S / 2 if arguments.quick else WATCH_S)
                found.add(rows.describe_freshness(ages, FEW))
                await clear(api, "few")
                set_training(seconds_per_step=STEP_S, total_steps=FOREVER)
                await _start_many(api, operator, kuberay, template, sizes, found)


async def _compare_creation(
    cluster: Cluster, api: KubernetesApi, template: Manifest, arguments: argparse.Namespace
) -> list[Row]:
    kinds = [
        Kind("rlt", api_paths.jobs("rlt"), api_paths.ray_clusters("rlt"), lambda name: make_job("rlt", name)),
        Kind(
            "rayjob",
            RAY_JOBS.format("rayjob"),
            api_paths.ray_clusters("rayjob"),
            lambda name: make_ray_job("rayjob", name, template),
        ),
    ]
    train_job = Kind(
        "trainjob",
        TRAIN_JOBS.format("trainjob"),
        JOB_SETS.format("trainjob"),
        lambda name: make_train_job("trainjob", name),
    )
    with nullcontext() if arguments.quick else peers.run_peers(cluster):
        kinds += [] if arguments.quick else [train_job]
        for kind in kinds:
            await create_namespace(api, kind.name)
        seconds = await measure_creation(api, kinds, 20 if arguments.quick else arguments.samples)
    for kind in kinds:
        await clear(api, kind.name)
    return rows.describe_creation(seconds)


async def _start_many(
    api: KubernetesApi, operator: Operator, kuberay: Process, template: Manifest, sizes: list[int], found: Rows
) -> None:
    """Start each number of jobs, then measure the last ones while they run and over a restart."""
    bare = []
    jobs = []
    namespace = ""
    for size in sizes:
        if namespace:
            await clear(api, namespace)
        namespace = f"jobs-{size}"
        bare.append(await start_bare_clusters(api, kuberay, template, size, f"bare-{size}"))
        jobs.append(await start_jobs(api, operator, kuberay, size, namespace))
        print(f"{bare[-1]} {jobs[-1]}", flush=True)
    found.add(*rows.describe_starts(bare, jobs))
    await asyncio.sleep(WATCH_S / 2)
    found.add(rows.describe_running(await watch_running(api, operator, namespace, WATCH_S)))
    set_training(seconds_per_step=STEP_S, total_steps=FOREVER, paused=True)
    await asyncio.sleep(WATCH_S)  # until the last progress is recorded (RECORD_INTERVAL_S of the operator)
    found.add(rows.describe_restart(await measure_restart(api, operator, namespace, WATCH_S / 2)))


@contextmanager
def showing_logs(*processes: Process) -> Iterator[None]:
    """Print the end of the logs if a measurement fails: they are removed with the control plane."""
    try:
        yield
    except BaseException:
        for process in processes:
            print(f"--- {process.name}", *process.log.read_text().splitlines()[-20:], sep="\n", flush=True)
        raise


def main() -> None:
    """Measure and write the results."""
    arguments = parse_arguments()
    obtain_built()  # with a network: the measurement has none
    build_kwok()
    whole = not arguments.quick and not arguments.only_shards
    if whole:
        peers.build()
    isolation.enter()
    found = asyncio.run(measure(arguments))
    print(render_table(found))
    if whole:
        write_page(found)


if __name__ == "__main__":
    main()
