"""The webhook in the chart: configuration, Service, operator options and permissions match."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlt_e2e.cluster import Cluster
from rlt_operator.__main__ import build_parser
from rlt_operator.key_pair import KeyPair
from rlt_operator.webhook.certificates import CertificateLocation, build_secret, build_trust_patch

pytestmark = pytest.mark.apiserver

CHART = Path(__file__).parents[1] / "rlt-operator"
ACCOUNT = "system:serviceaccount:rlt-system:rlt-operator"

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]


@pytest.fixture
def authority(tmp_path: Path) -> str:
    """The certificate of an authority (PEM)."""
    subject = ("-subj", "/CN=test", "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "authority"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", *subject], check=True)
    return (tmp_path / "authority").read_text()


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = (each for each in of_kind(manifests, kind) if each["metadata"]["name"] == name)
    return found


def pod_of(manifests: list[Manifest]) -> Manifest:
    deployment = named(manifests, "Deployment", "rlt-operator-webhook")
    pod: Manifest = deployment["spec"]["template"]["spec"]
    return pod


def apply_as_operator(cluster: Cluster, manifest: Manifest) -> None:
    """Server-side apply with the permissions of the operator's account."""
    options = ("--server-side", "--force-conflicts", "--field-manager=rlt-operator", "--validate=false")
    cluster.kubectl("apply", *options, f"--as={ACCOUNT}", "-f", "-", input=json.dumps(manifest))


def read(cluster: Cluster, kind: str, name: str) -> Manifest:
    manifest: Manifest = json.loads(cluster.kubectl("get", kind, name, "-n", "rlt-system", "-o", "json"))
    return manifest


