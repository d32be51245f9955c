"""The checks of the stage services: limits, programs and devices. Pure functions of the measurements."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from rlt_pod.preflight.result import (
    Result,
    check_answers,
    failed,
    format_gib,
    format_pods,
    format_reasons,
    passed,
    warned,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rlt_pod.preflight.expected import Expected, Group
    from rlt_pod.preflight.facts.service_facts import ServiceFacts
    from rlt_pod.preflight.measure import Services

MIN_FREE_SHARE = 0.9
"""Share of an accelerator's memory that must be free. The measuring process itself uses less than a tenth."""
MIN_MEMORY_SHARE = 0.9
"""Share of accelerator.memory that torch must see: drivers reserve a part, and 80GB are 74.5Gi."""
MIN_OPEN_FILES = 65536
"""The limit of open files that Ray recommends: docs.ray.io, "Tuning Operating System Settings"."""
MIN_PROCESSES = 4096
"""Processes and threads of a pod. An estimate: Ray, torch, NCCL and data loaders start hundreds of threads."""
MIN_NVIDIA_DRIVERS = {12: 525, 13: 580}
"""Major version of CUDA -> the first branch of NVIDIA's driver that runs it, without a forward-compatibility package:
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html. torch 2.13 contains CUDA 13."""
MIN_BFLOAT16 = (8, 0)
"""The compute capability from which vLLM supports bfloat16 (vllm/platforms/cuda.py, check_if_supports_dtype)."""
CUDA_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
"""Distributions with the version of CUDA that torch contains. The name has no suffix from CUDA 13 on."""
SHOWN_VERSIONS = ("torch", "ray", "python", "nvidia driver", "amdgpu driver")
"""Versions in the value of the check. All versions are compared."""


def pods_answer(expected: Expected, measured: Services) -> Result | None:
    """Every pod answers."""
    return check_answers(measured.unanswered)


def ray_has_all_resources(expected: Expected, measured: Services) -> Result:
    """The workers have joined Ray, with the CPUs and accelerators of the spec: all, or all with which the program
    starts."""
    wanted = Counter((each.cpus, each.devices) for each in expected.workers for _ in range(each.replicas))
    needed = Counter((each.cpus, each.devices) for each in expected.workers for _ in range(each.needed))
    found = Counter((each.cpus, each.devices) for each in measured.nodes)
    nodes = sum(found.values())
    devices = sum(each.devices for each in measured.nodes)
    value = _format_nodes(nodes, devices)
    limit = _format_nodes(sum(needed.values()), sum(each.needed * each.devices for each in expected.workers))
    if all(needed[key] <= found[key] <= wanted[key] for key in {*wanted, *found}):
        which = f"{nodes} of {sum(wanted.values())}" if found != wanted else "All"
        message = f"{which} workers have joined Ray with the resources of the spec."
        return passed("ray-nodes", value, message, threshold=limit)
    extra = {key for key in found if found[key] > wanted[key]}
    pods = [each.pod for each in measured.nodes if (each.cpus, each.devices) in extra]
    missing = sum(needed.values()) - nodes
    message = (
        f"{missing} of {sum(needed.values())} workers have not joined Ray."
        if missing > 0
        else f"Ray has {_format_resources(found)}, but the spec gives {_format_resources(wanted)}."
    )
    remedy = (
        "Inspect the workers that are missing (`rlt logs --pod`), the device plugin, and num-cpus and num-gpus in your "
        "podTemplate's variables."
    )
    return failed("ray-nodes", value, message, remedy, pods, threshold=limit)


def shared_memory_is_large_enough(expected: Expected, measured: Services) -> Result:
    """/dev/shm has the size that the pod requests. Ray's object store, NCCL and weights use it."""
    requested = {each.pod: _find_group(expected, each).shared_memory for each in measured.facts}
    small = {each.pod: each for each in measured.facts if each.shared_memory < requested[each.pod]}
    smallest = min((small.values() if small else measured.facts), key=lambda each: each.shared_memory)
    value = format_gib(smallest.shared_memory)
    limit = format_gib(requested[smallest.pod])
    if not small:
        return passed("shared-memory", value, f"/dev/shm has {value} or more in every pod.", threshold=limit)
    message = f"/dev/shm of {format_pods(small)} has {value}, but the job requests {limit}."
    remedy = (
        "Set the size of the pod's volume at /dev/shm (resources.sharedMemory; in your podTemplate, an emptyDir with "
        "medium: Memory)."
    )
    return failed("shared-memory", value, message, remedy, small, threshold=limit)


