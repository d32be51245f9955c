"""Create the certificates and kubeconfigs of a cluster with openssl. There are two CAs, one of them only for etcd."""

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rlt_e2e.cluster.layout import API_SERVICE, Layout

DAYS = "3650"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

USERS = {
    "admin": "/O=system:masters/CN=rlt-admin",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "coredns": "/CN=rlt:coredns",
}
"""Name of the kubeconfig -> subject of its certificate. Each node adds one in the group system:nodes."""


def issue_all(layout: Layout) -> None:
    """Create all certificates and kubeconfigs of the cluster in its state folder. Only root can read them."""
    folder = layout.certificates
    folder.mkdir(parents=True, mode=0o700)
    create_authority(folder, "etcd-ca")
    issue(folder, "etcd", authority="etcd-ca", subject="/CN=etcd", names=["IP:127.0.0.1"])
    issue(folder, "etcd-client", authority="etcd-ca", subject="/CN=kube-apiserver")
    create_authority(folder, "ca")
    service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    names = [*(f"DNS:{name}" for name in service), f"IP:{API_SERVICE}", f"IP:{layout.address}"]
    issue(folder, "kube-apiserver", authority="ca", subject="/CN=kube-apiserver", names=names)
    issue(folder, "kubelet-client", authority="ca", subject="/CN=rlt:kube-apiserver")
    key = f"{folder}/service-account.key"
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key)
    for user, subject in USERS.items():
        issue(folder, user, authority="ca", subject=subject)
        _write_kubeconfig(layout, user, layout.admin if user == "admin" else layout.kubeconfig(user))
    for node in layout.all_nodes():
        subject = f"/O=system:nodes/CN=system:node:{node.name}"
        issue(folder, node.name, authority="ca", subject=subject)
        _write_kubeconfig(layout, node.name, layout.kubeconfig(node.name))
        names = [f"DNS:{node.name}", f"IP:{node.address}"]
        issue(folder, f"{node.name}-serving", authority="ca", subject=subject, names=names)


def create_authority(folder: Path, name: str) -> None:
    extension = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl("req", "-x509", *NEW_KEY, *_files(folder, name), "-subj", f"/CN=rlt-{name}", "-days", DAYS, *extension)


def issue(folder: Path, name: str, *, authority: str, subject: str, names: Sequence[str] = ()) -> None:
    """Create a client certificate. With `names` (``DNS:…`` and ``IP:…``) it is also a server certificate."""
    usage = "extendedKeyUsage=clientAuth" + (",serverAuth" if names else "")
    extensions = ["-addext", usage, "-addext", "basicConstraints=critical,CA:FALSE"]
    if names:
        extensions += ["-addext", f"subjectAltName={','.join(names)}"]
    signer = ["-CA", f"{folder}/{authority}.crt", "-CAkey", f"{folder}/{authority}.key"]
    _openssl("req", "-x509", *NEW_KEY, *_files(folder, name), "-subj", subject, "-days", DAYS, *signer, *extensions)


def build_kubeconfig(server: str, *, authority: bytes, certificate: bytes, key: bytes) -> str:
    """Return the text of a kubeconfig in JSON. The three last arguments are in PEM."""

    def data(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rlt", "cluster": {"server": server, "certificate-authority-data": data(authority)}}],
            "users": [{"name": "rlt", "user": user}],
            "contexts": [{"name": "rlt", "context": {"cluster": "rlt", "user": "rlt"}}],
            "current-context": "rlt",
        },
        indent=2,
    )


def _write_kubeconfig(layout: Layout, user: str, target: Path) -> None:
    folder = layout.certificates
    authority, certificate, key = ((folder / name).read_bytes() for name in ("ca.crt", f"{user}.crt", f"{user}.key"))
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    target.touch(mode=0o600)
    target.write_text(build_kubeconfig(layout.server, authority=authority, certificate=certificate, key=key))


def _files(folder: Path, name: str) -> list[str]:
    return ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt"]


def _openssl(*arguments: str) -> None:
    answer = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if answer.returncode:
        raise ValueError(f"openssl {arguments[0]} failed: {answer.stderr.strip()}")
