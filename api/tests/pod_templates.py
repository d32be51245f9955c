"""Fragments of podTemplates: those that take privileges or override limited fields, and harmless ones."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

OWN = "CONTAINER"
"""Stands for the name of the operator's container."""


def pod(**fields: Any) -> Json:
    return {"spec": fields}


def container(**fields: Any) -> Json:
    return pod(containers=[{"name": OWN, **fields}])


def volume(**source: Any) -> Json:
    return pod(volumes=[{"name": "data", **source}])


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OTHER: Json = {"name": "other", "image": "evil"}
ROOT: Json = {"runAsUser": 0, "privileged": True}

ATTACKS: dict[str, Json] = {
    "image": container(image="evil"),
    "image of another container": pod(containers=[OTHER]),
    "image without a name": pod(containers=[{"image": "evil"}]),
    "init container": pod(initContainers=[OTHER]),
    "init container of KubeRay": pod(initContainers=[{"name": "wait-gcs-ready", "image": "evil"}]),
    "ephemeral container": pod(ephemeralContainers=[OTHER]),
    "privileged": container(securityContext={"privileged": True}),
    "capabilities": container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
    "procMount": container(securityContext={"procMount": "Unmasked"}),
    "security context of the pod": pod(securityContext={"runAsUser": 0}),
    "security context removed": pod(securityContext=None),
    "security context of the container removed": container(securityContext=None),
    "sysctls": pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    "hostPath": volume(hostPath={"path": "/"}),
    "hostPath beside another source": volume(emptyDir={}, hostPath={"path": "/"}),
    "csi": volume(csi={"driver": "any"}),
    "nfs": volume(nfs={"server": "a", "path": "/"}),
    "image volume": volume(image={"reference": "evil"}),
    "ephemeral volume": volume(ephemeral={"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}),
    "service account token": volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]}),
    "the operator's volume": pod(volumes=[{"name": "training-config", "configMap": {"name": "mine"}}]),
    "the operator's host volume": pod(volumes=[{"name": "host-0", "emptyDir": {}}]),
    "volumes removed": pod(volumes=None),
    "volumes as an object": pod(volumes={"name": "data", "hostPath": {"path": "/"}}),
    "mount over the config": container(volumeMounts=[{"name": "data", "mountPath": "/etc/rlt"}]),
    "mount below the config": container(volumeMounts=[{"name": "data", "mountPath": "//etc/x/../rlt/training.json"}]),
    "mount over functions": container(volumeMounts=[{"name": "data", "mountPath": "/etc/rlt-functions/a"}]),
    "mount propagation": container(
        volumeMounts=[{"name": "data", "mountPath": "/a", "mountPropagation": "Bidirectional"}]
    ),
    "block device": container(volumeDevices=[{"name": "data", "devicePath": "/dev/a"}]),
    "service account": pod(serviceAccountName="admin"),
    "service account by its old name": pod(serviceAccount="admin"),
    "API credentials": pod(automountServiceAccountToken=True),
    "API credentials by removal": pod(automountServiceAccountToken=None),
    "hostNetwork": pod(hostNetwork=True),
    "hostPID": pod(hostPID=True),
    "hostIPC": pod(hostIPC=True),
    "hostUsers": pod(hostUsers=True),
    "hostPort": container(ports=[{"containerPort": 80, "hostPort": 80}]),
    "nodeName": pod(nodeName="control-plane"),
    "nodeSelector": pod(nodeSelector={"pool": "other"}),
    "tolerations": pod(tolerations=[{"operator": "Exists"}]),
    "runtimeClassName": pod(runtimeClassName="runc"),
    "schedulerName": pod(schedulerName="other"),
    "priorityClassName": pod(priorityClassName="system-node-critical"),
    "priority": pod(priority=2_000_000_000),
    "nodeAffinity": pod(affinity={"nodeAffinity": {REQUIRED: {}}}),
    "anti-affinity to pods of other namespaces": pod(
        affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}}]}}
    ),
    "resources": container(resources={"limits": {"nvidia.com/gpu": "64"}}),
    "resources of the pod": pod(resources={"limits": {"cpu": "64"}}),
    "grace period": pod(terminationGracePeriodSeconds=10**6),
    "resource claims": pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "all"}]),
    "env": container(env=[{"name": "A", "value": "1"}]),
    "envFrom": container(envFrom=[{"secretRef": {"name": "all"}}]),
    "command": container(command=["sh"]),
    "args": container(args=["sh"]),
    "lifecycle": container(lifecycle={"postStart": {"httpGet": {"host": "10.0.0.1", "port": 80}}}),
    "probe": container(livenessProbe={"httpGet": {"host": "10.0.0.1", "port": 80}}),
    "replaced containers": pod(containers=[{"$patch": "replace"}, OTHER]),
    "deleted container": container(**{"$patch": "delete"}),
    "replaced pod": pod(**{"$patch": "replace"}),
    "retained keys": pod(**{"$retainKeys": ["containers"]}),
    "containers as an object": pod(containers={"name": OWN, "image": "evil"}),
    "containers removed": pod(containers=None),
    "spec removed": {"spec": None},
    "labels removed": {"metadata": {"labels": None}},
    "label of another job": {"metadata": {"labels": {"rlt.dev/job": "other"}}},
    "label of another cluster": {"metadata": {"labels": {"ray.io/cluster": "other"}}},
    "label of a queue": {"metadata": {"labels": {"kai.scheduler/queue": "big"}}},
    "label of a queue without a domain": {"metadata": {"labels": {"queue": "big"}}},
    "annotation of the runtime": {"metadata": {"annotations": {"cdi.k8s.io/all": "nvidia.com/gpu=all"}}},
    "annotation of AppArmor": {
        "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/ray-head": "unconfined"}}
    },
    "owner": {"metadata": {"ownerReferences": []}},
    "unknown field": {"spec": {"aFutureField": True}},
    "nested template": {"template": {"spec": {"hostNetwork": True}}},
    **{f"security context {key} {value}": pod(securityContext={key: value}) for key, value in ROOT.items()},
}
"""None of them passes level restricted."""

