"""What every target needs to run a job: nodes, program, environment, files. Read from the manifests of the operator."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.model import quantity_value
from rlt_api.rules.security import has_ray_token
from rlt_api.rules.shared_memory import size_worker_shared_memory
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_DIRECTORY, PROGRAMS_PATH
from rlt_core import names
from rlt_core.children.attachment import get_attachment, get_network
from rlt_core.children.config_map import build_config_map
from rlt_core.children.environment import FIXED_ENV, build_env
from rlt_core.children.nccl_files import NCCL_FILE_VARIABLES
from rlt_core.children.preflight_file import has_preflight
from rlt_core.children.ray_token import build_ray_token_env
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.earlier_job import reject_earlier_job
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job
from rlt_core.network_status import build_network_status
from rlt_core.targets.program import ENCODED_PROGRAMS, build_program, build_target_expected, list_programs
from rlt_core.targets.programs import encode_programs
from rlt_pod.keep_logs import ATTEMPT_DIRECTORY
from rlt_pod.preflight.expected import EXPECTED_FILE, dump_expected
from rlt_pod.sandbox.protocol import HOST_VARIABLE

PROGRAM = "program.sh"
"""Name of the script that runs the program."""
POD_USER = {"HOME", "LOGNAME", "USER"} & FIXED_ENV.keys()
"""Variables for the pods' user, who has no account."""
START_PARAMETERS = ("num-cpus", "num-gpus", "resources", "object-store-memory", "ray-debugger-external")
"""The parameters of `ray start` that describe a node. The others are ports and interfaces of pods."""

REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
"""A reference to an earlier variable, as in the env of a container."""


@dataclass(frozen=True)
class NodeGroup:
    """Equal nodes of the Ray cluster."""

    name: str
    count: int
    devices: int
    device_memory: int | None
    """Bytes of one device. None if the job does not set it."""
    cpus: int
    memory: int
    """Bytes, with /dev/shm."""
    shared_memory: int
    """Bytes of /dev/shm."""
    start: Mapping[str, str]
    """Parameters of `ray start`."""


@dataclass(frozen=True)
class Launch:
    """A job outside of Kubernetes. Every worker is a node of the Ray cluster, and the first one is the head."""

    name: str
    id: str
    """Eight hexadecimal characters that depend on the job: part of paths."""
    image: str
    groups: tuple[NodeGroup, ...]
    head_memory: int
    """Bytes for the driver."""
    environment: Mapping[str, str]
    """The environment of Ray and the program, ordered by name."""
    inherited: tuple[str, ...]
    """Variables with values in Secrets and ConfigMaps: they come from the environment of the user."""
    files: Mapping[str, str]
    """Path -> content of the program, and of the files that it reads."""
    programs: str
    """The encoded archive of rlt's programs, in lines."""
    storage: str
    """The shared folder of checkpoints and results on all machines."""
    mounts: tuple[str, ...]
    """Folders that containers mount, at the same path as on the machine."""
    vendor: str
    """nvidia, amd or none."""
    is_rdma: bool
    """Whether containers need the devices of RDMA."""
    profile: str
    """The network profile."""
    capabilities: tuple[str, ...]
    groups_of_user: tuple[int, ...]
    """IDs of supplementary groups."""
    is_unconfined: bool
    is_privileged: bool
    has_token: bool
    """Whether Ray's clients need a token."""
    max_restarts: int
    """Maximum number of new attempts after failures."""
    max_disruptions: int | None
    """Maximum number of new attempts after disruptions. None: no limit."""
    excludes_faulty_nodes: bool
    """Whether a later attempt excludes a node that the job has lost."""
    keep_seconds: int
    """Time for which Ray is kept after a failure."""
    grace_seconds: int
    """Time for the program to save and exit."""
    run_seconds: int | None
    """Maximum run time."""
    pending_seconds: int | None
    """Maximum time until the program starts."""

    @property
    def folder(self) -> str:
        """The folder of `files`."""
        return _build_folder(self.storage, self.name, self.id)

    @property
    def program(self) -> str:
        """The path of the script that runs the program."""
        return f"{self.folder}/{PROGRAM}"

    @property
    def encoded_programs(self) -> str:
        """The path of the file with `programs`."""
        return f"{self.folder}/{posixpath.basename(ENCODED_PROGRAMS)}"

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(group.count for group in self.groups)


def decide_host_network(job: Job, nodes: Sequence[Node]) -> Job:
    """The job with the network settings of machines: processes and containers use the interfaces of the host.

    Profiles whose documentation has pods alone keep the settings of pods.
    """
    assert job.spec
    network = job.spec.network.model_copy(update={"attach": "hostNetwork"})
    on_hosts = replace(job, spec=job.spec.model_copy(update={"network": network}))
    for each in (on_hosts, job):
        assert each.spec
        status = build_network_status(each, each.spec, nodes)
        if status.rejection is None or status.rejection.code != "AttachNotPossible":
            break
    return replace(job, status=job.status.model_copy(update={"network": status}))


