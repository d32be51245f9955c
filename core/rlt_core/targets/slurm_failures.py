"""How a Slurm job starts again: spec.failurePolicy as functions of the script.

A disruption is a preemption or the loss of a node: Slurm or the script queues the job again, within maxDisruptions. A
failure is the end of the program, or of Ray on a node that responds: within maxRestarts. `supervise` of rlt_pod starts
a failed program again on the same nodes, and counts in the same file.
"""

from __future__ import annotations

from rlt_core.targets.launch import Launch

FAILURES = "failures"
"""Prefix of a file name: the file has a line for each failure of the job."""


def build_failure_functions(launch: Launch) -> str:
    """The lines of the script that count disruptions, find lost nodes and queue the job again."""
    limit = launch.max_disruptions
    return _FUNCTIONS.format(
        failures=FAILURES,
        restarts=launch.max_restarts,
        exceeded=_EXCEEDED.format(limit=limit) if limit is not None else "",
        reached=_REACHED.format(limit=limit) if limit is not None else "",
        read_excluded=_READ_EXCLUDED if launch.excludes_faulty_nodes else "",
        exclude=_EXCLUDE if launch.excludes_faulty_nodes else "",
    )


_EXCEEDED = """\
disruptions=$((${{SLURM_RESTART_COUNT:-0}} - $(grep -c '^ray' "$failures" || true)))
[ "$disruptions" -le {limit} ] || fail "disruption $disruptions exceeds spec.failurePolicy.maxDisruptions: {limit}"
"""

_REACHED = """\
    [ "$disruptions" -lt {limit} ] || fail "$reason, and spec.failurePolicy.maxDisruptions is {limit}"
"""

_READ_EXCLUDED = """\
  excluded=$(scontrol --oneliner show job "$SLURM_JOB_ID" | sed -n 's/.* ExcNodeList=\\([^ ]*\\).*/\\1/p')
  [ "$excluded" != "(null)" ] || excluded=""
"""

_EXCLUDE = """\
  # Slurm changes this list of a queued job alone.
  [ -z "$1" ] || scontrol update JobId="$SLURM_JOB_ID" ExcNodeList="${excluded:+$excluded,}$1" || true
"""

_FUNCTIONS = """\
# A line for each failure of the program or of Ray. All other restarts are disruptions: a preemption, or a lost node.
failures="$files/{failures}-$SLURM_JOB_ID"
touch "$failures"
earlier=$(wc -l < "$failures")
{exceeded}
# Prints the nodes on which Slurm cannot run a step.
find_lost() {{
  for node in "${{nodes[@]}}"; do
    timeout 30 srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" true > /dev/null 2>&1 || echo "$node" &
  done
  wait
}}

# Queues the job again after the loss of nodes ($1), or an end of Ray. Slurm chooses the nodes. The program resumes.
restart() {{
  if [ -n "$1" ]; then
    reason="the job has lost $1"
{reached}    # The failure that it caused does not count.
    [ "$(wc -l < "$failures")" -eq "$earlier" ] || sed -i '$d' "$failures"
  else
    reason="Ray has ended on a node, whose name is above"
    [ "$(wc -l < "$failures")" -lt {restarts} ] || fail "$reason"
    echo ray >> "$failures"
  fi
  echo "rlt: $reason: the job starts again" >&2
{read_excluded}  trap '' TERM
  scontrol requeue "$SLURM_JOB_ID" || fail "$reason"
{exclude}  exit 1
}}
"""
