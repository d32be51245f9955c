"""Manage the embedded cluster: `python -m rlt_e2e.cluster check|build|up|down|status|kubeconfig|logs`."""

import argparse
from pathlib import Path

from rlt_e2e.cluster import agent_sandbox, cert_manager, fake_nodes, kueue, lifecycle, processes, programs, s3_server
from rlt_e2e.cluster.handle import Cluster
from rlt_e2e.cluster.layout import FIRST_PORT, SUBNET, Layout, default_state
from rlt_e2e.cluster.stages import StageError, exit_with_message

LOG_LINES = 50


def main() -> None:
    arguments = _parser().parse_args()
    state: Path = arguments.state.absolute()
    with exit_with_message():
        match arguments.command:
            case "up":
                cluster = Cluster.up(
                    nodes=arguments.nodes, state=state, first_port=arguments.first_port, subnet=arguments.subnet
                )
                print(f"the cluster is ready:  export KUBECONFIG={cluster.kubeconfig}")
            case "check":
                lifecycle.check(Layout(state, arguments.nodes, arguments.first_port, arguments.subnet))
            case "build":
                for build in (
                    programs.obtain_built,
                    cert_manager.build,
                    kueue.build,
                    agent_sandbox.build,
                    fake_nodes.build,
                    s3_server.build,
                ):
                    build()
            case "down" if arguments.below:
                below = arguments.below.absolute()
                stopped = {record.parent for record in below.glob("*/cluster.json")}
                for each in sorted(stopped | {each for each in processes.list_states() if each.is_relative_to(below)}):
                    lifecycle.down(each)
            case "down":
                lifecycle.down(state)
            case "status":
                _print_status(state)
            case "kubeconfig":
                record = lifecycle.read_record(state)
                if not record or not record.ready:
                    raise StageError("the cluster is not running", advice="python -m rlt_e2e.cluster up")
                print(state / "kubeconfig")
            case "logs":
                _print_logs(state, arguments.name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster", description="Run Kubernetes on this machine without Docker.")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--state", type=Path, default=default_state(), help="folder of the cluster (%(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    shape = argparse.ArgumentParser(add_help=False)
    shape.add_argument("--nodes", type=int, default=2, help="number of nodes, 0 for only a control plane (%(default)s)")
    shape.add_argument("--first-port", type=int, default=FIRST_PORT, help="first of six ports (%(default)s)")
    shape.add_argument("--subnet", type=int, default=SUBNET, help="addresses are 10.SUBNET.0.0/16 (%(default)s)")
    commands.add_parser("check", parents=[common, shape], help="check that the machine can run the cluster")
    commands.add_parser("up", parents=[common, shape], help="start the cluster unless it is healthy")
    commands.add_parser("build", parents=[common], help="build the Go programs that the tests use")
    down = commands.add_parser("down", parents=[common], help="remove the cluster, and keep builds and images")
    down.add_argument("--below", type=Path, help="remove every cluster whose folder is below this one")
    commands.add_parser("status", parents=[common], help="print processes and nodes; fail if unhealthy")
    commands.add_parser("kubeconfig", parents=[common], help="print the path of the kubeconfig")
    logs = commands.add_parser("logs", parents=[common], help="list the logs, or print the end of one")
    logs.add_argument("name", nargs="?", help="log, such as kube-apiserver or kubelet-1")
    return parser


def _print_status(state: Path) -> None:
    record = lifecycle.read_record(state)
    if not record:
        raise StageError("the cluster is not running", advice="python -m rlt_e2e.cluster up")
    for process in sorted(processes.list_running(state), key=lambda process: process.name):
        if process.program != "containerd-shim":
            print(f"{process.pid:>8}  {process.name}")
    cluster = Cluster.connect(state) if record.ready else None
    if cluster and record.nodes:
        print(cluster.kubectl("get", "nodes", "--output", "wide"), end="")
    if not lifecycle.is_healthy(state):
        raise StageError("the cluster is not healthy", advice="python -m rlt_e2e.cluster up")
    print("the cluster is healthy")


def _print_logs(state: Path, name: str | None) -> None:
    logs = {path.stem: path for path in sorted((state / "logs").glob("*.log"))}
    if not logs:
        raise StageError(f"{state} has no logs", advice="python -m rlt_e2e.cluster up")
    if name is None:
        print("\n".join(f"{name:<26}{path}" for name, path in logs.items()))
    elif name in logs:
        print("\n".join(logs[name].read_text(errors="replace").splitlines()[-LOG_LINES:]))
    else:
        raise ValueError(f"the log {name!r} does not exist: use one of {', '.join(logs)}")


if __name__ == "__main__":
    main()
