"""The rows of the table in docs/performance.md: what is measured, its target, and whether it is met."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from bench_report import Row

from operator_bench.fleet import HELD_JOBS, Fleet
from operator_bench.measurements import STATUS_WRITE, Restart, Running, Start, Succeeded, describe
from operator_bench.shards import Sharded

MAX_REQUESTS = 15.0
MAX_START_RATIO = 1.15
MAX_SPREAD = 0.20
MAX_CORES = 0.15
MAX_MEMORY_MB = 200.0
MAX_OTHER_WRITES = 0.5
MAX_WATCHES = 10
"""Reads of an interval that are watches that end after five minutes and are requested again, one for each kind."""
STATUS_WRITES_PER_MINUTE = 4.0
"""One for every 15 s."""
MAX_PEAK_MB = 300.0
MAX_BLOCKED_S = 0.1
MAX_RESTART_S = 20.0
MAX_SHARD_MB = 512.0
"""The chart's limit of memory is 512 MiB."""
MAX_SHARD_CORES = 0.9
MAX_AGE_S = 6.0
MAX_TO_TRAIN_JOB = 1.5


def describe_creation(seconds: Mapping[str, Sequence[float]]) -> list[Row]:
    """From a job's creation to its child's, in comparison with each peer."""
    quantiles = {name: (statistics.median(each), percentile(each, 0.99)) for name, each in seconds.items()}
    own = quantiles["rlt"]
    rows = []
    for peer, title, limit in (
        ("rayjob", "RayJob → RayCluster", 1.0),
        ("trainjob", "TrainJob → JobSet", MAX_TO_TRAIN_JOB),
    ):
        if peer not in quantiles:
            continue
        ratios = [ours / theirs for ours, theirs in zip(own, quantiles[peer], strict=True)]
        measured = ", ".join(
            f"{name} {ratio:.2f} x ({ours * 1000:.0f} and {theirs * 1000:.0f} ms)"
            for name, ratio, ours, theirs in zip(("p50", "p99"), ratios, own, quantiles[peer], strict=True)
        )
        target = "faster at p50 and p99" if limit == 1.0 else f"at most {limit} x at p50 and p99"
        figures = {"p50": ratios[0], "p99": ratios[1], "seconds": {name: list(seconds[name]) for name in ("rlt", peer)}}
        met = all(ratio <= limit for ratio in ratios)
        rows.append(Row(f"apply → RayCluster, one at a time, against {title}", target, measured, met, figures))
    return rows


def describe_starts(bare: Sequence[Start], jobs: Sequence[Start]) -> list[Row]:
    """Jobs until all are Running, against RayClusters of the same shape; and how the time per job grows."""
    rows = []
    for one, other in zip(bare, jobs, strict=True):
        ratio = other.seconds / one.seconds
        measured = (
            f"{ratio:.2f} x ({other.seconds:.0f} and {one.seconds:.0f} s; CPU of the operator "
            f"{other.operator_cpu_s:.1f} s, of KubeRay {other.kuberay_cpu_s:.1f} and {one.kuberay_cpu_s:.1f} s)"
        )
        figures = {"ratio": ratio, "bare": asdict(one), "jobs": asdict(other)}
        what = f"{other.count:,} jobs until all are Running, against {one.count:,} bare RayClusters"
        rows.append(Row(what, f"at most {MAX_START_RATIO} x", measured, ratio <= MAX_START_RATIO, figures))
    if len(jobs) > 1:
        per_job = {each.count: each.seconds / each.count for each in jobs}
        spread = max(per_job.values()) / min(per_job.values()) - 1
        measured = "; ".join(f"{count:,}: {seconds * 1000:.0f} ms" for count, seconds in per_job.items())
        counts = ", ".join(f"{count:,}" for count in per_job)
        rows.append(
            Row(
                f"time per job at {counts} jobs",
                f"flat within {MAX_SPREAD:.0%}",
                f"{measured}: within {spread:.0%}",
                spread <= MAX_SPREAD,
                {"seconds": per_job},
            )
        )
    return rows


def describe_success(found: Succeeded) -> Row:
    """Requests to the API server per job, from its creation to Succeeded."""
    total = sum(found.requests.values())
    listed = ", ".join(f"{number:g} {key}" for key, number in describe(found.requests).items())
    return Row(
        "requests by the operator per job from apply to Succeeded",
        f"at most {MAX_REQUESTS:.0f}",
        f"{total:.1f}: {listed}",
        total <= MAX_REQUESTS,
        {"total": total, "requests": dict(found.requests)},
    )


