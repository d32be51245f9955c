"""Start a cluster, check its health, remove it."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rlt_e2e.cluster import addons, cgroups, control_plane, images, machine, network, node, processes
from rlt_e2e.cluster.certificates import issue_all
from rlt_e2e.cluster.layout import Layout, Node
from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.processes import wait_for
from rlt_e2e.cluster.programs import Programs, built_folder, obtain_programs
from rlt_e2e.cluster.stages import StageError, stage

READY_TIMEOUT_S = 120.0


@dataclass
class Record:
    """cluster.json of the state folder: the cluster that runs there."""

    nodes: int
    first_port: int
    subnet: int
    built: str
    ready: bool = False
    addons: str = ""
    loaded: dict[str, str] = field(default_factory=dict)
    """Image tag -> id of the image that all nodes have."""

    def layout(self, state: Path) -> Layout:
        return Layout(state, self.nodes, self.first_port, self.subnet)

    def write(self, state: Path) -> None:
        draft = state / "cluster.json.draft"
        draft.write_text(json.dumps(vars(self), indent=2))
        draft.replace(state / "cluster.json")


def read_record(state: Path) -> Record | None:
    try:
        return Record(**json.loads((state / "cluster.json").read_text()))
    except FileNotFoundError:
        return None


def check(layout: Layout) -> None:
    """Check that the machine can start the cluster. Raises ValueError.

    With root, it skips the check if the cluster exists, also if only parts of it do.
    """
    if os.geteuid() != 0 or not (read_record(layout.state) or processes.list_running(layout.state)):
        machine.check(layout)


def up(layout: Layout) -> None:
    """Reuse a healthy cluster, recreate an incomplete one, or create one. Raises ValueError with advice."""
    with exclusive_lock(_lock_file(layout.state)):
        record = read_record(layout.state)
        if record and is_healthy(layout.state):
            if record.layout(layout.state) != layout:
                raise StageError(
                    f"a cluster with nodes={record.nodes}, first_port={record.first_port}, subnet={record.subnet} "
                    "is already running",
                    advice="python -m rlt_e2e.cluster down",
                )
        else:
            if record or processes.list_running(layout.state):
                print("    cluster incomplete; recreating", flush=True)
                _remove(layout.state, lambda step: print(f"    {step}", flush=True))
            record = _create(layout)
        if record.addons != addons.fingerprint():
            _install_addons(layout, record, obtain_programs())


def down(state: Path) -> None:
    """Remove the cluster at `state`, also if it is incomplete."""
    if os.geteuid() != 0:
        raise ValueError("removing a cluster needs root: run the command as root or with sudo")
    with exclusive_lock(_lock_file(state)), stage("remove the cluster", estimate_s=5) as this:
        _remove(state, this.note)


def is_healthy(state: Path) -> bool:
    """Whether all processes run, the API server is ready and every node is Ready."""
    record = read_record(state)
    if not record or not record.ready or record.built != built_folder().name:
        return False
    layout = record.layout(state)
    if list_missing_processes(layout) or run_kubectl(layout, "get", "--raw", "/readyz").returncode:
        return False
    return are_nodes_ready(layout)


def list_missing_processes(layout: Layout) -> list[str]:
    """Return the names of processes that should run and do not."""
    expected = control_plane.list_processes(layout)
    for each in layout.all_nodes():
        expected += [each.name, *(node.process_name(each, program) for program in node.PROCESSES)]
    running = {process.name for process in processes.list_running(layout.state)}
    return [name for name in expected if name not in running]


def are_nodes_ready(layout: Layout) -> bool:
    """Whether the nodes of this machine are Ready. Ignores fake nodes."""
    answer = run_kubectl(layout, "get", "nodes", "--output", "json")
    ready = {
        item["metadata"]["name"]
        for item in json.loads(answer.stdout or '{"items": []}')["items"]
        for condition in item["status"].get("conditions", [])
        if (condition["type"], condition["status"]) == ("Ready", "True")
    }
    return {node.name for node in layout.all_nodes()} <= ready


def run_kubectl(layout: Layout, *arguments: str | Path, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run kubectl as cluster administrator. Does not raise if kubectl fails."""
    command = [str(built_folder() / "kubectl"), "--kubeconfig", str(layout.admin), *map(str, arguments)]
    return subprocess.run(command, input=input, capture_output=True, text=True)


def load_image(layout: Layout, tag: str) -> None:
    """Load the image `tag` of the store on every node, unless the nodes have it."""
    record = read_record(layout.state)
    assert record
    wanted = images.read_image_id(tag)
    if record.loaded.get(tag) == wanted:
        return
    file = images.archive(tag)
    programs = obtain_programs()
    with stage(f"load {tag} on {layout.nodes} nodes", estimate_s=20), ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: _import_image(layout, each, file, programs), layout.all_nodes()))
    record.loaded[tag] = wanted
    record.write(layout.state)


