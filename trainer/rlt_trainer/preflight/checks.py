"""The checks on pods: pure functions of what was measured. Each finds one thing, passed, warned or failed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from rlt_api.rules.model_size import model_size
from rlt_api.rules.shared_memory import format_gib
from rlt_api.status import PreflightCheck
from rlt_api.training_config import Preflight, TrainingConfig
from rlt_trainer.preflight.measured import Folder, Measured
from rlt_trainer.preflight.pod_facts import data_files, model_folders

FREE_SHARE = 0.9
"""Share of an accelerator's memory that must be free. What a process itself needs to ask is less than a tenth."""
SKEW_S = 2.0
"""Clocks that are further apart are told of: files look older than they are, and logs cannot be compared."""
BYTES_PER_PARAMETER = 16
"""Room for one checkpoint in float32 with Adam's two moments (12), and the exported model (4)."""
LEAST_FREE = 2**30
"""Room for a run whose model's size is not known: logs and rollouts."""
SHOWN = ("torch", "ray", "python", "nvidia driver", "amdgpu driver")
"""Versions that are the value of the check; all are compared."""
NAMED = 3
"""So many pods are named in a sentence; all are in the check's list."""

Check = Callable[[TrainingConfig, Preflight, Measured], PreflightCheck | None]


def ranks_answer(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck:
    """Every process of the training starts and answers."""
    silent, count = measured.silent, len(measured.devices)
    value = f"{count} process{'es' * (count != 1)}"
    if not silent:
        return passed("ranks", value, "All have started.")
    why = "; ".join(f"{pod}: {reason}" for pod, reason in first(silent))
    message = f"No answer from {names(silent)}: {why}."
    remedy = "Look at the pod's state and last words (kubectl describe pod), and whether its node is well."
    return failed("ranks", value, message, remedy, silent)


def shared_memory_is_large_enough(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck:
    """/dev/shm has the size that the pod asked for: Ray's object store, NCCL and the weights live there."""
    asked = {
        None: expected.head_shared_memory,
        "train": expected.shared_memory,
        "rollout": expected.rollout_shared_memory,
    }
    small = {pod.name: pod for pod in measured.pods if pod.shared_memory < asked[pod.role]}
    least = min((small.values() if small else measured.pods), key=lambda pod: pod.shared_memory)
    value = format_gib(least.shared_memory)
    if not small:
        return passed("shared-memory", value, f"/dev/shm has {value} or more in every pod.")
    message = f"/dev/shm of {names(small)} has {value}, and the job asked for {format_gib(asked[least.role])}."
    remedy = (
        "Give the pod's volume at /dev/shm that size (resources.sharedMemory; emptyDir with medium: Memory in a "
        "podTemplate of your own)."
    )
    return failed("shared-memory", value, message, remedy, small)


def accelerators_are_there(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck | None:
    """torch shows each process one accelerator, another one to each, and nobody else uses it."""
    wanted = {"train": min(1, config.devices_per_worker), "rollout": min(1, config.rollout_devices_per_worker)}
    if not any(wanted.values()):
        return None
    roles = {pod.name: pod.role for pod in measured.pods}
    devices = [device for device in measured.devices if wanted.get(roles.get(device.pod) or "", 0)]
    value = ", ".join(sorted({device.name for device in devices if device.name})) or "none"
    remedy = "Look at the device plugin and the driver of the node, and at what masks devices (CUDA_VISIBLE_DEVICES)."
    if missing := {device.pod for device in devices if device.count != 1}:
        counts = sorted({device.count for device in devices if device.count != 1})
        message = f"torch shows {' or '.join(map(str, counts))} accelerators to a process of {names(missing)}, not 1."
        return failed("accelerators", value, message, remedy, missing)
    seen: dict[str, int] = defaultdict(int)
    for device in devices:
        seen[device.uuid or ""] += 1
    if twice := {device.pod for device in devices if device.uuid and seen[device.uuid] > 1}:
        message = f"Two processes of {names(twice)} have the same accelerator."
        return failed("accelerators", value, message, remedy, twice)
    if busy := {device.pod: device for device in devices if device.free < FREE_SHARE * device.total}:
        fullest = min(busy.values(), key=lambda device: device.free / device.total)
        used = f"{format_gib(fullest.total - fullest.free)} of {format_gib(fullest.total)}"
        message = f"An accelerator of {names(busy)} is in use by others: {used} are taken."
        remedy = "End what runs there (nvidia-smi, rocm-smi on the node), or keep this job off the node."
        return failed("accelerators", used, message, remedy, busy)
    if len({device.name for device in devices}) > 1:
        message = f"The accelerators are of several kinds: {value}. The slowest sets the pace."
        return warned("accelerators", value, message, "Give worker groups a nodeSelector.")
    return passed("accelerators", f"{len(devices)} x {value}", "Each process has its own, and it is free.")


def versions_agree(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck:
    """The same programs, libraries and drivers in all pods. (The head has no accelerator, and perhaps no driver.)"""
    told: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for pod in measured.pods:
        for name, version in pod.versions.items():
            told[name][version].append(pod.name)
    value = ", ".join(f"{name} {'/'.join(sorted(told[name]))}" for name in SHOWN if name in told)
    differ = {name: found for name, found in told.items() if len(found) > 1}
    if not differ:
        return passed("versions", value, f"All pods have the same: {', '.join(sorted(told))}.")
    sentences = [
        f"{name} is " + " and ".join(f"{version} in {names(pods)}" for version, pods in sorted(found.items()))
        for name, found in sorted(differ.items())
    ]
    odd = {pod for found in differ.values() for pods in _but_most(found.values()) for pod in pods}
    remedy = "Use one image, by digest, and nodes with one driver version (nodeSelector)."
    return failed("versions", value, "; ".join(sentences) + ".", remedy, odd)


def run_directory_is_shared(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck:
    """Every pod can write the run directory, and sees what the others have written there."""
    name, where, folders = "run-directory", config.run_directory, measured.folders
    free = min((folder.free for folder in folders), default=0)
    value = f"{format_gib(free)} free"
    if broken := {folder.pod: folder.error for folder in folders if folder.error}:
        message = f"{names(broken)} cannot write {where}: {next(iter(broken.values()))}."
        remedy = "Check spec.storage: its claim must be writable by security.runAsUser or fsGroup, and have space."
        return failed(name, value, message, remedy, broken)
    if expected.shared_storage and (apart := _apart(folders)):
        message = f"Other pods do not see what {names(apart)} has written in {where}."
        return failed(name, value, message, "The claim must be one that many nodes share (ReadWriteMany).", apart)
    size = model_size(config.model)
    needed = int(BYTES_PER_PARAMETER * size.parameters) if size else LEAST_FREE
    if free < needed:
        message = f"{where} has {format_gib(free)} left; a checkpoint with the exported model takes about {format_gib(needed)}."
        return warned(name, value, message, "Make room, or take a larger volume.")
    seen = "see each other's files there" if expected.shared_storage else "have one each: no claim is given"
    return passed(name, value, f"All pods can write it and {seen}.")


def files_can_be_read(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck | None:
    """Every pod reads the model, and the head the prompts: a worker without them is worth a word only."""
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
        return failed("files", value, f"{_unreadable(fatal)}.", remedy, fatal)
    if odd := {pod.name: sorted(pod.unreadable.items()) for pod in measured.pods if pod.unreadable}:
        message = f"{_unreadable(odd)}. The head reads the prompts, but a reward or environment may want them there."
        return warned("files", value, message, remedy, odd)
    return passed("files", value, "Every pod can read them.")


def chat_template_is_there(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck | None:
    """Conversations need one. Whether the prompts of files are conversations is known only when they are read."""
    if measured.has_chat_template is None or config.data.chat_template:
        return None
    if measured.has_chat_template:
        return passed("chat-template", None, "The tokenizer has one.")
    message = f"The tokenizer in {config.model.path} has no chat template, which prompts that are conversations need."
    return warned("chat-template", None, message, "Take an instruct model, or give data.chatTemplate.")


def host_names_resolve(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck:
    """gloo looks up the pod's own name, where GLOO_SOCKET_IFNAME does not say which interface to take."""
    lost = [pod.name for pod in measured.pods if not pod.resolves]
    if not lost:
        return passed("host-names", None, "Every pod's own name leads to an address.")
    message = f"The own name of {names(lost)} leads to no address; the interface of the pod's address is taken."
    return warned("host-names", None, message, "Look at /etc/hosts in the pod, or give network.socketInterface.", lost)


def clocks_agree(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck | None:
    """Clocks of all nodes are within seconds."""
    if not measured.skews:
        return None
    worst = max(measured.skews, key=lambda pod: abs(measured.skews[pod]))
    value = f"{abs(measured.skews[worst]):.1f} s"
    if off := {pod: skew for pod, skew in measured.skews.items() if abs(skew) > SKEW_S}:
        message = f"The clock of {names(off)} is {value} away from the head's."
        return warned("clocks", value, message, "Let chrony or systemd-timesyncd run on the node.", off)
    return passed("clocks", value, "They agree.")


CHECKS: list[Check] = [
    ranks_answer,
    shared_memory_is_large_enough,
    accelerators_are_there,
    versions_agree,
    run_directory_is_shared,
    files_can_be_read,
    chat_template_is_there,
    host_names_resolve,
    clocks_agree,
]


def passed(name: str, value: str | None, message: str) -> PreflightCheck:
    """All is well."""
    return PreflightCheck(name=name, result="passed", value=value, message=message)


def warned(name: str, value: str | None, message: str, remedy: str, pods: Iterable[str] = ()) -> PreflightCheck:
    """The training can start, and somebody should know."""
    return PreflightCheck(
        name=name, result="warned", value=value, message=message, remedy=remedy, pods=sorted(set(pods))
    )


def failed(name: str, value: str | None, message: str, remedy: str, pods: Iterable[str] = ()) -> PreflightCheck:
    """The training would fail, or be what nobody asked for."""
    return PreflightCheck(
        name=name, result="failed", value=value, message=message, remedy=remedy, pods=sorted(set(pods))
    )


def names(pods: Iterable[str]) -> str:
    """Such as "a, b, c and 5 more"."""
    every = sorted(set(pods))
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more


def first(reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    """Those that are named in a sentence."""
    return sorted(reasons.items())[:NAMED]


def _apart(folders: Sequence[Folder]) -> set[str]:
    """Pods whose files most pods do not see; where none is so, all whose files some do not see."""
    unseen = Counter(pod for folder in folders for pod in folder.unseen)
    return {pod for pod, times in unseen.items() if times > len(folders) / 2} or set(unseen)


def _but_most(parts: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    return sorted(parts, key=len)[:-1]


def _unreadable(pods: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    path, why = next(iter(pods.values()))[0]
    return f"{names(pods)} cannot read {path}: {why}"
