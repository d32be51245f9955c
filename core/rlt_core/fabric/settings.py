"""The settings of a job's pods from profile, facts and demand. The user's values have precedence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rlt_core.fabric import aliases
from rlt_core.fabric.demand import Demand
from rlt_core.fabric.facts import Facts
from rlt_core.fabric.profiles import VERSION_VARIABLES, Profile, Variable

NETWORK_VARIABLE = re.compile(
    r"^(NCCL|RCCL|TORCH_NCCL|GLOO|UCX|FI|HSA|OMPI|IB|RDMAV|GPU_MAX|HIP|ROCR|CUDA_VISIBLE|CUDA_DEVICE|RAY_EXPERIMENTAL_NOSET)(_|$)"
)
"""Variables of network and accelerators: the settings include them if the user sets them."""
LD_LIBRARY_PATH = "LD_LIBRARY_PATH"
BASH_ENV = "BASH_ENV"
"""KubeRay starts Ray with `bash -c`, and bash reads the file in this variable first."""
MOUNT_VARIABLES = frozenset({BASH_ENV, LD_LIBRARY_PATH})
"""Variables that refer to mounted host folders. Pods without the mounts do not get them."""
HOST_INTERFACES = "^lo,docker,veth,cni,cali,flannel,cilium"
"""Interfaces that NCCL excludes on a host with unknown interfaces."""
NCCL_DOC = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
GROUP_IDS = {"video": 44}
"""IDs of the device groups on Debian and Ubuntu (base-passwd). The ID of render differs between systems."""


@dataclass(frozen=True)
class Setting:
    """One environment variable with its reason."""

    name: str
    value: str
    rule: str
    source: str

    def to_json(self) -> dict[str, str]:
        """As in status.network.env."""
        return {"name": self.name, "value": self.value, "rule": self.rule, "source": self.source}


@dataclass(frozen=True)
class Attachment:
    """How the pods attach to the fabric."""

    mode: str
    resources: tuple[tuple[str, int], ...]
    """Extended resources of a worker that uses a whole node."""

    def share(self, count: int, of: int) -> dict[str, int]:
        """The resources of a worker with `count` of the `of` accelerators of a node: at least 1 of each."""
        if of <= count or of == 0:
            return dict(self.resources)
        return {name: max(1, -(-amount * count // of)) for name, amount in self.resources}


@dataclass(frozen=True)
class Settings:
    """The settings of all the job's pods."""

    env: tuple[Setting, ...]
    """Ordered by name. Includes the network variables that the user sets."""
    overridden_by_user: tuple[str, ...]
    """Names of the profile's variables that the user sets to a different value."""
    attach: Attachment
    capabilities: tuple[str, ...]
    groups: tuple[int, ...]
    """Supplementary group IDs."""
    compute_domain: bool
    mounts: tuple[tuple[str, str], ...]
    network: str
    warnings: tuple[str, ...]


def build_settings(profile: Profile, facts: Facts, demand: Demand) -> Settings:
    """Build the settings for nodes with these facts. Precedence: user, then admin (RLRuntime), then profile."""
    attach = choose_attachment(profile, facts, demand)
    warnings = list(profile.warnings)
    profile_env = _build_profile_env(profile, facts, demand, attach, warnings)
    env, overridden = _merge_env(profile_env, demand)
    groups = tuple(sorted({*demand.supplemental_groups, *(GROUP_IDS[g] for g in profile.groups if g in GROUP_IDS)}))
    if "render" in profile.groups and not demand.supplemental_groups:
        warnings.append(
            "the ID of the group render differs between systems: set it in spec.security.supplementalGroups (`getent "
            "group render` on a node), unless all users can open /dev/kfd and /dev/dri"
        )
    claims = attach.mode == "dra" and demand.has_resource_claims
    has_devices = claims or facts.resources or demand.network_resources or not profile.attach.needs_resources
    capabilities = profile.capabilities if has_devices else ()
    if demand.ipc_lock:
        capabilities = tuple(dict.fromkeys((*capabilities, "IPC_LOCK")))
    if "IPC_LOCK" in capabilities and demand.run_as_user != 0 and not demand.privileged:
        warnings.append(
            f"Kubernetes gives added capabilities to root only (KEP-2763), and the pods run as user "
            f"{demand.run_as_user}: the container runtime must allow unlimited locked memory (LimitMEMLOCK=infinity)"
        )
    return Settings(
        env=env,
        overridden_by_user=overridden,
        attach=attach,
        capabilities=(*capabilities, *(("SYS_PTRACE",) if demand.ptrace else ())),
        groups=groups,
        compute_domain=profile.attach.compute_domain,
        mounts=profile.mounts,
        network=profile.network,
        warnings=(*warnings, *_find_security_warnings(demand, attach)),
    )


