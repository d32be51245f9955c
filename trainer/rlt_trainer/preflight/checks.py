"""The checks of pods: pure functions of the measurements. Each returns one result: passed, warned or failed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from rlt_api.rules.model_size import model_size
from rlt_api.rules.shared_memory import format_gib
from rlt_api.status import PreflightCheck
from rlt_api.training_config import Preflight, TrainingConfig
from rlt_trainer.preflight.measurements import Folder, Measurements, Pod
from rlt_trainer.preflight.pod_facts import data_files, model_folders

MIN_FREE_SHARE = 0.9
"""Share of an accelerator's memory that must be free. The measuring process itself uses less than a tenth."""
MAX_SKEW_S = 2.0
"""Larger clock differences are reported: file times are wrong, and logs of nodes cannot be compared."""
BYTES_PER_PARAMETER = 16
"""Space for one checkpoint in float32 with Adam's two moments (12), and the exported model (4)."""
MIN_FREE_BYTES = 2**30
"""Space for logs and rollouts, if the size of the model is not known."""
MIN_NVIDIA_DRIVERS = {12: 525, 13: 580}
"""Major version of CUDA -> the first branch of NVIDIA's driver that runs it, without a forward-compatibility package:
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html. torch 2.13 contains CUDA 13."""
CUDA_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
"""Distributions with the version of CUDA that torch contains. The name has no suffix from CUDA 13 on."""
SHOWN_VERSIONS = ("torch", "ray", "python", "nvidia driver", "amdgpu driver")
"""Versions in the value of the check. All versions are compared."""
MAX_NAMED_PODS = 3
"""Maximum number of pods in a message. The check lists all of them."""

Check = Callable[[TrainingConfig, Preflight, Measurements], PreflightCheck | None]


def ranks_answer(config: TrainingConfig, expected: Preflight, measured: Measurements) -> PreflightCheck:
    """Every process of the training starts and answers."""
    unanswered, count = measured.unanswered, len(measured.devices)
    value = f"{count} process{'es' * (count != 1)}"
    if not unanswered:
        return passed("ranks", value, "All processes have started.")
    reasons = "; ".join(f"{pod}: {reason}" for pod, reason in select_named(unanswered))
    message = f"No answer from {format_pods(unanswered)}: {reasons}."
    remedy = "Inspect the pod's last state (kubectl describe pod), and verify that its node is healthy."
    return failed("ranks", value, message, remedy, unanswered)


def shared_memory_is_large_enough(
    config: TrainingConfig, expected: Preflight, measured: Measurements
) -> PreflightCheck:
    """/dev/shm has the size that the pod requests. Ray's object store, NCCL and weights use it."""
    requested = {
        None: expected.head_shared_memory,
        "train": expected.shared_memory,
        "rollout": expected.rollout_shared_memory,
    }
    small = {pod.name: pod for pod in measured.pods if pod.shared_memory < requested[pod.role]}
    smallest = min((small.values() if small else measured.pods), key=lambda pod: pod.shared_memory)
    value = format_gib(smallest.shared_memory)
    if not small:
        return passed("shared-memory", value, f"/dev/shm has {value} or more in every pod.")
    request = format_gib(requested[smallest.role])
    message = f"/dev/shm of {format_pods(small)} has {value}, but the job requests {request}."
    remedy = (
        "Set the size of the pod's volume at /dev/shm (resources.sharedMemory; in your podTemplate, an emptyDir with "
        "medium: Memory)."
    )
    return failed("shared-memory", value, message, remedy, small)


def accelerators_are_available(
    config: TrainingConfig, expected: Preflight, measured: Measurements
) -> PreflightCheck | None:
    """torch sees exactly one accelerator in each process, no two processes share one, and its memory is free."""
    required = {"train": min(1, config.devices_per_worker), "rollout": min(1, config.rollout_devices_per_worker)}
    if not any(required.values()):
        return None
    roles = {pod.name: pod.role for pod in measured.pods}
    devices = [device for device in measured.devices if required.get(roles.get(device.pod) or "", 0)]
    value = ", ".join(sorted({device.name for device in devices if device.name})) or "none"
    remedy = "Inspect the node's device plugin and driver, and variables that hide devices (CUDA_VISIBLE_DEVICES)."
    if missing := {device.pod for device in devices if device.count != 1}:
        counts = sorted({device.count for device in devices if device.count != 1})
        message = (
            f"torch sees {' or '.join(map(str, counts))} accelerators in a process of {format_pods(missing)}, not 1."
        )
        return failed("accelerators", value, message, remedy, missing)
    uses = Counter(device.uuid for device in devices)
    if shared := {device.pod for device in devices if device.uuid and uses[device.uuid] > 1}:
        message = f"Two processes of {format_pods(shared)} have the same accelerator."
        return failed("accelerators", value, message, remedy, shared)
    if busy := {device.pod: device for device in devices if device.free < MIN_FREE_SHARE * device.total}:
        fullest = min(busy.values(), key=lambda device: device.free / device.total)
        used = f"{format_gib(fullest.total - fullest.free)} of {format_gib(fullest.total)}"
        message = f"Other processes use an accelerator of {format_pods(busy)}: {used} are in use."
        remedy = "End the processes (nvidia-smi or rocm-smi on the node), or exclude the node from this job."
        return failed("accelerators", used, message, remedy, busy)
    if len({device.name for device in devices}) > 1:
        message = f"The accelerators are of several kinds: {value}. The slowest kind limits the speed."
        return warned("accelerators", value, message, "Set a nodeSelector in the worker groups.")
    return passed("accelerators", f"{len(devices)} x {value}", "Each process has one accelerator with free memory.")


