"""The webhook, called by the real API server, from the view of a user."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes, Webhook
from apiserver.waiting import eventually
from cryptography import x509

from rlt_operator.key_pair import VALIDITY, create_key_pair, parse_key_pair
from rlt_operator.webhook.certificates import CertificateLocation, build_secret

pytestmark = pytest.mark.apiserver

INVALID = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}}


def apply(webhook: Webhook, namespace: str, spec: dict[str, Any], *options: str) -> str:
    """`kubectl apply`. Returns its output or its error."""
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": spec}
    try:
        return webhook.kubernetes.kubectl("apply", "-n", namespace, *options, "-f", "-", input=json.dumps(manifest))
    except ValueError as error:
        return str(error)


def label(kubernetes: Kubernetes, namespace: str, text: str) -> None:
    kubernetes.kubectl("label", "namespace", namespace, text, "--overwrite")


def secret(kubernetes: Kubernetes) -> dict[str, str]:
    found = kubernetes.get("default", "secret", "webhook")
    assert found
    return {name: base64.b64decode(text).decode() for name, text in found["data"].items()}


def test_a_contradiction_is_rejected_with_the_path_of_the_field(webhook: Webhook, namespace: str) -> None:
    message = apply(webhook, namespace, INVALID)
    assert 'The RLTrainingJob "sum" is invalid' in message
    assert "spec.training.trainBatchSize: " in message
    assert webhook.kubernetes.get(namespace, "rltrainingjob", "sum") is None


def test_the_causes_contain_the_field(webhook: Webhook, namespace: str) -> None:
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": INVALID}
    path = f"/apis/rlt.dev/v1alpha1/namespaces/{namespace}/rltrainingjobs"
    cluster = webhook.kubernetes.cluster
    with pytest.raises(ValueError, match="denied the request") as rejection:
        cluster.kubectl("create", "--raw", path, "-f", "-", "-v=8", input=json.dumps(manifest))
    assert '"reason":"FieldValueInvalid"' in str(rejection.value)
    assert '"field":"spec.training.trainBatchSize"' in str(rejection.value)
    assert '"code":422' in str(rejection.value)


def test_a_valid_job_can_be_created_and_suspended(webhook: Webhook, namespace: str) -> None:
    assert "created" in apply(webhook, namespace, o.SPEC)
    webhook.kubernetes.suspend(namespace, True)
    job = webhook.kubernetes.get(namespace, "rltrainingjob", "sum")
    assert job
    assert job["spec"]["suspend"] is True
    webhook.kubernetes.delete(namespace, "rltrainingjob", "sum")


def test_an_immutable_field_cannot_be_changed(webhook: Webhook, namespace: str) -> None:
    apply(webhook, namespace, o.SPEC)
    message = apply(webhook, namespace, {**o.SPEC, "training": {**o.SPEC["training"], "totalSteps": 7}})
    assert "spec" in message
    assert "is immutable" in message


def test_an_unknown_field_is_rejected_without_client_validation(webhook: Webhook, namespace: str) -> None:
    message = apply(webhook, namespace, {**o.SPEC, "trainning": {}}, "--validate=false")
    assert "spec.trainning: " in message
    assert "did you mean training?" in message


def test_a_missing_runtime_is_a_warning(webhook: Webhook, namespace: str) -> None:
    spec = {**o.SPEC, "runtimeRef": {"name": "big"}}
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": spec}
    with pytest.raises(ValueError, match="this RLRuntime does not exist yet"):
        webhook.kubernetes.kubectl(
            "create", "-n", namespace, "--warnings-as-errors", "-f", "-", input=json.dumps(manifest)
        )


def test_submit_prints_the_warnings_of_the_webhook(webhook: Webhook, rlt: Rlt, job_file: str) -> None:
    manifest = yaml.safe_load(Path(job_file).read_text())
    manifest["spec"]["runtimeRef"] = {"name": "big"}
    Path(job_file).write_text(yaml.safe_dump(manifest))
    lines = rlt("submit", job_file).stderr.splitlines()
    assert [line for line in lines if line.startswith("warning: ")] == [
        "warning: spec.runtimeRef.name: big: this RLRuntime does not exist yet; the job waits until it is created"
    ]


def test_a_limit_of_a_runtime_applies_to_its_jobs(webhook: Webhook, namespace: str) -> None:
    limit = {"field": "spec.training.totalSteps", "max": 100}
    runtime = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLRuntime", "metadata": {"name": "small"}}
    webhook.kubernetes.cluster.apply({**runtime, "spec": {"limits": [limit]}})
    message = apply(webhook, namespace, {**o.SPEC, "runtimeRef": {"name": "small"}})
    assert "spec.training.totalSteps: 200" in message


def test_a_namespace_can_require_a_runtime(webhook: Webhook, namespace: str) -> None:
    label(webhook.kubernetes, namespace, "rlt.dev/require-runtime=true")
    assert "spec.runtimeRef: none: is required" in apply(webhook, namespace, o.SPEC)
    label(webhook.kubernetes, namespace, "rlt.dev/require-runtime=false")
    assert "created" in apply(webhook, namespace, o.SPEC)
    webhook.kubernetes.delete(namespace, "rltrainingjob", "sum")


def test_the_default_runtime_of_a_namespace_completes_and_limits_a_job(webhook: Webhook, namespace: str) -> None:
    runtime = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLRuntime", "metadata": {"name": "tenants"}}
    pool = {"name": "small", "resources": {"cpu": "2", "memory": "8Gi"}}
    limit = {"field": "spec.training.totalSteps", "max": 100}
    images = {"cpu": "registry.example/trainer:1"}
    webhook.kubernetes.cluster.apply({**runtime, "spec": {"images": images, "nodePools": [pool], "limits": [limit]}})
    spec = {key: value for key, value in o.SPEC.items() if key != "cluster"} | {"suspend": True}
    short = {**spec, "training": {"totalSteps": 3, "trainBatchSize": 8}}
    assert "spec.cluster.image: none: is required" in apply(webhook, namespace, short)
    label(webhook.kubernetes, namespace, "rlt.dev/default-runtime=tenants")
    assert "spec.training.totalSteps: 200: is above the runtime's limit 100" in apply(webhook, namespace, spec)
    head = {"head": {"podTemplate": {"spec": {"hostNetwork": True}}}}
    assert "(podTemplate: restricted)" in apply(webhook, namespace, {**short, "cluster": head})
    assert "created" in apply(webhook, namespace, short)
    webhook.kubernetes.delete(namespace, "rltrainingjob", "sum")


def test_a_certificate_is_renewed_without_interruption(webhook: Webhook, namespace: str) -> None:
    kubernetes = webhook.kubernetes
    before = parse_key_pair(*(secret(kubernetes)[name] for name in ("tls.crt", "tls.key", "ca.crt")))
    old = create_key_pair(before.list_hosts(), now=datetime.now(UTC) - VALIDITY * 0.8, previous=before)
    found = kubernetes.get("default", "secret", "webhook")
    manifest = build_secret(CertificateLocation("default", "webhook", "rlt"), old, found)
    serial = webhook.serial()
    kubernetes.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(manifest))

    def renewed() -> bool:
        assert "is invalid" in apply(webhook, namespace, INVALID)  # at any time
        return webhook.serial() != serial

    eventually("a new certificate", renewed)
    authorities = x509.load_pem_x509_certificates(secret(kubernetes)["ca.crt"].encode())
    assert [each.not_valid_after_utc > datetime.now(UTC) for each in authorities] == [True, True]
    assert authorities[1] == x509.load_pem_x509_certificates(before.trusted.encode())[0]


def test_a_removed_ca_bundle_is_restored(webhook: Webhook) -> None:
    kubernetes = webhook.kubernetes
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    kubernetes.kubectl("patch", "validatingwebhookconfiguration", "rlt", "--type=json", "-p", json.dumps(patch))
    webhook.wait()


def test_a_deleted_secret_is_recreated(webhook: Webhook) -> None:
    serial = webhook.serial()
    webhook.kubernetes.delete("default", "secret", "webhook")
    eventually("another certificate", lambda: webhook.serial() != serial)
    webhook.wait()


def test_a_restart_keeps_the_certificate(webhook: Webhook) -> None:
    serial = webhook.serial()
    webhook.server.stop()
    webhook.server.start()
    assert webhook.serial() == serial
    webhook.wait()


def test_the_failure_policy_applies_while_the_webhook_is_stopped(webhook: Webhook) -> None:
    def set_failure_policy(policy: str) -> None:
        patch = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy}]
        webhook.kubernetes.kubectl(
            "patch", "validatingwebhookconfiguration", "rlt", "--type=json", "-p", json.dumps(patch)
        )

    webhook.server.stop()
    try:
        assert "failed calling webhook" in webhook.rejection(o.SPEC)
        set_failure_policy("Ignore")
        eventually("fail-open", lambda: webhook.rejection(INVALID) == "")
    finally:
        webhook.server.start()
        set_failure_policy("Fail")
        webhook.wait()