def choose_attachment(profile: Profile, facts: Facts, demand: Demand) -> Attachment:
    """Choose the mode: network.attach, else multus if the nodes have virtual functions, else the profile's default."""
    functions = [name for name, _ in facts.verbs if aliases.VIRTUAL_FUNCTIONS.search(name)]
    modes = profile.attach.modes
    mode = demand.attach or ("multus" if functions and "multus" in modes else modes[0])
    if mode == "dra" and not profile.attach.compute_domain:
        return Attachment(mode, ())  # resourceClaims of the podTemplate attach the devices
    resources = []
    left_out = aliases.list_storage_resources(name for name, _ in facts.verbs)
    for name, offered in facts.resources:
        if name in left_out:
            continue
        if (name in functions) != (mode == "multus" and bool(functions)):
            continue
        count = next((count for glob, count in profile.attach.resources if fnmatchcase(name, glob)), None)
        if count is not None:
            resources.append((name, offered if count == "all" else int(count)))
    return Attachment(mode, tuple(resources))


def read_versions(demand: Demand) -> dict[str, str]:
    """Versions in the image that cluster.env sets."""
    env = dict(demand.admin_env) | dict(demand.user_env)
    return {software: env[name] for name, software in VERSION_VARIABLES.items() if name in env}


def _build_profile_env(
    profile: Profile, facts: Facts, demand: Demand, attach: Attachment, warnings: list[str]
) -> dict[str, Setting]:
    versions = read_versions(demand)
    profile_env = {each.name: _build_setting(profile, each) for each in profile.variables(facts, versions)}
    hca = profile_env.get("NCCL_IB_HCA")
    if hca and not _is_adapter_proven(profile, facts):
        del profile_env["NCCL_IB_HCA"]
        if not demand.hcas:
            warnings[:] = [each for each in warnings if not each.startswith("NCCL_IB_HCA=")]
            warnings.append(
                f"NCCL_IB_HCA is not set, because no label and no resource shows that the adapters are {hca.value}: "
                "NCCL uses all active adapters, also those for storage; set network.hcas in the job or the RLRuntime"
            )
        hca = None
    if hca and hca.value.startswith("=") and attach.mode == "multus":
        rule = f"virtual functions have other names than {hca.value}: the prefix of their driver"
        profile_env["NCCL_IB_HCA"] = Setting(hca.name, profile.hcas[0], rule, profile.attach.source)
    if attach.mode == "hostNetwork":
        interface = profile.attach.host_interface
        rule = "interface of the hosts" if interface else "any interface of the hosts except container interfaces"
        source = profile.attach.source if interface else f"{NCCL_DOC}#nccl-socket-ifname"
        profile_env["NCCL_SOCKET_IFNAME"] = Setting("NCCL_SOCKET_IFNAME", interface or HOST_INTERFACES, rule, source)
        if interface[-1:].isdigit():
            profile_env["GLOO_SOCKET_IFNAME"] = Setting("GLOO_SOCKET_IFNAME", interface, rule, source)
        else:
            profile_env.pop("GLOO_SOCKET_IFNAME", None)
            if not demand.socket_interface:
                warnings.append(
                    "on the host network gloo needs the full name of the interface: set network.socketInterface; "
                    "without it gloo uses the interface of the host's address"
                )
    if profile.script:
        rule = "bash reads the script of the host first, so that Ray and all its processes get its variables"
        source = f"{profile.sources[0]}; https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html"
        profile_env[BASH_ENV] = Setting(BASH_ENV, profile.script, f"profile {profile.name}: {rule}", source)
    if demand.require == "tcp":
        rule = "network.require is tcp: NCCL uses its socket transport only"
        profile_env["NCCL_NET"] = Setting("NCCL_NET", "Socket", rule, f"{NCCL_DOC}#nccl-net")
    return profile_env