def nvidia_driver_runs_cuda(
    config: TrainingConfig, expected: Preflight, measured: Measurements
) -> PreflightCheck | None:
    """The node's NVIDIA driver runs the CUDA that torch contains. With an older driver, torch sees no accelerator."""
    drivers = {pod.name: driver for pod in measured.pods if (driver := pod.versions.get("nvidia driver"))}
    required = {pod.name: minimum for pod in measured.pods if (minimum := _find_minimum_driver(pod)) is not None}
    compared = drivers.keys() & required.keys()
    if not compared:
        return None
    value = "/".join(sorted({drivers[pod] for pod in compared}))
    if old := {pod for pod in compared if _parse_major(drivers[pod]) < required[pod]}:
        oldest = min((drivers[pod] for pod in old), key=_parse_major)
        minimum = max(required[pod] for pod in old)
        message = f"The NVIDIA driver of {format_pods(old)} is {oldest}; CUDA of the image needs {minimum} or newer."
        remedy = "Update the driver of the node, or use an image with a torch for an older CUDA."
        return failed("nvidia-driver", oldest, message, remedy, old)
    return passed("nvidia-driver", value, "The driver runs the CUDA of the image.")


def _find_minimum_driver(pod: Pod) -> int | None:
    """Return the driver branch that the CUDA in the image of the pod needs; None if it contains no known CUDA."""
    versions = (version for name in CUDA_RUNTIMES if (version := pod.versions.get(name)))
    return next((MIN_NVIDIA_DRIVERS.get(_parse_major(version)) for version in versions), None)


def _parse_major(version: str) -> int:
    return int(version.partition(".")[0])


def versions_agree(config: TrainingConfig, expected: Preflight, measured: Measurements) -> PreflightCheck:
    """All pods have the same programs, libraries and drivers. (The head has no accelerator and may have no driver.)"""
    pods_by_version: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for pod in measured.pods:
        for name, version in pod.versions.items():
            pods_by_version[name][version].append(pod.name)
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


def run_directory_is_shared(config: TrainingConfig, expected: Preflight, measured: Measurements) -> PreflightCheck:
    """Every pod can write the run directory and see the files that other pods write there."""
    name, path, folders = "run-directory", config.run_directory, measured.folders
    free = min((folder.free for folder in folders), default=0)
    value = f"{format_gib(free)} free"
    if broken := {folder.pod: folder.error for folder in folders if folder.error}:
        message = f"{format_pods(broken)} cannot write {path}: {next(iter(broken.values()))}."
        remedy = "Verify spec.storage: the PVC must be writable by security.runAsUser or fsGroup, and have free space."
        return failed(name, value, message, remedy, broken)
    if expected.shared_storage and (unseen := _find_unseen(folders)):
        message = f"Other pods do not see the files of {format_pods(unseen)} in {path}."
        return failed(name, value, message, "Use a PVC that several nodes can share (ReadWriteMany).", unseen)
    size = model_size(config.model)
    required = int(BYTES_PER_PARAMETER * size.parameters) if size else MIN_FREE_BYTES
    if free < required:
        need = f"a checkpoint with the exported model needs about {format_gib(required)}"
        message = f"{path} has {format_gib(free)} left; {need}."
        return warned(name, value, message, "Delete files or use a larger volume.")
    if not expected.shared_storage:
        return passed(name, value, "All pods can write it. Without a PVC, each pod has its own.")
    return passed(name, value, "All pods can write it and see each other's files there.")


