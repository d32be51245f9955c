"""A script for sbatch: Ray on all nodes, as processes or in containers, and the program on the first node.

https://slurm.schedmd.com/sbatch.html, https://docs.ray.io/en/latest/cluster/vms/user-guides/community/slurm.html
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from math import ceil

from rlt_core.targets.launch import POD_USER, Launch
from rlt_core.targets.shell import (
    JOIN_TIMEOUT_S,
    TOKEN_FILE,
    build_await_nodes,
    build_exports,
    build_files,
    build_head_comment,
    build_node_choice,
    build_programs,
    build_programs_file,
    build_requirements,
    build_token,
)
from rlt_core.targets.slurm_containers import ContainerRuntime, Wrapping, wrap_steps
from rlt_core.targets.slurm_failures import build_failure_functions

MIB = 2**20
START_NODE = "start-node.sh"
ENDED = "ray-ended"
"""Prefix of a file name: the file exists when Ray has ended on a node."""


@dataclass(frozen=True)
class SlurmOptions:
    """The options of the command line."""

    runtime: ContainerRuntime = "none"
    partition: str | None = None
    account: str | None = None
    image_file: str | None = None
    """Absolute path of an image on the nodes, for Apptainer and Enroot, instead of cluster.image."""


def build_slurm_script(launch: Launch, options: SlurmOptions) -> str:
    """Build the script for sbatch."""
    launch = replace(launch, image=options.image_file or launch.image)
    wrapping = wrap_steps(launch, options.runtime)
    files = {
        **launch.files,
        f"{launch.folder}/{START_NODE}": _build_start_node(launch),
        **build_await_nodes(launch),
    }
    comment, settings = _split_comment(launch)
    return "\n".join(
        [
            comment,
            *_build_directives(launch, options),
            *settings,
            *build_requirements(launch),
            *(build_exports(launch, without=POD_USER) if wrapping.inherits_environment else []),
            "",
            _CHECK_NODES.format(nodes=launch.nodes),
            *build_token(launch, f'"$files/{TOKEN_FILE}-$SLURM_JOB_ID"'),
            "",
            *build_files(files),
            *build_programs_file(launch),
            "",
            *wrapping.prepare,
            *_build_steps(launch, wrapping),
            *build_programs(launch),
        ]
    )


def _split_comment(launch: Launch) -> tuple[str, list[str]]:
    """The comment, which sbatch's directives follow, and the commands after them."""
    usage = [
        "  sbatch SCRIPT                            start the job",
        "  scancel --batch --signal=TERM JOB_ID     end it after the program has saved its state",
        "  scancel JOB_ID                           end it at once",
    ]
    lines = build_head_comment(launch, "slurm", usage)
    first = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(lines[:first]), lines[first:]


def _build_directives(launch: Launch, options: SlurmOptions) -> list[str]:
    """The resources. Slurm gives all nodes of a job the same, so that the largest group counts."""
    groups = launch.groups
    memory = ceil((max(group.memory for group in groups) + launch.head_memory) / MIB)
    devices = max(group.devices for group in groups)
    minutes = ceil((launch.run_seconds + launch.grace_seconds) / 60) if launch.run_seconds else None
    directives = {
        "job-name": launch.name,
        "nodes": launch.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": max(group.cpus for group in groups),
        "mem": f"{memory}M",
        "gpus-per-node": devices or None,
        "time": minutes,
        # Slurm then sends SIGTERM to this script alone, this many seconds before the end of the time.
        "signal": f"B:TERM@{launch.grace_seconds}",
        "partition": options.partition,
        "account": options.account,
        "output": f"{launch.name}-%j.log",
        # Otherwise a job that starts again empties its log.
        "open-mode": "append",
    }
    # Slurm itself queues a job again after a preemption, and after the loss of the node with this script.
    switches = ["no-kill", "no-requeue" if launch.max_disruptions == 0 else "requeue"]
    given = [f"{name}={value}" for name, value in directives.items() if value is not None]
    return [f"#SBATCH --{option}" for option in (*given, *switches)]


_CHECK_NODES = """\
fail() {{
  echo "rlt: $1" >&2
  exit 1
}}

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
[ "${{#nodes[@]}}" -eq {nodes} ] ||
  fail "the job needs {nodes} nodes and has ${{#nodes[@]}} (${{nodes[*]}}): run sbatch without --nodes"
head=${{nodes[0]}}

# The address by which Slurm reaches the head. The head may resolve its own name to a loopback address.
address=$(scontrol show node "$head" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')
RLT_HEAD=$({{ getent ahosts "$address"; hostname -I | tr ' ' '\\n'; }} |
  awk '$1 && !/^(127[.]|::1|fe80:)/ && !found {{ print $1; found = 1 }}')
case $RLT_HEAD in *:*) RLT_HEAD="[$RLT_HEAD]" ;; esac
# Jobs on the same node have different ports.
RLT_PORT=$((20000 + SLURM_JOB_ID % 1000 * 10))
export RLT_HEAD RLT_PORT"""