HARMLESS: dict[str, Json] = {
    "labels": {"metadata": {"labels": {"team": "a", "app.kubernetes.io/part-of": "b"}}},
    "affinity": pod(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}}),
    "preferred affinity": pod(
        affinity={"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]}}
    ),
    "spread": pod(
        topologySpreadConstraints=[{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]
    ),
    "hosts": pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}]),
    "dns": pod(dnsConfig={"nameservers": ["10.0.0.1"]}),
    "service links": pod(enableServiceLinks=False),
    "claim": volume(persistentVolumeClaim={"claimName": "data"}),
    "emptyDir": volume(emptyDir={"sizeLimit": "1Gi"}),
    "config map": volume(configMap={"name": "a"}),
    "secret": volume(secret={"secretName": "a"}),
    "projected": volume(projected={"defaultMode": 420, "sources": [{"secret": {"name": "a"}}]}),
    "mount": container(volumeMounts=[{"name": "data", "mountPath": "/data", "subPath": "a", "readOnly": True}]),
    "mount beside the config": container(volumeMounts=[{"name": "data", "mountPath": "/etc/rlt-more"}]),
    "port": container(ports=[{"name": "debug", "containerPort": 5678, "protocol": "TCP"}]),
    "working directory": container(workingDir="/data"),
    "empty": {},
    "empty spec": {"spec": {}},
}
"""Level restricted accepts each of them."""


def for_container(value: Any, name: str) -> Any:
    """The fragment with the name of the operator's container."""
    if isinstance(value, dict):
        return {key: for_container(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [for_container(each, name) for each in value]
    return name if value == OWN else value
