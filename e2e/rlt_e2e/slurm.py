"""A Slurm cluster on this machine: Debian's packages below the cache folder, and nodes in network namespaces.

Every node has a name, an address and its own processes, and shares the files of the machine. Nothing is installed:
the packages are extracted, and the daemons get the paths in their configuration.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.stages import cache_folder, stage
from rlt_e2e.environment import ROOT
from rlt_e2e.hosts import MACHINE, Host, await_true, compute_address, end_process, start_hosts

PACKAGES = (
    "bubblewrap",
    "libhwloc15",
    "liblua5.1-0",
    "libmunge2",
    "munge",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurmctld",
    "slurmd",
)
"""Slurm 22.05 of Debian 12 with the libraries that its base system lacks, and a program for isolated processes."""
LIBRARIES = "usr/lib/x86_64-linux-gnu"
NODE_TIMEOUT_S = 10
"""SlurmdTimeout: a node that does not respond for this time is down."""
CREDENTIAL_S = 5
"""cred_expire of AuthInfo: also how long a requeued job waits. Default: 120. https://slurm.schedmd.com/slurm.conf.html"""

CONFIG = """\
ClusterName=rlt
SlurmctldHost={machine}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={cred_expire}
CryptoType=crypto/munge
PluginDir={libraries}/slurm-wlm
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdTimeout={timeout}
KillWait=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
MailProg=/bin/true
InactiveLimit=0
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A Slurm cluster that runs."""

    folder: Path
    """Configuration, state and logs."""
    nodes: dict[str, Host]

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm. Raises CalledProcessError if it fails."""
        return subprocess.run(
            [find_program(command[0]), *command[1:]],
            env=build_environment(self.folder),
            check=True,
            capture_output=True,
            text=True,
            **options,
        )

    def read_state(self, job: str) -> str:
        """Return the state of a job, such as RUNNING."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job).stdout
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)["JobState"]

    def find_processes(self, node: str) -> dict[int, str]:
        """Return the command lines of the processes on a node, apart from Slurm's daemon, by ID."""
        return {pid: line for pid, line in self.nodes[node].find_processes().items() if "slurmd" not in line}


def obtain_slurm() -> Path:
    """Return the folder with the extracted packages. The first call downloads them with apt-get."""
    key = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    folder = cache_folder() / f"slurm-{key}"
    with exclusive_lock(cache_folder() / "slurm.lock"):
        if not folder.exists():
            log = ROOT / "out/logs/slurm.log"
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            with stage("download Slurm from Debian", estimate_s=20) as this:
                this.run(["apt-get", "update"], log=log)
                this.run(["apt-get", "download", *PACKAGES], log=log, cwd=partial)
                for package in partial.glob("*.deb"):
                    this.run(["dpkg-deb", "--extract", package, partial], log=log)
            partial.rename(folder)
    return folder


def find_program(name: str) -> str:
    """Return the path of a Slurm program."""
    root = obtain_slurm()
    return str(next(path for path in (root / "usr/bin" / name, root / "usr/sbin" / name) if path.exists()))


def build_environment(folder: Path) -> dict[str, str]:
    """The environment of Slurm's programs. Jobs inherit it."""
    root = obtain_slurm()
    return {
        **os.environ,
        "PATH": f"{root}/usr/bin:{root}/usr/sbin:{os.environ['PATH']}",
        "SLURM_CONF": f"{folder}/slurm.conf",
        "LD_LIBRARY_PATH": f"{root}/{LIBRARIES}:{root}/{LIBRARIES}/slurm-wlm",
    }


@contextmanager
def start_slurm(folder: Path, *, nodes: int = 2, cpus: int = 2) -> Iterator[Slurm]:
    """Run a cluster of nodes node-1, node-2, ... The folder has a short path, for sockets."""
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    write_config(folder, names, cpus)
    with ExitStack() as stack:
        hosts = stack.enter_context(start_hosts(names))
        start_daemon(stack, folder, None, ["munged", *build_munge_options(folder)])
        await_true(lambda: (folder / "munge.socket").exists(), "munged")
        start_daemon(stack, folder, None, ["slurmctld-wlm", "-D"])
        root = obtain_slurm()
        for name in names:
            stepd = f"{root}/usr/sbin/slurmstepd-wlm"
            start_daemon(stack, folder, hosts[name], ["slurmd-wlm", "-D", "-N", name, "-d", stepd], name=name)
        slurm = Slurm(folder, hosts)
        await_true(lambda: count_idle(slurm) == nodes, f"{nodes} idle nodes")
        yield slurm


def write_config(folder: Path, names: Sequence[str], cpus: int) -> None:
    """Write slurm.conf and the key of munge."""
    lines = [
        f"NodeName={name} NodeAddr={compute_address(number)} CPUs={cpus} RealMemory=200000 State=UNKNOWN"
        for number, name in enumerate(names)
    ]
    root = obtain_slurm()
    text = CONFIG.format(
        folder=folder,
        libraries=root / LIBRARIES,
        nodes="\n".join(lines),
        machine=socket.gethostname(),
        address=MACHINE,
        timeout=NODE_TIMEOUT_S,
        cred_expire=CREDENTIAL_S,
    )
    (folder / "state").mkdir(parents=True)
    (folder / "slurm.conf").write_text(text)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    folder.chmod(0o755)


def build_munge_options(folder: Path) -> list[str]:
    """The options of munged for files in the folder. --force: the parents of the folder are writable for others."""
    files = {"key-file": "munge.key", "log-file": "munge.log", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    options = [f"--{option}={folder / file}" for option, file in files.items()]
    return ["--foreground", "--force", f"--socket={folder}/munge.socket", *options]


def start_daemon(
    stack: ExitStack, folder: Path, host: Host | None, command: Sequence[str], *, name: str | None = None
) -> None:
    """Start a daemon in the foreground, on a node or on the machine."""
    enter = host.enter if host else []
    log = stack.enter_context((folder / f"{name or command[0]}.out").open("w"))
    process = subprocess.Popen(
        [*enter, find_program(command[0]), *command[1:]],
        env=build_environment(folder),
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    stack.callback(end_process, process)


def count_idle(slurm: Slurm) -> int:
    """Count the nodes that can run a job."""
    with suppress(subprocess.CalledProcessError):
        return slurm.run("sinfo", "--noheader", "--Node", "--format=%T").stdout.split().count("idle")
    return 0
