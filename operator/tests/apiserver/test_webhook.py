"""The webhook asked by the real API server: what users see of it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Webhook, eventually
from cryptography import x509

from rlt_operator.webhook import key_pair
from rlt_operator.webhook.certificates import Places, secret_manifest

pytestmark = pytest.mark.apiserver

WRONG = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}}


def apply(webhook: Webhook, namespace: str, spec: dict[str, Any], *options: str) -> str:
    """`kubectl apply`, as its user does it; what it says, where it refuses too."""
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": spec}
    try:
        return webhook.kubernetes.kubectl("apply", "-n", namespace, *options, "-f", "-", input=json.dumps(manifest))
    except ValueError as error:
        return str(error)


def secret(kubernetes: Kubernetes) -> dict[str, str]:
    found = kubernetes.get("default", "secret", "webhook")
    assert found
    return {name: base64.b64decode(text).decode() for name, text in found["data"].items()}


def test_a_contradiction_is_refused_with_the_fields_path(webhook: Webhook, namespace: str) -> None:
    said = apply(webhook, namespace, WRONG)
    assert 'The RLTrainingJob "sum" is invalid' in said
    assert "spec.training.trainBatchSize: " in said
    assert webhook.kubernetes.get(namespace, "rltrainingjob", "sum") is None


def test_programs_read_the_field_in_the_causes(webhook: Webhook, namespace: str) -> None:
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": WRONG}
    path = f"/apis/rlt.dev/v1alpha1/namespaces/{namespace}/rltrainingjobs"
    cluster = webhook.kubernetes.cluster
    with pytest.raises(ValueError, match="denied the request") as refusal:
        cluster.kubectl("create", "--raw", path, "-f", "-", "-v=8", input=json.dumps(manifest))
    assert '"reason":"FieldValueInvalid"' in str(refusal.value)
    assert '"field":"spec.training.trainBatchSize"' in str(refusal.value)
    assert '"code":422' in str(refusal.value)


def test_what_is_right_is_taken_and_its_suspension_too(webhook: Webhook, namespace: str) -> None:
    assert "created" in apply(webhook, namespace, o.SPEC)
    webhook.kubernetes.suspend(namespace, True)
    job = webhook.kubernetes.get(namespace, "rltrainingjob", "sum")
    assert job
    assert job["spec"]["suspend"] is True
    webhook.kubernetes.kubectl("delete", "rltrainingjob", "sum", "-n", namespace)


def test_what_is_fixed_cannot_be_changed(webhook: Webhook, namespace: str) -> None:
    apply(webhook, namespace, o.SPEC)
    said = apply(webhook, namespace, {**o.SPEC, "training": {**o.SPEC["training"], "totalSteps": 7}})
    assert "spec" in said
    assert "is immutable" in said


def test_an_unknown_field_is_refused_by_name_where_validation_is_off(webhook: Webhook, namespace: str) -> None:
    said = apply(webhook, namespace, {**o.SPEC, "trainning": {}}, "--validate=false")
    assert "spec.trainning: " in said
    assert "did you mean training?" in said


def test_a_runtime_that_is_not_there_yet_is_a_warning(webhook: Webhook, namespace: str) -> None:
    spec = {**o.SPEC, "runtimeRef": {"name": "big"}}
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": spec}
    with pytest.raises(ValueError, match="there is no such RLRuntime yet"):
        webhook.kubernetes.kubectl(
            "create", "-n", namespace, "--warnings-as-errors", "-f", "-", input=json.dumps(manifest)
        )


def test_a_runtimes_limit_holds_for_its_jobs(webhook: Webhook, namespace: str) -> None:
    limit = {"field": "spec.training.totalSteps", "max": 100}
    runtime = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLRuntime", "metadata": {"name": "small"}}
    webhook.kubernetes.cluster.apply({**runtime, "spec": {"limits": [limit]}})
    said = apply(webhook, namespace, {**o.SPEC, "runtimeRef": {"name": "small"}})
    assert "spec.training.totalSteps: 200" in said


def test_a_certificate_that_is_due_is_replaced_while_it_serves(webhook: Webhook, namespace: str) -> None:
    kubernetes = webhook.kubernetes
    before = key_pair.parse(*(secret(kubernetes)[name] for name in ("tls.crt", "tls.key", "ca.crt")))
    old = key_pair.make(before.hosts(), now=datetime.now(UTC) - key_pair.VALIDITY * 0.8, before=before)
    found = kubernetes.get("default", "secret", "webhook")
    manifest = secret_manifest(Places("default", "webhook", "rlt"), old, found)
    serial = webhook.serial()
    kubernetes.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(manifest))

    def renewed() -> bool:
        assert "is invalid" in apply(webhook, namespace, WRONG)  # at every moment
        return webhook.serial() != serial

    eventually("a new certificate", renewed, 60)
    authorities = x509.load_pem_x509_certificates(secret(kubernetes)["ca.crt"].encode())
    assert [each.not_valid_after_utc > datetime.now(UTC) for each in authorities] == [True, True]
    assert authorities[1] == x509.load_pem_x509_certificates(before.trusted.encode())[0]


def test_an_authority_that_was_lost_is_put_back(webhook: Webhook) -> None:
    kubernetes = webhook.kubernetes
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    kubernetes.kubectl("patch", "validatingwebhookconfiguration", "rlt", "--type=json", "-p", json.dumps(patch))
    webhook.wait()


def test_a_secret_that_was_deleted_is_made_anew(webhook: Webhook) -> None:
    serial = webhook.serial()
    webhook.kubernetes.kubectl("delete", "secret", "webhook", "-n", "default")
    eventually("another certificate", lambda: webhook.serial() != serial, 60)
    webhook.wait()


def test_a_restart_keeps_the_certificate(webhook: Webhook) -> None:
    serial = webhook.serial()
    webhook.operator.stop()
    webhook.operator.start()
    assert webhook.serial() == serial
    webhook.wait()


def test_open_or_closed_while_the_operator_is_down(webhook: Webhook) -> None:
    def policy(word: str) -> None:
        patch = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": word}]
        webhook.kubernetes.kubectl(
            "patch", "validatingwebhookconfiguration", "rlt", "--type=json", "-p", json.dumps(patch)
        )

    webhook.operator.stop()
    try:
        assert "failed calling webhook" in webhook.refusal(o.SPEC)
        policy("Ignore")
        eventually("fail-open", lambda: webhook.refusal(WRONG) == "")
    finally:
        webhook.operator.start()
        policy("Fail")
        webhook.wait()