def _is_adapter_proven(profile: Profile, facts: Facts) -> bool:
    """Whether the adapters fit the profile: by a label or resource of the nodes, or as the cloud documents."""
    matched = dict(profile.match)
    return "cloud" in matched or "nic" in matched or facts.nic == "mlx5"


def _build_setting(profile: Profile, variable: Variable) -> Setting:
    unverified = "" if variable.verified else " (second-hand)"
    return Setting(
        variable.name, variable.value, f"profile {profile.name}: {variable.rule}", f"{variable.source}{unverified}"
    )


def _merge_env(profile_env: Mapping[str, Setting], demand: Demand) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Merge the variables of profile, admin and user, in increasing precedence."""
    env = dict(profile_env)
    user: set[str] = set()
    fields = {
        "NCCL_SOCKET_IFNAME": ("socket_interface", demand.socket_interface),
        "GLOO_SOCKET_IFNAME": ("socket_interface", demand.socket_interface),
        "NCCL_IB_HCA": ("hcas", ",".join(demand.hcas)),
    }
    paths = {"socket_interface": "spec.network.socketInterface", "hcas": "spec.network.hcas"}

    def merge_fields(admin: bool) -> None:
        for name, (field, value) in fields.items():
            if value and (field in demand.admin_fields) == admin:
                origin = "RLRuntime" if admin else "user"
                env[name] = Setting(name, value, f"{origin} override: {paths[field]}", f"{origin}: {paths[field]}")
                if not admin:
                    user.add(name)

    def merge_variables(variables: tuple[tuple[str, str], ...], origin: str) -> None:
        for name, value in variables:
            if name in profile_env or NETWORK_VARIABLE.match(name):
                path = "spec.cluster.env"
                env[name] = Setting(name, value, f"{origin} override: {path}", f"{origin}: {path}")
                if origin == "user":
                    user.add(name)

    merge_fields(admin=True)
    merge_variables(demand.admin_env, "RLRuntime")
    merge_fields(admin=False)
    merge_variables(demand.user_env, "user")
    overridden = sorted(name for name in user if name in profile_env and env[name].value != profile_env[name].value)
    return tuple(env[name] for name in sorted(env)), tuple(overridden)


def _find_security_warnings(demand: Demand, attach: Attachment) -> list[str]:
    warnings = []
    if attach.mode == "hostNetwork":
        warnings.append("network.attach: hostNetwork: the job gets no NetworkPolicy, which cannot select such pods")
    if demand.ptrace and demand.run_as_user != 0 and not demand.privileged:
        warnings.append(
            f"security.ptrace has no effect: Kubernetes gives added capabilities to root only (KEP-2763), and the pods "
            f"run as user {demand.run_as_user}. py-spy needs kernel.yama.ptrace_scope 0 on the nodes"
        )
    elif demand.ptrace:
        warnings.append("security.ptrace: with SYS_PTRACE each process of a pod can read and change the others")
    if demand.unconfined:
        warnings.append("security.unconfined: without seccomp the pods can use every system call")
    if demand.privileged:
        warnings.append("security.privileged: the pods have root access to their node and all its devices")
    return warnings
