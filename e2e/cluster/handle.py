"""The handle that tests, demo and CLI hold: of the embedded cluster, or of one that KUBECONFIG names."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cluster import images, lifecycle, network
from cluster.layout import FIRST_PORT, SUBNET, Layout, default_state
from cluster.programs import obtain_built
from cluster.stages import StageError

TRAINER_UID = 1000
"""The user that trainer pods run as, and that owns a shared volume's folder."""


@dataclass(frozen=True)
class Cluster:
    kubeconfig: Path
    layout: Layout | None
    """None for a cluster that is not ours: then only what kubectl and Helm can do works."""

    @classmethod
    def up(
        cls, *, nodes: int = 2, state: Path | None = None, first_port: int = FIRST_PORT, subnet: int = SUBNET
    ) -> Self:
        """The embedded cluster, running and healthy; about a second where it is so already.

        `nodes` 0 is a control plane alone on loopback, for API-server tests. A `state`, `first_port` (six ports from
        there on) and `subnet` (10.SUBNET.0.0/16) of its own let it run beside another. Raises ValueError with advice.
        """
        layout = Layout((state or default_state()).absolute(), nodes, first_port, subnet)
        lifecycle.up(layout)
        return cls(layout.admin, layout)

    @classmethod
    def connect(cls, state: Path | None = None) -> Self:
        """The cluster that KUBECONFIG names, else the embedded one that runs. Raises ValueError where none does."""
        state = (state or default_state()).absolute()
        given = os.environ.get("KUBECONFIG")
        if given and Path(given).absolute() != state / "kubeconfig":
            return cls(Path(given).absolute(), None)
        record = lifecycle.read_record(state)
        if not record or not record.ready:
            raise StageError("no cluster runs", advice="python -m cluster up")
        layout = record.layout(state)
        return cls(layout.admin, layout)

    def down(self) -> None:
        """Leave no process, mount, namespace, link, nftables rule, cgroup or file behind."""
        lifecycle.down(self._embedded("taken down").state)

    def kubectl(self, *arguments: str | Path, input: str | None = None) -> str:
        """Its standard output. Raises ValueError with its standard error."""
        return self._program("kubectl", *arguments, input=input)

    def helm(self, *arguments: str | Path) -> str:
        """Its standard output. Raises ValueError with its standard error."""
        return self._program("helm", *arguments)

    def apply(self, *manifests: Mapping[str, object]) -> None:
        """`kubectl apply` of dictionaries."""
        self.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def build_image(
        self,
        dockerfile: Path,
        *,
        context: Path,
        tag: str,
        target: str | None = None,
        build_args: Mapping[str, str] | None = None,
    ) -> str:
        """Build and load; returns the image id. Pods use `tag` with ``imagePullPolicy: Never`` (or IfNotPresent)."""
        self._embedded("given images of this machine")
        image_id = images.build_image(dockerfile, context=context, tag=tag, target=target, build_args=build_args)
        self.load_image(tag)
        return image_id

    def load_image(self, tag: str) -> None:
        """Give the built image `tag` to every node; nothing to do where they hold this very image."""
        lifecycle.load_image(self._embedded("given images of this machine"), tag)

    def shared_volume(self, namespace: str, claim: str, *, gigabytes: int = 10) -> Path:
        """A ReadWriteMany PersistentVolumeClaim in an existing namespace, on both nodes one folder: its path here.

        Writable for uid 1000, the trainer's. Ends with the cluster.
        """
        folder = self._embedded("given a folder of this machine").state / "volumes" / namespace / claim
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, TRAINER_UID, TRAINER_UID)
        folder.chmod(0o2770)
        size = {"storage": f"{gigabytes}Gi"}
        volume_name = f"{namespace}-{claim}"
        shared = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume_name},
                "spec": {
                    **shared,
                    "capacity": size,
                    "hostPath": {"path": str(folder)},
                    "claimRef": {"namespace": namespace, "name": claim},
                    "persistentVolumeReclaimPolicy": "Retain",
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": namespace},
                "spec": {**shared, "volumeName": volume_name, "resources": {"requests": size}},
            },
        )
        return folder

    def nodes(self) -> list[str]:
        """Names of the nodes, in order."""
        return self.kubectl("get", "nodes", "--output", "jsonpath={.items[*].metadata.name}").split()

    def label_node(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Set labels; None removes one."""
        pairs = [f"{name}-" if value is None else f"{name}={value}" for name, value in labels.items()]
        self.kubectl("label", "--overwrite", "node", node, *pairs)

    def set_extended_resource(self, node: str, name: str, count: int) -> None:
        """Advertise `count` of a resource such as ``nvidia.com/gpu`` that no device stands behind; 0 removes it."""
        self._embedded("given devices that are not there")
        self.kubectl(
            "patch",
            "node",
            node,
            "--subresource=status",
            "--type=merge",
            "--patch",
            json.dumps({"status": {field: {name: str(count) if count else None} for field in _RESOURCE_FIELDS}}),
        )

    def lose_node(self, node: str) -> None:
        """Cut a node's cable: NotReady within a minute, its pods run on."""
        layout = self._embedded("deprived of a node")
        network.set_link(layout.node(node), is_up=False)

    def restore_node(self, node: str) -> None:
        """Plug it in again: Ready within seconds."""
        layout = self._embedded("given a node back")
        network.set_link(layout.node(node), is_up=True)

    def _embedded(self, done: str) -> Layout:
        if not self.layout:
            raise ValueError(
                f"the cluster of KUBECONFIG={self.kubeconfig} cannot be {done} from here: unset KUBECONFIG to use the "
                "embedded cluster, or do it by that cluster's own means"
            )
        return self.layout

    def _program(self, name: str, *arguments: str | Path, input: str | None = None) -> str:
        own = None if self.layout else shutil.which(name)
        answer = subprocess.run(
            [own or str(obtain_built() / name), *map(str, arguments)],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            input=input,
            capture_output=True,
            text=True,
        )
        if answer.returncode:
            words = answer.stderr.strip() or answer.stdout.strip()
            raise StageError(f"{name} {' '.join(map(str, arguments))}: {words}")
        return answer.stdout


_RESOURCE_FIELDS = ("capacity", "allocatable")