def files_can_be_read(config: TrainingConfig, expected: Preflight, measured: Measurements) -> PreflightCheck | None:
    """Every pod can read the model, and the head can read the prompts. Prompts missing in a worker are a warning."""
    model, data = model_folders(config), data_files(config)
    if not model and not data:
        return None
    value = f"{len(model) + len(data)} paths"
    remedy = "Put it on a volume that all pods mount (spec.storage), readable by security.runAsUser."
    fatal = {
        pod.name: sorted(pod.unreadable.items())
        for pod in measured.pods
        if any(path in model or pod.role is None for path in pod.unreadable)
    }
    if fatal:
        return failed("files", value, f"{_format_unreadable(fatal)}.", remedy, fatal)
    if partial := {pod.name: sorted(pod.unreadable.items()) for pod in measured.pods if pod.unreadable}:
        message = (
            f"{_format_unreadable(partial)}. The head reads the prompts, but a reward or environment may need them."
        )
        return warned("files", value, message, remedy, partial)
    return passed("files", value, "Every pod can read them.")


def chat_template_exists(config: TrainingConfig, expected: Preflight, measured: Measurements) -> PreflightCheck | None:
    """Conversations require a template. It is not known before the files are read whether prompts are conversations."""
    if measured.has_chat_template is None or config.data.chat_template:
        return None
    if measured.has_chat_template:
        return passed("chat-template", None, "The tokenizer has a chat template.")
    message = f"The tokenizer in {config.model.path} has no chat template, which prompts that are conversations need."
    return warned("chat-template", None, message, "Use an instruct model, or set data.chatTemplate.")


def host_names_resolve(config: TrainingConfig, expected: Preflight, measured: Measurements) -> PreflightCheck:
    """Each pod's host name resolves. gloo looks it up unless GLOO_SOCKET_IFNAME selects the interface."""
    unresolved = [pod.name for pod in measured.pods if not pod.resolves]
    if not unresolved:
        return passed("host-names", None, "Every pod's host name resolves to an address.")
    message = (
        f"The host name of {format_pods(unresolved)} does not resolve; the interface of the pod's address is used."
    )
    remedy = "Correct /etc/hosts in the pod, or set network.socketInterface."
    return warned("host-names", None, message, remedy, unresolved)


def clocks_agree(config: TrainingConfig, expected: Preflight, measured: Measurements) -> PreflightCheck | None:
    """The clocks of all nodes differ by at most MAX_SKEW_S."""
    if not measured.skews:
        return None
    worst = max(measured.skews, key=lambda pod: abs(measured.skews[pod]))
    value = f"{abs(measured.skews[worst]):.1f} s"
    if off := {pod: skew for pod, skew in measured.skews.items() if abs(skew) > MAX_SKEW_S}:
        message = f"The clock of {format_pods(off)} differs from the head's by {value}."
        return warned("clocks", value, message, "Run chrony or systemd-timesyncd on the node.", off)
    return passed("clocks", value, "The clocks agree.")


CHECKS: list[Check] = [
    ranks_answer,
    shared_memory_is_large_enough,
    nvidia_driver_runs_cuda,
    accelerators_are_available,
    versions_agree,
    run_directory_is_shared,
    files_can_be_read,
    chat_template_exists,
    host_names_resolve,
    clocks_agree,
]


def passed(name: str, value: str | None, message: str) -> PreflightCheck:
    """Build the result of a check without a problem."""
    return PreflightCheck(name=name, result="passed", value=value, message=message)


def warned(name: str, value: str | None, message: str, remedy: str, pods: Iterable[str] = ()) -> PreflightCheck:
    """Build the result of a check whose problem does not prevent the training."""
    return PreflightCheck(
        name=name, result="warned", value=value, message=message, remedy=remedy, pods=sorted(set(pods))
    )


def failed(name: str, value: str | None, message: str, remedy: str, pods: Iterable[str] = ()) -> PreflightCheck:
    """Build the result of a check whose problem makes the training fail or differ from the spec."""
    return PreflightCheck(
        name=name, result="failed", value=value, message=message, remedy=remedy, pods=sorted(set(pods))
    )


def format_pods(pods: Iterable[str]) -> str:
    """Format pod names for a message, for example "a, b, c and 5 more"."""
    names = sorted(set(pods))
    more = f" and {len(names) - MAX_NAMED_PODS} more" if len(names) > MAX_NAMED_PODS else ""
    return ", ".join(names[:MAX_NAMED_PODS]) + more


def select_named(reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    """Select the pods that a message names, with their reasons."""
    return sorted(reasons.items())[:MAX_NAMED_PODS]


def _find_unseen(folders: Sequence[Folder]) -> set[str]:
    """Return the pods whose files most pods do not see. If there are none: the pods whose files any pod does not
    see."""
    unseen = Counter(pod for folder in folders for pod in folder.unseen)
    return {pod for pod, times in unseen.items() if times > len(folders) / 2} or set(unseen)


def _minorities(groups: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    return sorted(groups, key=len)[:-1]


def _format_unreadable(pods: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    path, reason = next(iter(pods.values()))[0]
    return f"{format_pods(pods)} cannot read {path}: {reason}"
