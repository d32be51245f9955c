"""The processes of rlt's trainer that Ray starts with a worker pod, before the driver asks for its actors.

Their imports take longer than everything else at the start of an actor. They run while the other pods and the driver
start.
"""

from __future__ import annotations

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.builtin.training_config import count_cpus, count_devices
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import has_engines, rollout_group, trains
from rlt_pod.prestart import SUCCESSORS

MODULE = "rlt_trainer.preload"
"""The trainer's module that makes the imports."""


def list_worker_variables(spec: RLTrainingJobSpec, group: WorkerGroup) -> dict[str, str]:
    """List the variables that make Ray start the pod's processes with it, as many as the pod has actors.

    Ray starts one for each of its CPUs at once, up to its limit of processes that start at the same time. It ends those
    above a soft limit, which by default is the number of CPUs that no bundle reserves (worker_pool.cc, Ray 2.60). An
    actor with a runtime_env gets none of them.

    With restartPolicy InPlace, each actor requests the process for the next program in advance.
    """
    actors = str(count_actors(spec, group))
    in_place = spec.failure_policy.restart_policy == "InPlace"
    return {
        **({SUCCESSORS: "1"} if in_place else {}),
        "OMP_NUM_THREADS": str(max(1, count_cpus(group) // _count_processes(group))),  # libraries read it at import
        "RAY_enable_worker_prestart": "1",
        "RAY_preload_python_modules": MODULE,
        "RAY_num_workers_soft_limit": actors,
        "RAY_worker_maximum_startup_concurrency": actors,
    }


def count_actors(spec: RLTrainingJobSpec, group: WorkerGroup) -> int:
    """Return the number of actors in a pod of the group: train workers, and engines or their parts."""
    processes = _count_processes(group)
    engines = max(1, processes // spec.rollout.tensor_parallel_size)
    generating = rollout_group(spec)
    if generating is not None:
        return engines if group is generating else processes
    if not trains(spec):
        return engines
    return processes + engines if has_engines(spec) else processes


def _count_processes(group: WorkerGroup) -> int:
    """Return the number of processes that use the pod's devices: one without devices."""
    return max(1, count_devices(group))