def build_launch(
    job: Job, *, storage: str | None = None, any_port: bool = False, programs: str = PROGRAMS_PATH
) -> Launch:
    """Build the launch of a valid job that has status.network.

    `storage`: the folder that replaces storage.mountPath. Default: the same path. `any_port`: the program's metrics
    have a free port, because jobs share machines. `programs`: the path to which the archive of programs is decoded.
    Raises ValueError for checkpoint.resumeFromJob.
    """
    assert job.spec
    reject_earlier_job(job.spec)
    spec = job.spec
    network = get_network(job)
    ray_cluster = build_ray_cluster(job, spec)["spec"]
    starts = [group["rayStartParams"] for group in ray_cluster["workerGroupSpecs"]]
    attach = get_attachment(
        job, spec, next((g for g in spec.cluster.workers if g.accelerator), spec.cluster.workers[0])
    )
    environment, inherited = _split_environment(build_env(job, spec, mounted=False), spec)
    launch = Launch(
        name=job.name,
        id=job.uid[:8],
        image=spec.cluster.image or "",
        groups=tuple(
            _build_group(spec, group, start) for group, start in zip(spec.cluster.workers, starts, strict=True)
        ),
        head_memory=int(quantity_value(spec.cluster.head.resources.memory)),
        environment=environment,
        inherited=inherited,
        files={
            **_list_files(job, spec),
            f"{CONFIG_DIRECTORY}/{PROGRAM}": build_program(job, spec, any_port=any_port, programs=programs),
        },
        programs=encode_programs(list_programs(job, spec)),
        storage=names.mount_path(spec).rstrip("/"),
        mounts=_list_mounts(spec),
        vendor=network.vendor,
        is_rdma=network.fabric.removeprefix("mnnvl+") in ("infiniband", "roce", "efa", "gib"),
        profile=network.profile,
        capabilities=tuple(attach.capabilities),
        groups_of_user=tuple(sorted({*spec.security.supplemental_groups, *attach.supplemental_groups})),
        is_unconfined=spec.security.unconfined,
        is_privileged=spec.security.privileged,
        has_token=has_ray_token(spec),
        max_restarts=spec.failure_policy.max_restarts,
        max_disruptions=spec.failure_policy.max_disruptions,
        excludes_faulty_nodes=spec.failure_policy.exclude_faulty_nodes,
        keep_seconds=spec.failure_policy.keep_cluster_seconds,
        grace_seconds=spec.cluster.termination_grace_period_seconds,
        run_seconds=spec.active_deadline_seconds,
        pending_seconds=spec.pending_deadline_seconds,
    )
    return _move_paths(launch, (storage or launch.storage).rstrip("/"))


def _build_group(spec: RLTrainingJobSpec, group: WorkerGroup, start: Mapping[str, str]) -> NodeGroup:
    assert group.resources
    kept = {name: shlex.split(start[name])[0] for name in START_PARAMETERS if name in start}
    devices = group.accelerator.count if group.accelerator else 0
    memory = group.accelerator.memory if group.accelerator else None
    return NodeGroup(
        name=group.name,
        count=group.replicas,
        devices=devices,
        device_memory=int(quantity_value(memory)) if memory else None,
        cpus=max(1, int(quantity_value(group.resources.cpu))),
        memory=int(quantity_value(group.resources.memory)),
        shared_memory=size_worker_shared_memory(spec, group).size,
        start={**kept, **({"num-gpus": str(devices)} if devices else {})},
    )


def _split_environment(
    variables: Sequence[Mapping[str, Any]], spec: RLTrainingJobSpec
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables with values and the names of the others.

    The token is a file of the place, not of the pods, no attempt has a folder, and no sandbox a pod.
    """
    dropped = {ATTEMPT_DIRECTORY, HOST_VARIABLE, *build_ray_token_env(spec), *NCCL_FILE_VARIABLES}
    kept = {each["name"]: each for each in variables if each["name"] not in dropped}
    values: dict[str, str] = {}
    for name, variable in kept.items():
        if "value" in variable:
            values[name] = REFERENCE.sub(lambda match: values.get(match[1], match[0]), variable["value"])
    return dict(sorted(values.items())), tuple(sorted(kept.keys() - values.keys()))


def _list_files(job: Job, spec: RLTrainingJobSpec) -> dict[str, str]:
    """The files of the ConfigMap."""
    data: dict[str, str] = build_config_map(job, spec)["data"]
    if has_preflight(spec):
        data[EXPECTED_FILE] = dump_expected(build_target_expected(job, spec))
    return {f"{CONFIG_DIRECTORY}/{key}": text for key, text in data.items()}


def _list_mounts(spec: RLTrainingJobSpec) -> tuple[str, ...]:
    cache = spec.storage.model_cache
    return (names.mount_path(spec).rstrip("/"), *((cache.mount_path,) if cache else ()))


def _build_folder(storage: str, name: str, id: str) -> str:
    return f"{storage}/configs/{name}-{id}"


def _move_paths(launch: Launch, storage: str) -> Launch:
    """The launch with the paths of the machines, in all texts."""
    moved = {launch.storage: storage, CONFIG_DIRECTORY: _build_folder(storage, launch.name, launch.id)}
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, moved))})(?![\w.-])")

    def move(text: str) -> str:
        return pattern.sub(lambda match: moved[match[1]], text)

    return replace(
        launch,
        environment={name: move(value) for name, value in launch.environment.items()},
        files={move(path): move(text) for path, text in launch.files.items()},
        storage=storage,
        mounts=tuple(map(move, launch.mounts)),
    )
