"""The client that tests, demo and CLI use: of the embedded cluster, or of the cluster that KUBECONFIG names."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rlt_e2e.cluster import images, lifecycle, network
from rlt_e2e.cluster.layout import FIRST_PORT, SUBNET, Layout, default_state
from rlt_e2e.cluster.programs import obtain_built
from rlt_e2e.cluster.stages import StageError

TRAINER_UID = 1000
"""User of the trainer's pods, and owner of a shared volume's folder."""


@dataclass(frozen=True)
class Cluster:
    kubeconfig: Path
    layout: Layout | None
    """None for the cluster of KUBECONFIG, where only what kubectl and Helm can do works."""

    @classmethod
    def up(
        cls, *, nodes: int = 2, state: Path | None = None, first_port: int = FIRST_PORT, subnet: int = SUBNET
    ) -> Self:
        """Start the embedded cluster, or return it after about a second if it is running and healthy.

        `nodes` 0 is only a control plane on loopback, for API server tests. Clusters with different `state`,
        `first_port` (the first of six) and `subnet` (10.SUBNET.0.0/16) can run side by side. Raises ValueError with
        advice.
        """
        layout = Layout((state or default_state()).absolute(), nodes, first_port, subnet)
        lifecycle.up(layout)
        return cls(layout.admin, layout)

    @classmethod
    def connect(cls, state: Path | None = None) -> Self:
        """Return the cluster of KUBECONFIG, else the embedded cluster. Raises ValueError if neither is running."""
        state = (state or default_state()).absolute()
        given = os.environ.get("KUBECONFIG")
        if given and Path(given).absolute() != state / "kubeconfig":
            return cls(Path(given).absolute(), None)
        record = lifecycle.read_record(state)
        if not record or not record.ready:
            raise StageError("the cluster is not running", advice="python -m rlt_e2e.cluster up")
        layout = record.layout(state)
        return cls(layout.admin, layout)

    def down(self) -> None:
        """Remove the cluster with all its processes, mounts, namespaces, links, nftables rules, cgroups and files."""
        lifecycle.down(self._require_embedded("remove the cluster").state)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of programs that use this cluster, with its kubectl first on the PATH."""
        folder = [str(obtain_built())] if self.layout else []
        path = os.pathsep.join([*folder, os.environ["PATH"]])
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def kubectl(self, *arguments: str | Path, input: str | None = None) -> str:
        """Run kubectl and return its standard output. Raises ValueError with its standard error."""
        return self._run("kubectl", *arguments, input=input)

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm and return its standard output. Raises ValueError with its standard error."""
        return self._run("helm", *arguments)

    def apply(self, *manifests: Mapping[str, object]) -> None:
        """Run `kubectl apply` with dictionaries."""
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
        """Build an image, load it and return its id. Pods use `tag` with ``imagePullPolicy: Never`` or IfNotPresent."""
        self._require_embedded("load images")
        image_id = images.build_image(dockerfile, context=context, tag=tag, target=target, build_args=build_args)
        self.load_image(tag)
        return image_id

    def load_image(self, tag: str) -> None:
        """Load the built image `tag` on every node, unless they have the image with this id."""
        lifecycle.load_image(self._require_embedded("load images"), tag)

    def shared_volume(self, namespace: str, claim: str, *, gigabytes: int = 10) -> Path:
        """Create a ReadWriteMany PVC in an existing namespace and return its folder on this machine.

        The trainer's uid 1000 can write it. The folder is removed with the cluster.
        """
        folder = self._require_embedded("mount a folder of this machine").state / "volumes" / namespace / claim
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
        """Return the names of the nodes in order."""
        return self.kubectl("get", "nodes", "--output", "jsonpath={.items[*].metadata.name}").split()

    def label_node(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Set labels; None removes one."""
        pairs = [f"{name}-" if value is None else f"{name}={value}" for name, value in labels.items()]
        self.kubectl("label", "--overwrite", "node", node, *pairs)

    def set_extended_resource(self, node: str, name: str, count: int) -> None:
        """Advertise `count` of a resource such as ``nvidia.com/gpu`` without any device. 0 removes the resource."""
        self._require_embedded("advertise devices")
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
        """Set the link of a node down. The node is NotReady within a minute; its pods continue to run."""
        layout = self._require_embedded("disconnect a node")
        network.set_link(layout.node(node), is_up=False)

    def restore_node(self, node: str) -> None:
        """Set the link of a node up. The node is Ready within seconds."""
        layout = self._require_embedded("reconnect a node")
        network.set_link(layout.node(node), is_up=True)

    def _require_embedded(self, action: str) -> Layout:
        if not self.layout:
            raise ValueError(
                f"KUBECONFIG={self.kubeconfig} names another cluster than the embedded one and rlt cannot {action} "
                "there: unset KUBECONFIG, or use the tools of that cluster"
            )
        return self.layout

    def _run(self, name: str, *arguments: str | Path, input: str | None = None) -> str:
        installed = None if self.layout else shutil.which(name)
        answer = subprocess.run(
            [installed or str(obtain_built() / name), *map(str, arguments)],
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
        )
        if answer.returncode:
            output = answer.stderr.strip() or answer.stdout.strip()
            raise StageError(f"{name} {' '.join(map(str, arguments))}: {output}")
        return answer.stdout


_RESOURCE_FIELDS = ("capacity", "allocatable")
