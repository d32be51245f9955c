"""The fields of a pod template with their types (core/v1, Kubernetes 1.35), as far as jobs use them.

A type is a name (STRING, …), a tuple with the values of an enumeration, a list with the type of its items, or an
object: its fields with their types. Objects that are rare in a training job have the type ANY.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ANY = "any"
STRING = "text"
INTEGER = "an integer"
FLAG = "true or false"
PORT = "an integer or a name"
QUANTITY = "a quantity such as 500m, 2 or 8Gi"
TEXTS = "an object of texts"
QUANTITIES = "an object of quantities"

Type = str | tuple[str, ...] | Sequence["Type"] | Mapping[str, "Type"]


def _rest(*names: str) -> dict[str, Type]:
    return dict.fromkeys(names, ANY)


KEY: Mapping[str, Type] = {"name": STRING, "key": STRING, "optional": FLAG}
SOURCE: Mapping[str, Type] = {"name": STRING, "optional": FLAG}
SELECTOR: Mapping[str, Type] = {"matchLabels": TEXTS, "matchExpressions": ANY}
METADATA: Mapping[str, Type] = {
    "labels": TEXTS,
    "annotations": TEXTS,
    "name": STRING,
    "namespace": STRING,
    **_rest("generateName", "finalizers", "ownerReferences", "creationTimestamp", "uid", "resourceVersion"),
    **_rest("generation", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"),
}
ENV: Mapping[str, Type] = {
    "name": STRING,
    "value": STRING,
    "valueFrom": {
        "secretKeyRef": KEY,
        "configMapKeyRef": KEY,
        "fieldRef": {"fieldPath": STRING, "apiVersion": STRING},
        "resourceFieldRef": {"resource": STRING, "containerName": STRING, "divisor": QUANTITY},
        "fileKeyRef": ANY,
    },
}
ENV_FROM: Mapping[str, Type] = {"prefix": STRING, "secretRef": SOURCE, "configMapRef": SOURCE}
MOUNT: Mapping[str, Type] = {
    "name": STRING,
    "mountPath": STRING,
    "subPath": STRING,
    "subPathExpr": STRING,
    "readOnly": FLAG,
    "recursiveReadOnly": ("Disabled", "IfPossible", "Enabled"),
    "mountPropagation": ("None", "HostToContainer", "Bidirectional"),
}
RESOURCES: Mapping[str, Type] = {"limits": QUANTITIES, "requests": QUANTITIES, "claims": ANY}
CAPABILITIES: Mapping[str, Type] = {"add": [STRING], "drop": [STRING]}
SECURITY: Mapping[str, Type] = {
    "runAsUser": INTEGER,
    "runAsGroup": INTEGER,
    "runAsNonRoot": FLAG,
    **_rest("seLinuxOptions", "windowsOptions", "seccompProfile", "appArmorProfile"),
}
CONTAINER_SECURITY: Mapping[str, Type] = {
    **SECURITY,
    "capabilities": CAPABILITIES,
    "privileged": FLAG,
    "allowPrivilegeEscalation": FLAG,
    "readOnlyRootFilesystem": FLAG,
    "procMount": STRING,
}
POD_SECURITY: Mapping[str, Type] = {
    **SECURITY,
    "fsGroup": INTEGER,
    "fsGroupChangePolicy": ("OnRootMismatch", "Always"),
    "supplementalGroups": [INTEGER],
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "sysctls": [{"name": STRING, "value": STRING}],
    **_rest("seLinuxChangePolicy"),
}
CONTAINER: Mapping[str, Type] = {
    "name": STRING,
    "image": STRING,
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "command": [STRING],
    "args": [STRING],
    "workingDir": STRING,
    "env": [ENV],
    "envFrom": [ENV_FROM],
    "volumeMounts": [MOUNT],
    "resources": RESOURCES,
    "securityContext": CONTAINER_SECURITY,
    "ports": [
        {
            "name": STRING,
            "containerPort": INTEGER,
            "hostPort": INTEGER,
            "hostIP": STRING,
            "protocol": ("TCP", "UDP", "SCTP"),
        }
    ],
    "stdin": FLAG,
    "stdinOnce": FLAG,
    "tty": FLAG,
    "terminationMessagePath": STRING,
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
    **_rest("lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "resizePolicy", "restartPolicy"),
    **_rest("restartPolicyRules", "volumeDevices"),
}
ITEMS: Sequence[Type] = [{"key": STRING, "path": STRING, "mode": INTEGER}]
VOLUME: Mapping[str, Type] = {
    "name": STRING,
    "persistentVolumeClaim": {"claimName": STRING, "readOnly": FLAG},
    "emptyDir": {"medium": ("", "Memory", "HugePages"), "sizeLimit": QUANTITY},
    "hostPath": {
        "path": STRING,
        "type": (
            *("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"),
        ),
    },
    "configMap": {**SOURCE, "defaultMode": INTEGER, "items": ITEMS},
    "secret": {"secretName": STRING, "optional": FLAG, "defaultMode": INTEGER, "items": ITEMS},
    "nfs": {"server": STRING, "path": STRING, "readOnly": FLAG},
    "csi": {
        "driver": STRING,
        "fsType": STRING,
        "readOnly": FLAG,
        "volumeAttributes": TEXTS,
        **_rest("nodePublishSecretRef"),
    },
    "image": {"reference": STRING, "pullPolicy": ("Always", "IfNotPresent", "Never")},
    "projected": {"defaultMode": INTEGER, "sources": ANY},
    **_rest("ephemeral", "downwardAPI", "iscsi", "fc", "cephfs", "rbd", "glusterfs", "azureDisk", "azureFile"),
    **_rest("awsElasticBlockStore", "gcePersistentDisk", "cinder", "flexVolume", "flocker", "gitRepo"),
    **_rest("portworxVolume", "quobyte", "photonPersistentDisk", "scaleIO", "storageos", "vsphereVolume"),
}
TOLERATION: Mapping[str, Type] = {
    "key": STRING,
    "operator": ("Exists", "Equal", "Lt", "Gt"),
    "value": STRING,
    "effect": ("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
    "tolerationSeconds": INTEGER,
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EXPRESSIONS: Sequence[Type] = [
    {"key": STRING, "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), "values": [STRING]}
]
NODE_TERM: Mapping[str, Type] = {"matchExpressions": EXPRESSIONS, "matchFields": EXPRESSIONS}
POD_TERM: Mapping[str, Type] = {
    "labelSelector": SELECTOR,
    "topologyKey": STRING,
    "namespaces": [STRING],
    **_rest("namespaceSelector", "matchLabelKeys", "mismatchLabelKeys"),
}
POD_AFFINITY: Mapping[str, Type] = {
    REQUIRED: [POD_TERM],
    PREFERRED: [{"weight": INTEGER, "podAffinityTerm": POD_TERM}],
}
AFFINITY: Mapping[str, Type] = {
    "nodeAffinity": {
        REQUIRED: {"nodeSelectorTerms": [NODE_TERM]},
        PREFERRED: [{"weight": INTEGER, "preference": NODE_TERM}],
    },
    "podAffinity": POD_AFFINITY,
    "podAntiAffinity": POD_AFFINITY,
}
SPREAD: Mapping[str, Type] = {
    "maxSkew": INTEGER,
    "topologyKey": STRING,
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "labelSelector": SELECTOR,
    "minDomains": INTEGER,
    "nodeAffinityPolicy": ("Honor", "Ignore"),
    "nodeTaintsPolicy": ("Honor", "Ignore"),
    "matchLabelKeys": [STRING],
}
POD: Mapping[str, Type] = {
    "activeDeadlineSeconds": INTEGER,
    "affinity": AFFINITY,
    "automountServiceAccountToken": FLAG,
    "containers": [CONTAINER],
    "dnsConfig": {"nameservers": [STRING], "searches": [STRING], "options": [{"name": STRING, "value": STRING}]},
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "enableServiceLinks": FLAG,
    "hostAliases": [{"ip": STRING, "hostnames": [STRING]}],
    "hostIPC": FLAG,
    "hostNetwork": FLAG,
    "hostPID": FLAG,
    "hostUsers": FLAG,
    "hostname": STRING,
    "imagePullSecrets": [{"name": STRING}],
    "initContainers": [CONTAINER],
    "nodeName": STRING,
    "nodeSelector": TEXTS,
    "preemptionPolicy": ("PreemptLowerPriority", "Never"),
    "priority": INTEGER,
    "priorityClassName": STRING,
    "resourceClaims": [{"name": STRING, "resourceClaimName": STRING, "resourceClaimTemplateName": STRING}],
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "runtimeClassName": STRING,
    "schedulerName": STRING,
    "securityContext": POD_SECURITY,
    "serviceAccount": STRING,
    "serviceAccountName": STRING,
    "setHostnameAsFQDN": FLAG,
    "shareProcessNamespace": FLAG,
    "subdomain": STRING,
    "terminationGracePeriodSeconds": INTEGER,
    "tolerations": [TOLERATION],
    "topologySpreadConstraints": [SPREAD],
    "volumes": [VOLUME],
    **_rest("ephemeralContainers", "hostnameOverride", "os", "overhead", "readinessGates", "resources"),
    **_rest("schedulingGates", "workloadRef"),
}
TEMPLATE: Mapping[str, Type] = {"metadata": METADATA, "spec": POD}

NEEDED: Mapping[str, tuple[str, ...]] = {
    "volumes": ("name",),
    "volumeMounts": ("name", "mountPath"),
    "env": ("name",),
    "ports": ("containerPort",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("maxSkew", "topologyKey", "whenUnsatisfiable"),
}
"""List -> the fields that each of its items must have."""