def test_the_webhook_is_served_where_the_api_server_calls_it(render: Render) -> None:
    manifests = render("webhook.port=10250")
    (container,) = pod_of(manifests)["containers"]
    options = build_parser().parse_args(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert options.port == ports["webhook"] == 10250
    (operator,) = named(manifests, "Deployment", "rlt-operator")["spec"]["template"]["spec"]["containers"]
    writes = build_parser().parse_args(operator["args"])
    assert (writes.secret, writes.configuration) == (options.secret, options.configuration)
    (configuration,) = of_kind(manifests, "ValidatingWebhookConfiguration")
    service = named(manifests, "Service", "rlt-operator-webhook")
    assert options.configuration == configuration["metadata"]["name"]
    called = configuration["webhooks"][0]["clientConfig"]["service"]
    assert (called["name"], called["path"]) == (service["metadata"]["name"], "/validate")
    (port,) = (each for each in service["spec"]["ports"] if each["name"] == "webhook")
    assert (port["port"], port["targetPort"]) == (called["port"], "webhook")
    (secret,) = of_kind(manifests, "Secret")
    assert options.secret == (secret["metadata"]["namespace"], secret["metadata"]["name"])
    assert "data" not in secret


def test_cert_manager_issues_the_certificate_that_the_webhook_reads(render: Render) -> None:
    manifests = render("webhook.certificates=cert-manager")
    pod = pod_of(manifests)
    (container,) = pod["containers"]
    (volume,) = pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert build_parser().parse_args(container["args"]).certificates == Path(mount["mountPath"])
    authority, certificate = of_kind(manifests, "Certificate")
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    issuers = {issuer["metadata"]["name"]: issuer["spec"] for issuer in of_kind(manifests, "Issuer")}
    assert issuers[certificate["spec"]["issuerRef"]["name"]]["ca"]["secretName"] == authority["spec"]["secretName"]
    (configuration,) = of_kind(manifests, "ValidatingWebhookConfiguration")
    injected = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert injected == f"rlt-system/{certificate['metadata']['name']}"
    assert certificate["spec"]["dnsNames"] == ["rlt-operator-webhook.rlt-system.svc"]
    roles = {role["metadata"]["name"] for role in of_kind(manifests, "Role")}
    assert roles == {"rlt-operator-leader-election", "rlt-operator-ray-token-key", "rlt-operator-usage-records"}


def test_without_the_webhook_no_manifest_mentions_it(render: Render) -> None:
    assert "webhook" not in json.dumps(render("webhook.enabled=false"))
    assert "rlt-webhook" not in json.dumps(render("webhook.enabled=false", "metrics.serviceMonitor.enabled=true"))


def test_the_authorities_of_the_clients_are_mounted(render: Render) -> None:
    pod = pod_of(render("webhook.clientCertificate.configMap=clients", "webhook.clientCertificate.name=api"))
    (container,) = pod["containers"]
    options = build_parser().parse_args(container["args"])
    (mount,) = container["volumeMounts"]
    (volume,) = pod["volumes"]
    assert volume["configMap"]["name"] == "clients"
    assert (options.client_ca, options.client_name) == (Path(mount["mountPath"]) / "ca.crt", "api")


def test_the_webhook_can_read_its_certificate_and_write_nothing(installed: Cluster) -> None:
    account = "--as=system:serviceaccount:rlt-system:rlt-operator-webhook"
    installed.kubectl("get", "secret", "rlt-operator-webhook", "-n", "rlt-system", account)
    installed.kubectl("get", "validatingwebhookconfiguration", "rlt-operator", account)
    for request in (("delete", "secret", "rlt-operator-webhook"), ("get", "secrets"), ("get", "rltrainingjobs", "-A")):
        with pytest.raises(ValueError, match="forbidden"):
            installed.kubectl(*request, "-n", "rlt-system", account)


def test_the_operator_has_permission_to_write_its_certificate(installed: Cluster) -> None:
    location = CertificateLocation("rlt-system", "rlt-operator-webhook", "rlt-operator")
    pair = KeyPair("certificate", "key", "authority")
    found = read(installed, "secret", location.secret)
    apply_as_operator(installed, build_secret(location, pair, found))
    installed.kubectl("delete", "secret", location.secret, "-n", "rlt-system")
    apply_as_operator(installed, build_secret(location, pair, None))
    assert set(read(installed, "secret", location.secret)["data"]) == {"tls.crt", "tls.key", "ca.crt"}


def test_the_operator_has_no_permission_for_other_secrets(installed: Cluster) -> None:
    other = build_secret(CertificateLocation("rlt-system", "other", "rlt-operator"), KeyPair("c", "k", "a"), None)
    with pytest.raises(ValueError, match="forbidden"):
        apply_as_operator(installed, other)
    with pytest.raises(ValueError, match="forbidden"):
        installed.kubectl("get", "secrets", "-n", "rlt-system", f"--as={ACCOUNT}")
    with pytest.raises(ValueError, match="forbidden"):
        installed.kubectl("get", "secret", "any", "-n", "team-a", f"--as={ACCOUNT}")


def test_the_operator_writes_the_ca_bundle_and_an_upgrade_keeps_it(installed: Cluster, authority: str) -> None:
    location = CertificateLocation("rlt-system", "rlt-operator-webhook", "rlt-operator")
    pair = KeyPair("c", "k", authority)
    before = read(installed, "validatingwebhookconfiguration", "rlt-operator")
    apply_as_operator(installed, build_trust_patch(before, pair))
    apply_as_operator(installed, build_secret(location, pair, read(installed, "secret", location.secret)))
    values = ("--set", "webhook.timeoutSeconds=7", "--set-string", "podAnnotations.a=b")
    installed.helm("upgrade", "rlt-operator", CHART, "--namespace", "rlt-system", "--skip-crds", *values)
    after = read(installed, "validatingwebhookconfiguration", "rlt-operator")
    assert base64.b64decode(after["webhooks"][0]["clientConfig"].pop("caBundle")).decode() == authority
    assert after["webhooks"] == [{**before["webhooks"][0], "timeoutSeconds": 7}]
    assert set(read(installed, "secret", location.secret)["data"]) == {"tls.crt", "tls.key", "ca.crt"}