def limits_are_high(expected: Expected, measured: Services) -> Result:
    """The limits of open files and processes are those that Ray needs."""
    files = {each.pod: each.open_files for each in measured.facts if each.open_files is not None}
    processes = {each.pod: each.processes for each in measured.facts if each.processes is not None}
    fewest = [min(each.values(), default=None) for each in (files, processes)]
    value = ", ".join(
        f"{'unlimited' if count is None else count} {name}"
        for count, name in ((fewest[0], "open files"), (fewest[1], "processes"))
    )
    threshold = f"{MIN_OPEN_FILES}, {MIN_PROCESSES}"
    low = {pod for pod, count in files.items() if count < MIN_OPEN_FILES}
    low |= {pod for pod, count in processes.items() if count < MIN_PROCESSES}
    if not low:
        return passed("limits", value, "The limits are sufficient for Ray.", threshold=threshold)
    remedy = (
        "Raise LimitNOFILE of the container runtime and podPidsLimit of the kubelet. Beyond the limits, Ray fails with "
        "`Too many open files` or `Resource temporarily unavailable`."
    )
    return warned("limits", value, f"{format_pods(low)} has low limits.", remedy, low, threshold=threshold)


def gpus_are_healthy(expected: Expected, measured: Services) -> Result | None:
    """nvidia-smi or rocm-smi reports no hardware error."""
    reported = {each.pod: each.gpu_problems for each in measured.facts if each.gpu_problems is not None}
    if not reported:
        return None
    problems = {pod: ", ".join(found) for pod, found in reported.items() if found}
    if not problems:
        return passed("gpu-health", f"{len(reported)} pods", "No accelerator reports a hardware error.")
    remedy = "Reset or replace the accelerator, and exclude the node meanwhile (cordon, or a nodeSelector)."
    return failed("gpu-health", f"{len(problems)} pods", f"{format_reasons(problems)}.", remedy, problems)


def accelerators_are_available(expected: Expected, measured: Services) -> Result | None:
    """torch sees exactly one accelerator in each process, no two processes share one, and its memory is free."""
    groups = {each.pod: _find_group(expected, each) for each in measured.facts if not each.is_head}
    devices = [each for each in measured.devices if each.pod in groups and groups[each.pod].devices]
    if not devices:
        return None
    value = ", ".join(sorted({each.name for each in devices if each.name})) or "none"
    remedy = "Inspect the node's device plugin and driver, and variables that hide devices (CUDA_VISIBLE_DEVICES)."
    missing = {each.pod for each in devices if each.count != 1}
    if missing:
        counts = sorted({each.count for each in devices if each.count != 1})
        message = (
            f"torch sees {' or '.join(map(str, counts))} accelerators in a process of {format_pods(missing)}, not 1."
        )
        return failed("accelerators", value, message, remedy, missing)
    uses = Counter(each.uuid for each in devices)
    shared = {each.pod for each in devices if each.uuid and uses[each.uuid] > 1}
    if shared:
        message = f"Two processes of {format_pods(shared)} have the same accelerator."
        return failed("accelerators", value, message, remedy, shared)
    busy = {each.pod: each for each in devices if each.free < MIN_FREE_SHARE * each.total}
    if busy:
        fullest = min(busy.values(), key=lambda each: each.free / each.total)
        used = f"{format_gib(fullest.total - fullest.free)} of {format_gib(fullest.total)}"
        message = f"Other processes use an accelerator of {format_pods(busy)}: {used} are in use."
        remedy = "End the processes (nvidia-smi or rocm-smi on the node), or exclude the node from this job."
        return failed("accelerators", used, message, remedy, busy)
    small = {each.pod: each for each in devices if each.total < MIN_MEMORY_SHARE * groups[each.pod].device_memory}
    if small:
        least = min(small.values(), key=lambda each: each.total)
        used = format_gib(least.total)
        limit = format_gib(groups[least.pod].device_memory)
        message = f"An accelerator of {format_pods(small)} has {used}, and the job is validated for {limit}."
        remedy = (
            "Select nodes with larger accelerators (nodeSelector), or correct accelerator.memory in the worker group."
        )
        return failed("accelerators", used, message, remedy, small, threshold=limit)
    if len({each.name for each in devices}) > 1:
        message = f"The accelerators are of several kinds: {value}. The slowest kind limits the speed."
        return warned("accelerators", value, message, "Set a nodeSelector in the worker groups.")
    return passed("accelerators", f"{len(devices)} x {value}", "Each process has one accelerator with free memory.")


