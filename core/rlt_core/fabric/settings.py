"""From a profile and facts to what the pods of one job get, with rule and source; the user's word is the last."""

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
"""Variables that belong to network or accelerators: a user's own are shown among the settings."""
LD_LIBRARY_PATH = "LD_LIBRARY_PATH"
SCRIPT = "BASH_ENV"
"""KubeRay starts Ray by `bash -c`, which reads the file of this name first."""
MOUNT_VARIABLES = frozenset({SCRIPT, LD_LIBRARY_PATH})
"""Variables that refer to folders of the hosts: pods that do not mount them have none of these."""
HOST_INTERFACES = "^lo,docker,veth,cni,cali,flannel,cilium"
"""NCCL's list of interfaces to leave out on a host whose interfaces are not known."""
NCCL_DOC = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
GROUP_IDS = {"video": 44}
"""Numbers of the devices' groups on Debian and Ubuntu (base-passwd). render has a different one on every system."""


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
    """How the pods get at the fabric: one mode."""

    mode: str
    resources: tuple[tuple[str, int], ...]
    """Extended resources of one worker on a whole node."""

    def share(self, count: int, of: int) -> dict[str, int]:
        """The resources of a worker with `count` of a node's `of` accelerators: at least one of each."""
        if of <= count or of == 0:
            return dict(self.resources)
        return {name: max(1, -(-amount * count // of)) for name, amount in self.resources}


@dataclass(frozen=True)
class Settings:
    """What all pods of the job get."""

    env: tuple[Setting, ...]
    """Ordered by name. It holds what the user set himself, too, where it belongs to the network."""
    overridden_by_user: tuple[str, ...]
    """Names of the profile's variables that the user set to something else."""
    attach: Attachment
    capabilities: tuple[str, ...]
    groups: tuple[int, ...]
    """Supplementary groups by number."""
    compute_domain: bool
    mounts: tuple[tuple[str, str], ...]
    network: str
    warnings: tuple[str, ...]


def build_settings(profile: Profile, facts: Facts, demand: Demand) -> Settings:
    """The settings for nodes with these facts. Precedence: user, then admin (RLRuntime), then profile."""
    attach = choose_attachment(profile, facts, demand)
    warnings = list(profile.warnings)
    profile_env = _build_profile_env(profile, facts, demand, attach, warnings)
    env, overridden = _merge_env(profile_env, demand)
    groups = tuple(sorted({*demand.supplemental_groups, *(GROUP_IDS[g] for g in profile.groups if g in GROUP_IDS)}))
    if "render" in profile.groups and not demand.supplemental_groups:
        warnings.append(
            "the number of the group render differs between systems: give it in spec.security.supplementalGroups "
            "(`getent group render` on a node), unless /dev/kfd and /dev/dri are open to all"
        )
    capabilities = profile.capabilities if facts.resources or not profile.attach.needs_resources else ()
    if demand.ipc_lock:
        capabilities = tuple(dict.fromkeys((*capabilities, "IPC_LOCK")))
    if "IPC_LOCK" in capabilities and demand.run_as_user != 0 and not demand.privileged:
        warnings.append(
            f"Kubernetes gives added capabilities to root only (KEP-2763), and the pods run as user "
            f"{demand.run_as_user}: locked memory must be unlimited by the container runtime (LimitMEMLOCK=infinity)"
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
        warnings=(*warnings, *_find_security_warnings(demand)),
    )


def choose_attachment(profile: Profile, facts: Facts, demand: Demand) -> Attachment:
    """The mode that the job asks for, else virtual functions where nodes offer them, else the profile's own."""
    functions = [name for name, _ in facts.verbs if aliases.VIRTUAL_FUNCTIONS.search(name)]
    modes = profile.attach.modes
    mode = demand.attach or ("multus" if functions and "multus" in modes else modes[0])
    if mode == "dra" and not profile.attach.compute_domain:
        return Attachment(mode, ())  # a claim brings the devices
    resources = []
    for name, offered in facts.resources:
        if (name in functions) != (mode == "multus" and bool(functions)):
            continue
        count = next((count for glob, count in profile.attach.resources if fnmatchcase(name, glob)), None)
        if count is not None:
            resources.append((name, offered if count == "all" else int(count)))
    return Attachment(mode, tuple(resources))


def read_versions(demand: Demand) -> dict[str, str]:
    """Versions in the image, as far as cluster.env tells them."""
    given = dict(demand.admin_env) | dict(demand.user_env)
    return {what: given[name] for name, what in VERSION_VARIABLES.items() if name in given}


def _build_profile_env(
    profile: Profile, facts: Facts, demand: Demand, attach: Attachment, warnings: list[str]
) -> dict[str, Setting]:
    versions = read_versions(demand)
    profile_env = {each.name: _build_setting(profile, each) for each in profile.variables(facts, versions)}
    hca = profile_env.get("NCCL_IB_HCA")
    if hca and hca.value.startswith("=") and attach.mode == "multus":
        rule = f"virtual functions have other names than {hca.value}: their driver's prefix"
        profile_env["NCCL_IB_HCA"] = Setting(hca.name, profile.hcas[0], rule, profile.attach.source)
    if attach.mode == "hostNetwork":
        known = profile.attach.host_interface
        rule = "the hosts' interface" if known else "whatever interface the hosts have, but none of containers"
        source = profile.attach.source if known else f"{NCCL_DOC}#nccl-socket-ifname"
        profile_env["NCCL_SOCKET_IFNAME"] = Setting("NCCL_SOCKET_IFNAME", known or HOST_INTERFACES, rule, source)
        if known[-1:].isdigit():
            profile_env["GLOO_SOCKET_IFNAME"] = Setting("GLOO_SOCKET_IFNAME", known, rule, source)
        else:
            profile_env.pop("GLOO_SOCKET_IFNAME", None)
            if not demand.socket_interface:
                warnings.append(
                    "on the host network gloo needs the interface's full name: give network.socketInterface; until "
                    "then it takes the interface of the host's own address"
                )
    if profile.script:
        rule = "bash reads the host's script before anything else, so that Ray and all its processes have its variables"
        source = f"{profile.sources[0]}; https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html"
        profile_env[SCRIPT] = Setting(SCRIPT, profile.script, f"profile {profile.name}: {rule}", source)
    if demand.require == "tcp":
        rule = "network.require: tcp, so NCCL's own sockets and no other transport"
        profile_env["NCCL_NET"] = Setting("NCCL_NET", "Socket", rule, f"{NCCL_DOC}#nccl-net")
    return profile_env


def _build_setting(profile: Profile, variable: Variable) -> Setting:
    unverified = "" if variable.verified else " (second hand)"
    return Setting(
        variable.name, variable.value, f"profile {profile.name}: {variable.rule}", f"{variable.source}{unverified}"
    )


def _merge_env(profile_env: Mapping[str, Setting], demand: Demand) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """The profile's variables under the admin's under the user's."""
    env = dict(profile_env)
    user: set[str] = set()
    fields = {
        "NCCL_SOCKET_IFNAME": ("socket_interface", demand.socket_interface),
        "GLOO_SOCKET_IFNAME": ("socket_interface", demand.socket_interface),
        "NCCL_IB_HCA": ("hcas", ",".join(demand.hcas)),
    }
    paths = {"socket_interface": "spec.network.socketInterface", "hcas": "spec.network.hcas"}

    def by_field(admin: bool) -> None:
        for name, (field, value) in fields.items():
            if value and (field in demand.admin_fields) == admin:
                who = "RLRuntime" if admin else "user"
                env[name] = Setting(name, value, f"{who} override: {paths[field]}", f"{who}: {paths[field]}")
                if not admin:
                    user.add(name)

    def by_variable(given: tuple[tuple[str, str], ...], who: str) -> None:
        for name, value in given:
            if name in profile_env or NETWORK_VARIABLE.match(name):
                path = "spec.cluster.env"
                env[name] = Setting(name, value, f"{who} override: {path}", f"{who}: {path}")
                if who == "user":
                    user.add(name)

    by_field(admin=True)
    by_variable(demand.admin_env, "RLRuntime")
    by_field(admin=False)
    by_variable(demand.user_env, "user")
    overridden = sorted(name for name in user if name in profile_env and env[name].value != profile_env[name].value)
    return tuple(env[name] for name in sorted(env)), tuple(overridden)


def _find_security_warnings(demand: Demand) -> list[str]:
    opened = []
    if demand.ptrace:
        opened.append("security.ptrace: SYS_PTRACE lets every process of a pod read and change the others")
    if demand.unconfined:
        opened.append("security.unconfined: without seccomp every system call of the kernel is open to the pods")
    if demand.privileged:
        opened.append("security.privileged: the pods own their node, with all its devices and everything on it")
    return opened