def describe_running(found: Running) -> Row:
    """CPU, memory and requests while jobs run."""
    job_minutes = found.count * found.seconds / 60
    reads = sum(number for key, number in found.requests.items() if is_read(key))
    status = found.requests[STATUS_WRITE] / job_minutes
    writes = sum(number for key, number in found.requests.items() if not key.startswith("GET ")) / job_minutes
    met = (
        found.cores <= MAX_CORES
        and found.memory_mb <= MAX_MEMORY_MB
        and status <= STATUS_WRITES_PER_MINUTE
        and writes - status <= MAX_OTHER_WRITES
        and reads <= MAX_WATCHES
    )
    return Row(
        f"{found.count:,} running jobs that report a step every 10 s",
        f"{MAX_CORES:.0%} of a core, {MAX_MEMORY_MB:.0f} MB, {STATUS_WRITES_PER_MINUTE:.0f} status writes and "
        f"{MAX_OTHER_WRITES} other writes per job and minute, no reads",
        f"{found.cores:.1%} of a core, {found.memory_mb:.0f} MB, {status:.1f} status writes and "
        f"{writes - status:.2f} other writes per job and minute; {reads} reads in {found.seconds:.0f} s for all jobs",
        met,
        {
            "cores": found.cores,
            "memory_mb": found.memory_mb,
            "status_writes": status,
            "other_writes": writes - status,
            "reads": reads,
            "requests": dict(found.requests),
        },
    )


def describe_sharded(found: Sharded) -> Row:
    """CPU, memory and requests of the shards while jobs run."""
    used = found.used
    cores = [each / used.seconds for each in used.cpu_s]
    shards = len(cores)
    of_leases = sum(number for key, number in used.requests.items() if key.endswith(" leases"))
    counts = {"status writes": used.requests[STATUS_WRITE], "requests for Leases": of_leases}
    counts["other requests"] = used.requests.total() - sum(counts.values())
    rates = {name: number / used.seconds for name, number in counts.items()}
    listed = ", ".join(f"{rate:.1f} {name}" for name, rate in rates.items())
    reason = f" of {found.wanted:,}, because {found.limit}," if found.limit else ""
    return Row(
        f"{found.count:,}{reason} running jobs on {shards} shards that report a step every 10 s",
        f"each shard under {MAX_SHARD_MB:.0f} MB and {MAX_SHARD_CORES:.0%} of a core",
        f"{min(used.jobs):,} to {max(used.jobs):,} jobs, {min(used.memory_mb):.0f} to {max(used.memory_mb):.0f} MB and "
        f"{min(cores):.1%} to {max(cores):.1%} of a core for a shard; per second of all {listed}, "
        f"{used.api_server_cpu_s / used.seconds:.1%} of a core of the API server, "
        f"{used.etcd_written_mb / used.seconds:.2f} MB written by etcd; {used.etcd_stored_mb:.0f} MB stored; "
        f"{found.restarts} restarts while the jobs started",
        max(used.memory_mb) < MAX_SHARD_MB and max(cores) < MAX_SHARD_CORES,
        {**vars(found), "used": {**vars(used), "requests": dict(used.requests)}, "cores": cores, "rates": rates},
    )


def describe_fleet(found: Fleet) -> Row:
    """Memory and the event loop with many nodes."""
    total = max(found.loop_delays.values())
    late = total - found.loop_delays[MAX_BLOCKED_S]
    longest = min(bound for bound, count in found.loop_delays.items() if count == total)
    return Row(
        f"{found.nodes:,} nodes of 20 KB, {HELD_JOBS} jobs held for RDMA",
        f"peak under {MAX_PEAK_MB:.0f} MB, event loop never blocked over {MAX_BLOCKED_S * 1000:.0f} ms",
        f"peak {found.peak_mb:.0f} MB, {late} of {total} delays over {MAX_BLOCKED_S * 1000:.0f} ms, the longest under "
        f"{longest:g} s",
        found.peak_mb <= MAX_PEAK_MB and late == 0,
        asdict(found),
    )


def describe_restart(found: Restart) -> Row:
    """A restart while jobs run."""
    return Row(
        f"restart with {found.count:,} running jobs",
        f"all known within {MAX_RESTART_S:.0f} s, no write to an unchanged job",
        f"{found.seconds:.0f} s, {found.job_writes} writes",
        found.seconds <= MAX_RESTART_S and found.job_writes == 0,
        {**asdict(found), "requests": dict(found.requests)},
    )


def describe_freshness(ages: Sequence[float], count: int) -> Row:
    """From the end of a step to the status that has it."""
    p50 = statistics.median(ages)
    p99 = percentile(ages, 0.99)
    return Row(
        f"step finished → seen in `kubectl get`, {count} jobs",
        f"p99 under {MAX_AGE_S:.0f} s",
        f"p50 {p50:.1f} s, p99 {p99:.1f} s ({len(ages)} steps)",
        p99 < MAX_AGE_S,
        {"p50": p50, "p99": p99, "steps": len(ages)},
    )


def is_read(key: str) -> bool:
    """Whether a request reads objects. Discovery and the check of the CRDs do not depend on the jobs."""
    return key.startswith("GET ") and key not in ("GET ", "GET customresourcedefinitions")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]
