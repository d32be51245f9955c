"""`python -m operator_bench`: measure, and write out/bench-operator.json and the table of docs/performance.md."""

from __future__ import annotations

import asyncio
import sys
import time

from operator_bench import isolation
from operator_bench.environment import run_control_plane, run_pods, running
from operator_bench.objects import create_all, create_namespace, make_job
from operator_bench.observer import connecting, get_phase, observing
from operator_bench.processes import make_operator
from rlt_core.kubernetes import api_paths


async def main() -> None:
    n = int(sys.argv[1])
    with run_control_plane() as cluster, run_pods(cluster) as kuberay:
        operator = make_operator(cluster)
        with running(operator):
            operator.wait()
            async with connecting(cluster.kubeconfig) as api:
                await create_namespace(api, "jobs")
                before = operator.requests()
                async with observing(api, api_paths.jobs("jobs"), get_phase) as jobs:
                    t = time.time()
                    c, k = operator.cpu_s(), kuberay.cpu_s()
                    await create_all(api, api_paths.jobs("jobs"), [make_job("jobs", f"job-{i}") for i in range(n)])
                    await jobs.wait(lambda: jobs.count("Running") == n, "Running")
                    print(
                        "running after",
                        time.time() - t,
                        "operator cpu",
                        operator.cpu_s() - c,
                        "kuberay",
                        kuberay.cpu_s() - k,
                    )
                    now = operator.requests()
                    for key, count in (now - before).most_common():
                        print(f"{count / n:8.2f} {key}")
                    print(sum((now - before).values()) / n)
                    w, c = sum(jobs.changes.values()), operator.cpu_s()
                    await asyncio.sleep(60)
                    print(
                        "60 s:",
                        operator.cpu_s() - c,
                        "cpu",
                        sum(jobs.changes.values()) - w,
                        "changes",
                        operator.memory_mb(),
                    )
                    print(operator.requests() - now)


if __name__ == "__main__":
    isolation.enter()
    asyncio.run(main())
