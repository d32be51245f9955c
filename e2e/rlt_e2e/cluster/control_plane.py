"""etcd, kube-apiserver, kube-controller-manager, kube-scheduler and CoreDNS as processes of the machine."""

import json
import shlex
from pathlib import Path

from rlt_e2e.cluster import processes
from rlt_e2e.cluster.layout import DNS_SERVICE, SERVICE_NETWORK, Layout

LOOPBACK = "127.0.0.1"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]}],
}
"""The audit log contains who wrote which object when. Reads and the contents of objects are left out."""


def list_processes(layout: Layout) -> list[str]:
    """Return the names of the processes. Without nodes there is no scheduler and no DNS."""
    always = ["etcd", "kube-apiserver", "kube-controller-manager"]
    return [*always, "kube-scheduler", "coredns"] if layout.nodes else always


def build_command(layout: Layout, name: str) -> list[str]:
    """Return the command line of process `name`."""
    return {
        "etcd": _etcd,
        "kube-apiserver": _apiserver,
        "kube-controller-manager": _controller_manager,
        "kube-scheduler": _scheduler,
        "coredns": _coredns,
    }[name](layout)


def start(layout: Layout, name: str, *, search_path: str) -> None:
    if name == "kube-apiserver":
        _audit_policy(layout).write_text(json.dumps(AUDIT_POLICY))
    if name == "coredns":
        _corefile(layout).write_text(build_corefile(layout))
    command = build_command(layout, name)
    log = layout.logs / f"{name}.log"
    processes.start(name, command, state=layout.state, log=log, search_path=search_path)


def build_corefile(layout: Layout) -> str:
    return f"""cluster.local:{layout.port("coredns")} in-addr.arpa:{layout.port("coredns")} {{
    bind {layout.address}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {layout.kubeconfig("coredns")}
        ttl 5
    }}
}}
.:{layout.port("coredns")} {{
    bind {layout.address}
    errors
    cache 30
    forward . /etc/resolv.conf
}}
"""


def _etcd(layout: Layout) -> list[str]:
    keys = layout.certificates
    client = f"https://{LOOPBACK}:{layout.port('etcd')}"
    peer = f"https://{LOOPBACK}:{layout.port('etcd-peer')}"
    pair = f"--cert-file={keys}/etcd.crt --key-file={keys}/etcd.key"
    return shlex.split(f"""etcd --name=rlt --data-dir={layout.state}/etcd --unsafe-no-fsync
        --listen-client-urls={client} --advertise-client-urls={client}
        {pair} --trusted-ca-file={keys}/etcd-ca.crt --client-cert-auth
        --listen-peer-urls={peer} --initial-advertise-peer-urls={peer} --initial-cluster=rlt={peer}
        {pair.replace("--", "--peer-")} --peer-trusted-ca-file={keys}/etcd-ca.crt --peer-client-cert-auth""")


def _apiserver(layout: Layout) -> list[str]:
    keys = layout.certificates
    where = f"--bind-address={layout.address} --secure-port={layout.port('kube-apiserver')}"
    # kube-apiserver does not accept a loopback address to advertise. Without nodes no client needs the address.
    where += f" --advertise-address={layout.address}" if layout.nodes else " --endpoint-reconciler-type=none"
    # Without a kube-proxy on this machine, cluster IPs are not reachable: call webhooks at the addresses of their pods.
    where += " --enable-aggregator-routing=true"
    return shlex.split(f"""kube-apiserver {where} --service-cluster-ip-range={SERVICE_NETWORK}
        --etcd-servers=https://{LOOPBACK}:{layout.port("etcd")} --etcd-cafile={keys}/etcd-ca.crt
        --etcd-certfile={keys}/etcd-client.crt --etcd-keyfile={keys}/etcd-client.key
        --tls-cert-file={keys}/kube-apiserver.crt --tls-private-key-file={keys}/kube-apiserver.key
        --client-ca-file={keys}/ca.crt --anonymous-auth=false --authorization-mode=Node,RBAC
        --kubelet-certificate-authority={keys}/ca.crt
        --kubelet-client-certificate={keys}/kubelet-client.crt --kubelet-client-key={keys}/kubelet-client.key
        --kubelet-preferred-address-types=InternalIP
        --service-account-issuer=https://kubernetes.default.svc.cluster.local
        --service-account-signing-key-file={keys}/service-account.key
        --service-account-key-file={keys}/service-account.key
        --enable-admission-plugins=NodeRestriction,MutatingAdmissionPolicy
        --feature-gates=MutatingAdmissionPolicy=true,GenericWorkload=true
        --runtime-config=admissionregistration.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha1=true
        --audit-policy-file={_audit_policy(layout)} --audit-log-path={layout.audit_log}
        --audit-log-maxsize=100 --audit-log-maxbackup=1
        --profiling=false""")


def _controller_manager(layout: Layout) -> list[str]:
    keys = layout.certificates
    return shlex.split(f"""kube-controller-manager {_client(layout, "kube-controller-manager")}
        --use-service-account-credentials --root-ca-file={keys}/ca.crt
        --service-account-private-key-file={keys}/service-account.key""")


def _scheduler(layout: Layout) -> list[str]:
    gangs = "--feature-gates=GenericWorkload=true,GangScheduling=true"
    return shlex.split(f"kube-scheduler {_client(layout, 'kube-scheduler')} {gangs}")


def _coredns(layout: Layout) -> list[str]:
    return ["coredns", "-conf", str(_corefile(layout))]


def _audit_policy(layout: Layout) -> Path:
    return layout.state / "audit-policy.json"


def _corefile(layout: Layout) -> Path:
    return layout.state / "Corefile"


def _client(layout: Layout, name: str) -> str:
    config = layout.kubeconfig(name)
    return f"""--kubeconfig={config} --authentication-kubeconfig={config} --authorization-kubeconfig={config}
        --bind-address={LOOPBACK} --secure-port={layout.port(name)} --leader-elect=false --profiling=false"""


def build_manifests(layout: Layout) -> list[dict[str, object]]:
    """Build the RBAC rules of kube-apiserver (for kubelets) and CoreDNS, and the DNS service with its endpoint."""
    port = layout.port("coredns")
    dns = {"name": "kube-dns", "namespace": "kube-system"}
    protocols = ("UDP", "TCP")
    rules: list[dict[str, object]] = [
        _binding("rlt:kube-apiserver", "system:kubelet-api-admin"),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "rlt:coredns"},
            "rules": [
                {"apiGroups": [""], "resources": ["services", "namespaces"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        },
        _binding("rlt:coredns", "rlt:coredns"),
    ]
    service: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": dns,
        "spec": {
            "clusterIP": DNS_SERVICE,
            "ports": [{"name": name.lower(), "protocol": name, "port": 53, "targetPort": port} for name in protocols],
        },
    }
    endpoint: dict[str, object] = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**dns, "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [layout.address], "conditions": {"ready": True}}],
        "ports": [{"name": name.lower(), "protocol": name, "port": port} for name in protocols],
    }
    return [*rules, service, endpoint]


def _binding(user: str, role: str) -> dict[str, object]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