def _build_start_node(launch: Launch) -> str:
    """The script that runs on each node, in its container."""
    groups = "\n".join(build_node_choice(launch, "SLURM_NODEID"))
    return _START_NODE.format(groups=groups, ended=shlex.quote(f"{launch.folder}/{ENDED}"))


_START_NODE = """\
#!/bin/bash
# Runs Ray on a node of a Slurm job until the job ends.
set -euo pipefail
ulimit -n "$(ulimit -Hn)"
if [ -n "${{ROCR_VISIBLE_DEVICES:-}}" ]; then  # of Slurm; Ray and vLLM read HIP_VISIBLE_DEVICES
  export HIP_VISIBLE_DEVICES=$ROCR_VISIBLE_DEVICES
  unset ROCR_VISIBLE_DEVICES
fi
{groups}
if [ "$SLURM_NODEID" -eq 0 ]; then
  node+=(--head --node-ip-address="$RLT_HEAD" --port="$RLT_PORT" --temp-dir="/tmp/ray-$SLURM_JOB_ID")
  node+=(--dashboard-host=127.0.0.1 --dashboard-port=$((RLT_PORT + 1)) --ray-client-server-port=$((RLT_PORT + 2)))
else
  address=${{RLT_HEAD#[}}
  until (exec 3<> "/dev/tcp/${{address%]}}/$RLT_PORT") 2> /dev/null; do sleep 1; done
  node+=(--address="$RLT_HEAD:$RLT_PORT")
fi
node+=(--dashboard-agent-listen-port=$((RLT_PORT + 3)) --min-worker-port=0 --max-worker-port=0)
code=0
ray start "${{node[@]}}" --node-name="$SLURMD_NODENAME" --block || code=$?
echo "rlt: Ray ended on $SLURMD_NODENAME with exit code $code" >&2
touch {ended}-"$SLURM_JOB_ID"
exit "$code"
"""


def _build_steps(launch: Launch, wrapping: Wrapping) -> list[str]:
    """The steps of the job: Ray on all nodes, then on the head the wait and the program."""
    timeout = launch.pending_seconds or JOIN_TIMEOUT_S
    return [
        build_failure_functions(launch),
        _STEPS.format(
            nodes=launch.nodes,
            on_nodes=" ".join(["srun --overlap", *wrapping.step]),
            run=" ".join([*wrapping.run, ""]) if wrapping.run else "",
            exec=" ".join([*wrapping.exec, ""]) if wrapping.exec else "",
            ready=f"{wrapping.ready}\n" if wrapping.ready else "",
            timeout=timeout,
            ended=ENDED,
            submission=f"{launch.name}-$SLURM_JOB_ID",
            program=shlex.quote(launch.program),
            token='rm -f "$RAY_AUTH_TOKEN_PATH"' if launch.has_token else ":",
            keep=_KEEP.format(seconds=launch.keep_seconds) if launch.keep_seconds else "",
        ),
    ]


_KEEP = """\
  echo "rlt: Ray is kept for {seconds} s (spec.failurePolicy.keepClusterSeconds): scancel $SLURM_JOB_ID ends it" >&2
  sleep {seconds} &
  wait "$!"
"""

_STEPS = """\
on_head() {{
  {on_nodes} --nodes=1 --ntasks=1 --nodelist="$head" {exec}"$@"
}}

# Ends Ray on all nodes: srun forwards SIGTERM. Slurm ends what is left.
finish() {{
  code=$?
  trap - EXIT
  trap '' TERM
  kill "$nodes_step" 2> /dev/null || true
  wait
  rm -f "$ended"
  {token}
  exit "$code"
}}

# Waits for a step of the head. The job ends or starts again if Ray ends on a node, which may end the step first.
await_step() {{
  code=0
  wait -n "$nodes_step" "$1" || code=$?
  ray=running
  {{ [ ! -e "$ended" ] && kill -0 "$nodes_step" 2> /dev/null; }} || ray=ended
  [ "$code" -ne 0 ] || [ "$ray" = ended ] || return 0
  lost=$(find_lost | sort | paste -sd,)
  if [ "$ray" = ended ] || [ -n "$lost" ]; then restart "$lost"; fi
{keep}  exit "$code"
}}

ended="$files/{ended}-$SLURM_JOB_ID"
rm -f "$ended"
{on_nodes} --nodes={nodes} --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 \\
  {run}bash "$files/start-node.sh" &
nodes_step=$!
trap finish EXIT
trap 'exit 143' TERM

{ready}dashboard=http://127.0.0.1:$((RLT_PORT + 1))
on_head python3 "$files/await_nodes.py" "$dashboard" {timeout} "${{nodes[@]}}" &
await_step "$!"

submission={submission}
on_head ray job submit --address="$dashboard" --submission-id="$submission" -- bash {program} \\
  --failures "$failures" &
program=$!
# `ray job stop` sends SIGTERM to the program, and waits until it has saved its state. Ray ends after the step of the
# program, which prints the last lines of the output.
trap '{{ on_head ray job stop --address="$dashboard" "$submission" && wait "$program"; }} || true; exit 143' TERM
await_step "$program"
"""