def _create(layout: Layout) -> Record:
    machine.check(layout)
    programs = obtain_programs()
    if layout.nodes:
        machine.check_network(layout)  # obtain_programs has installed `ip`
        addons.build_pause(programs)
    layout.state.mkdir(parents=True, mode=0o700, exist_ok=True)
    record = Record(layout.nodes, layout.first_port, layout.subnet, programs.built.name)
    record.write(layout.state)
    with stage("start the control plane", estimate_s=5) as this:
        this.note("certificates")
        issue_all(layout)
        if layout.nodes:
            machine.save_state(node.NODE_FOLDERS)
            network.create(layout)
        _start_control_plane(layout, programs)
    if layout.nodes:
        with stage(f"start {layout.nodes} nodes", estimate_s=10) as this:
            for each in layout.all_nodes():
                _start_node(layout, each, programs)
            this.note("waiting for the nodes to be Ready")
            wait_for(
                "nodes Ready",
                lambda: are_nodes_ready(layout),
                timeout_s=READY_TIMEOUT_S,
                log=layout.logs / "kubelet-1.log",
                alive=lambda: not list_missing_processes(layout),
            )
    record.ready = True
    record.write(layout.state)
    return record


def _start_control_plane(layout: Layout, programs: Programs) -> None:
    for name in control_plane.list_processes(layout):
        control_plane.start(layout, name, search_path=programs.search_path)
        if name == "kube-apiserver":
            wait_for(
                "kube-apiserver ready",
                lambda: run_kubectl(layout, "get", "--raw", "/readyz").returncode == 0,
                timeout_s=READY_TIMEOUT_S,
                log=layout.logs / "kube-apiserver.log",
                alive=lambda: not {"etcd", "kube-apiserver"} & set(list_missing_processes(layout)),
            )


def _start_node(layout: Layout, each: Node, programs: Programs) -> None:
    cgroups.create(each.cgroup)
    node.write_configuration(layout, each, programs)
    pid = node.start_holder(layout, each, search_path=programs.search_path)
    network.attach(layout, each, pid)
    node.start(layout, each, "containerd", programs)
    ctr = node.build_command(layout, each, programs.runtime["ctr"], "version")
    wait_for(
        f"containerd on {each.name}",
        lambda: subprocess.run(ctr, capture_output=True).returncode == 0,
        timeout_s=30,
        log=layout.logs / f"containerd-{each.number}.log",
        alive=lambda: f"containerd-{each.number}" not in list_missing_processes(layout),
    )
    _import_image(layout, each, images.archive(images.PAUSE), programs)
    node.start(layout, each, "kubelet", programs)
    node.start(layout, each, "kube-proxy", programs)


def _install_addons(layout: Layout, record: Record, programs: Programs) -> None:
    if layout.nodes:
        for tag in addons.build_images(programs):
            load_image(layout, tag)

    def checked(*arguments: str | Path, input: str | None = None) -> str:
        answer = run_kubectl(layout, *arguments, input=input)
        if answer.returncode:
            raise StageError(
                f"kubectl {arguments[0]}: {answer.stderr.strip()}", advice="python -m rlt_e2e.cluster logs"
            )
        return answer.stdout

    with stage("install KubeRay" if layout.nodes else "install KubeRay's CRDs", estimate_s=15):
        addons.install(layout, programs, checked)
        if layout.nodes:
            checked("rollout", "status", "deployment/kuberay-operator", "-n", "kuberay-system", "--timeout=300s")
    record = read_record(layout.state) or record
    record.addons = addons.fingerprint()
    record.write(layout.state)


def _import_image(layout: Layout, each: Node, archive: Path, programs: Programs) -> None:
    ctr = programs.runtime["ctr"]
    command = node.build_command(layout, each, ctr, "--namespace=k8s.io", "images", "import", archive)
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        log = layout.logs / f"containerd-{each.number}.log"
        raise StageError(f"loading {archive.name} on {each.name}: {answer.stderr.strip()}", log=log)


def _remove(state: Path, note: Callable[[str], None]) -> None:
    record = read_record(state)
    nodes = record.layout(state).all_nodes() if record else []
    note("ending processes")
    running = processes.list_running(state)
    processes.kill(process.pid for process in running if process.program == "kubelet")  # first: it restarts pods
    for each in nodes:
        while pids := cgroups.list_pids(each.cgroup):
            processes.kill(pids)
    while running := processes.list_running(state):
        processes.kill(process.pid for process in running)
    for each in nodes:
        cgroups.remove(each.cgroup)
    note("removing network and files")
    if record and record.nodes:
        network.remove(record.layout(state))
        machine.restore_state()
    if state.exists():
        shutil.rmtree(state)


def _lock_file(state: Path) -> Path:
    return state.with_name(f"{state.name}.lock")
