"""One node: containerd, kubelet and kube-proxy in a network and a mount namespace that a process holds open.

Folders of the cluster's state are mounted at /var/lib/kubelet, /run/containerd and so on. The three programs use their
usual paths there, isolated from the machine's. All their mounts end with the namespace.
"""

import json
import shutil
import subprocess
from pathlib import Path

from rlt_e2e.cluster import processes
from rlt_e2e.cluster.images import PAUSE
from rlt_e2e.cluster.layout import DNS_SERVICE, Layout, Node
from rlt_e2e.cluster.programs import Programs

NODE_FOLDERS = (
    "/run/containerd",
    "/run/netns",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
"""Folders that only the node has, mounted over the machine's."""

POD_PIDS = 2048
"""Maximum number of processes and threads of a pod. A pod of a job has up to 200 on two cores."""

SOCKET = "unix:///run/containerd/containerd.sock"

PROCESSES = ("containerd", "kubelet", "kube-proxy")


def process_name(node: Node, program: str) -> str:
    return f"{program}-{node.number}"


def write_configuration(layout: Layout, node: Node, programs: Programs) -> None:
    """Create the folders and configuration files of the node."""
    for folder in NODE_FOLDERS:
        (node.folder / folder.lstrip("/")).mkdir(parents=True)
    network = node.folder / "cni"
    network.mkdir()
    (network / "rlt.conflist").write_text(json.dumps(build_cni_configuration(node), indent=2))
    (node.folder / "containerd.toml").write_text(build_containerd_configuration(node, programs))
    (node.folder / "kubelet.json").write_text(json.dumps(build_kubelet_configuration(layout, node), indent=2))
    (node.folder / "kube-proxy.json").write_text(json.dumps(build_proxy_configuration(layout, node), indent=2))
    shutil.copy("/etc/resolv.conf", node.folder / "resolv.conf")


def start_holder(layout: Layout, node: Node, *, search_path: str) -> int:
    """Start the process that holds the namespaces of the node. Return its pid when the mounts exist."""
    # --propagation slave: the machine can unmount its own mounts; mounts of the node do not appear on the machine.
    mounts = [f"mount --bind '{node.folder}{folder}' {folder}" for folder in NODE_FOLDERS]
    script = " && ".join(["mount --make-rshared /", *mounts, "exec sleep infinity"])
    command = ["unshare", "--net", "--mount", "--propagation", "slave", "sh", "-c", script]
    log = layout.logs / f"{node.name}.log"
    processes.start(node.name, command, state=layout.state, log=log, search_path=search_path)

    def ready() -> bool:
        return any(process.program == "sleep" for process in _list_list_holders(layout, node))

    processes.wait_for(f"the namespaces of {node.name}", ready, timeout_s=10, log=log)
    return find_holder(layout, node)


def find_holder(layout: Layout, node: Node) -> int:
    """Return the pid of the process that holds the namespaces. Raises ValueError if the node is not running."""
    for process in _list_list_holders(layout, node):
        return process.pid
    raise ValueError(f"{node.name} is not running: run `python -m rlt_e2e.cluster up`")


def build_command(layout: Layout, node: Node, *command: str | Path) -> list[str]:
    """Return the command line that runs `command` in the node."""
    return ["nsenter", f"--target={find_holder(layout, node)}", "--net", "--mount", "--", *map(str, command)]


def run_on_node(layout: Layout, name: str, *command: str) -> str:
    """Run a command in the namespaces of a node, and return its output. Raises ValueError with its error."""
    done = subprocess.run(build_command(layout, layout.node(name), *command), capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{name}: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def start(layout: Layout, node: Node, program: str, programs: Programs) -> None:
    """Start `program`, one of PROCESSES."""
    folder = node.folder
    commands: dict[str, list[str | Path]] = {
        "containerd": [programs.runtime["containerd"], f"--config={folder}/containerd.toml"],
        "kubelet": [
            programs.built / "kubelet",
            f"--config={folder}/kubelet.json",
            f"--kubeconfig={layout.kubeconfig(node.name)}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
        ],
        "kube-proxy": [programs.built / "kube-proxy", f"--config={folder}/kube-proxy.json"],
    }
    name = process_name(node, program)
    processes.start(
        name,
        build_command(layout, node, *commands[program]),
        state=layout.state,
        log=layout.logs / f"{name}.log",
        search_path=programs.search_path,
    )


def build_cni_configuration(node: Node) -> dict[str, object]:
    """Build the CNI configuration. With `ptp` every packet is routed: services work without the br_netfilter module."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "0.4.0", "name": "rlt", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}]}


def build_containerd_configuration(node: Node, programs: Programs) -> str:
    """Build the TOML of version 2, which containerd 1.6 to 2.x read. Its paths are the defaults, inside the node.

    `restrict_oom_score_adj` lets pods start without CAP_SYS_RESOURCE. The disabled plugin `opt` writes to /opt.
    """
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[{cri}]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[{cri}.cni]
bin_dir = "{programs.cni}"
conf_dir = "{node.folder}/cni"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
BinaryName = "{programs.runtime["runc"]}"
SystemdCgroup = false
"""


def build_kubelet_configuration(layout: Layout, node: Node) -> dict[str, object]:
    """Build the KubeletConfiguration. Image garbage collection is off: there is no registry to pull images from."""
    keys = layout.certificates
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "readOnlyPort": 0,
        "tlsCertFile": f"{keys}/{node.name}-serving.crt",
        "tlsPrivateKeyFile": f"{keys}/{node.name}-serving.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{node.folder}/resolv.conf",
        "containerRuntimeEndpoint": SOCKET,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "volumePluginDir": "/var/lib/kubelet/plugins-exec",
        "imageGCHighThresholdPercent": 100,
        "podPidsLimit": POD_PIDS,
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"},
    }


def build_proxy_configuration(layout: Layout, node: Node) -> dict[str, object]:
    """Build the KubeProxyConfiguration. It does not change the machine's limits of connection tracking."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": node.address,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "mode": "nftables",
        "detectLocalMode": "InterfaceNamePrefix",
        "detectLocal": {"interfaceNamePrefix": "veth"},
        "hostnameOverride": node.name,
        "nodePortAddresses": ["primary"],
        "clientConnection": {"kubeconfig": str(layout.kubeconfig("kube-proxy"))},
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _list_list_holders(layout: Layout, node: Node) -> list[processes.Process]:
    return [process for process in processes.list_running(layout.state) if process.name == node.name]