def data_type_is_supported(expected: Expected, measured: Services) -> Result | None:
    """The accelerators compute in the data type of the job."""
    known = [each for each in measured.devices if each.capability is not None]
    if not expected.bfloat16 or not known:
        return None
    threshold = ".".join(map(str, MIN_BFLOAT16))
    oldest = min(known, key=lambda each: each.capability or MIN_BFLOAT16)
    value = f"{oldest.name} {'.'.join(map(str, oldest.capability or ()))}"
    old = {each.pod for each in known if (each.capability or MIN_BFLOAT16) < MIN_BFLOAT16}
    if not old:
        return passed("data-type", value, "The accelerators support bfloat16.", threshold=threshold)
    message = f"{oldest.name} of {format_pods(old)} does not support bfloat16, which the engine would reject."
    remedy = (
        "Set model.dtype to float32 (of verl, actor_rollout_ref.rollout.dtype to float16), or select nodes with newer "
        "accelerators (nodeSelector)."
    )
    return failed("data-type", value, message, remedy, old, threshold=threshold)


def nvidia_driver_runs_cuda(expected: Expected, measured: Services) -> Result | None:
    """The node's NVIDIA driver runs the CUDA that torch contains. With an older driver, torch sees no accelerator."""
    drivers = {each.pod: each.versions["nvidia driver"] for each in measured.facts if "nvidia driver" in each.versions}
    minimums = {each.pod: _find_minimum_driver(each) for each in measured.facts if each.pod in drivers}
    required = {pod: minimum for pod, minimum in minimums.items() if minimum is not None}
    if not required:
        return None
    old = {pod for pod in required if _parse_major(drivers[pod]) < required[pod]}
    if old:
        oldest = min((drivers[pod] for pod in old), key=_parse_major)
        minimum = max(required[pod] for pod in old)
        message = f"The NVIDIA driver of {format_pods(old)} is {oldest}; CUDA of the image needs {minimum} or newer."
        remedy = "Update the driver of the node, or use an image with a torch for an older CUDA."
        return failed("nvidia-driver", oldest, message, remedy, old, threshold=str(minimum))
    value = "/".join(sorted({drivers[pod] for pod in required}))
    limit = str(max(required.values()))
    return passed("nvidia-driver", value, "The driver runs the CUDA of the image.", threshold=limit)


def versions_agree(expected: Expected, measured: Services) -> Result:
    """All pods have the same programs, libraries and drivers. (The head has no accelerator and may have no driver.)"""
    pods_by_version: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for each in measured.facts:
        for name, version in each.versions.items():
            pods_by_version[name][version].append(each.pod)
    shown = [name for name in SHOWN_VERSIONS if name in pods_by_version]
    value = ", ".join(f"{name} {'/'.join(sorted(pods_by_version[name]))}" for name in shown)
    different = {name: versions for name, versions in pods_by_version.items() if len(versions) > 1}
    if not different:
        return passed("versions", value, f"All pods have the same versions of {', '.join(sorted(pods_by_version))}.")
    differences = [
        f"{name} is " + " and ".join(f"{version} in {format_pods(pods)}" for version, pods in sorted(versions.items()))
        for name, versions in sorted(different.items())
    ]
    minority = {pod for versions in different.values() for pods in _minorities(versions.values()) for pod in pods}
    remedy = "Use one image, by digest, and nodes with one driver version (nodeSelector)."
    return failed("versions", value, "; ".join(differences) + ".", remedy, minority)


def _find_group(expected: Expected, facts: ServiceFacts) -> Group:
    """Return the group of a pod. A pod without a known group counts as one of the group with the smallest /dev/shm."""
    if facts.is_head:
        return expected.head
    named = [each for each in expected.workers if each.name == facts.group]
    return min(named or expected.workers, key=lambda each: each.shared_memory)


def _format_nodes(nodes: int, devices: int) -> str:
    return f"{nodes} node{'s' * (nodes != 1)}" + (f", {devices} accelerators" if devices else "")


def _format_resources(counts: Counter[tuple[int, int]]) -> str:
    return " and ".join(
        f"{count} x {cpus} CPUs" + (f" with {devices} accelerators" if devices else "")
        for (cpus, devices), count in sorted(counts.items())
    )


def _find_minimum_driver(facts: ServiceFacts) -> int | None:
    """Return the driver branch that the CUDA in the image of the pod needs; None if it contains no known CUDA."""
    versions = (facts.versions[name] for name in CUDA_RUNTIMES if name in facts.versions)
    return next((MIN_NVIDIA_DRIVERS.get(_parse_major(version)) for version in versions), None)


def _parse_major(version: str) -> int:
    return int(version.partition(".")[0])


def _minorities(groups: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    return sorted(groups, key=len)[:-1]


CHECKS = (
    (pods_answer, "services"),
    (ray_has_all_resources, "services"),
    (shared_memory_is_large_enough, "services"),
    (limits_are_high, "services"),
    (gpus_are_healthy, "services"),
    (nvidia_driver_runs_cuda, "services"),
    (accelerators_are_available, "devices"),
    (data_type_is_supported, "devices"),
    (versions_agree, "services"),
)
"""Each check, and the measurement that it is based on."""
