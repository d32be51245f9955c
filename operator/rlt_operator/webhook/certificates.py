"""The webhook's certificate: created and renewed by the operator, or read from a folder that cert-manager fills.

The operator stores its own certificate in a Secret, so that it survives a restart and all pods of the webhook serve the
same one. The API server trusts it by the caBundle of the ValidatingWebhookConfiguration. The leader of the operator
writes both objects, and the webhook reads them periodically.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.key_pair import KeyPair, create_key_pair, parse_key_pair

INTERVAL_S = 10.0
"""Requeue interval without a change, and after an error."""
PROPAGATION_S = 2.0
"""Time for API servers to watch a new caBundle. A new certificate is served after it."""

Serve = Callable[[str, str], None]
"""Start to serve a certificate with its key (PEM). Raises ssl.SSLError if they do not match."""

log = logging.getLogger("rlt_operator.webhook")


@dataclass(frozen=True)
class CertificateLocation:
    """Where the operator stores its own certificate, and who trusts it."""

    secret_namespace: str
    secret: str
    configuration: str
    """Name of the ValidatingWebhookConfiguration."""


@dataclass(frozen=True)
class ObservedCertificate:
    """The certificate as stored, trusted and served."""

    hosts: frozenset[str]
    """DNS names and addresses of the server, one for each webhook of the configuration."""
    trusted: frozenset[str]
    """The certificate authorities that the configuration's webhooks trust (PEM)."""
    stored: KeyPair | None
    """The content of the Secret; None if it is missing or unusable."""
    served: KeyPair | None
    """The key pair that the server uses."""

    propagated: bool = False
    """Whether the stored certificate was already trusted when it was observed before."""
    leads: bool = True
    """Whether this process writes the Secret and the configuration."""

    @property
    def is_trusted(self) -> bool:
        """Whether every webhook of the configuration trusts the stored certificate."""
        return self.stored is not None and self.trusted == {self.stored.trusted}


@dataclass(frozen=True)
class CertificatePlan:
    """What to do about the certificate."""

    renew: bool = False
    """Create a new certificate and store it."""
    trust: bool = False
    """Write the certificate authority to the configuration."""
    serve: bool = False
    """Serve the stored certificate."""
    requeue_after: float = INTERVAL_S


def plan_certificate(observed: ObservedCertificate, now: datetime) -> CertificatePlan:
    """A new certificate is first stored, then trusted, then served, by each replica at its own time."""
    stored = observed.stored
    served = observed.served
    if stored is None or stored.list_hosts() != observed.hosts or now >= stored.get_renewal_time():
        return CertificatePlan(renew=observed.leads, requeue_after=0 if observed.leads else PROPAGATION_S)
    if not observed.is_trusted:
        return CertificatePlan(trust=observed.leads, serve=served is None, requeue_after=PROPAGATION_S)
    if served not in (None, stored) and not observed.propagated:
        return CertificatePlan(requeue_after=PROPAGATION_S)
    return CertificatePlan(serve=served != stored)


async def keep_certificate(
    api: KubernetesApi,
    location: CertificateLocation,
    serve: Serve = lambda certificate, key: None,
    *,
    leads: Callable[[], bool] = lambda: False,
) -> None:
    """Serve the operator's own certificate until cancelled. While this process leads, create, store and renew it."""
    last: ObservedCertificate | None = None
    while True:
        try:
            requeue_after, last = await reconcile_certificate(
                api, location, serve, last=last, leads=leads(), now=datetime.now(UTC)
            )
        except Exception as error:  # the next reconciliation may succeed
            unexpected = not isinstance(error, ApiError)
            log.warning("cannot reconcile the webhook's certificate: %s", error, exc_info=unexpected)
            requeue_after = INTERVAL_S
        await asyncio.sleep(requeue_after)


async def reconcile_certificate(
    api: KubernetesApi,
    location: CertificateLocation,
    serve: Serve,
    *,
    last: ObservedCertificate | None,
    leads: bool,
    now: datetime,
) -> tuple[float, ObservedCertificate | None]:
    """Reconcile once. Returns the seconds until the next time, and the observation for it. Raises ApiError."""
    configuration_path = api_paths.webhook_configuration(location.configuration)
    configuration = await api.get(configuration_path)
    if configuration is None:
        log.warning("waiting for the ValidatingWebhookConfiguration %s", location.configuration)
        return PROPAGATION_S, last
    secret_path = api_paths.secret(location.secret_namespace, location.secret)
    secret = await api.get(secret_path)
    observed = replace(observe_certificate(configuration, secret, last), leads=leads)
    plan = plan_certificate(observed, now)
    stored = observed.stored
    if plan.renew:
        created = create_key_pair(observed.hosts, now=now, previous=observed.served or stored)
        await api.apply(secret_path, build_secret(location, created, secret))
        log.info("created the webhook's certificate, renewal on %s", f"{created.get_renewal_time():%Y-%m-%d}")
    if plan.trust and stored:
        await api.apply(configuration_path, build_trust_patch(configuration, stored))
    if plan.serve and stored:
        serve(stored.certificate, stored.key)
        log.info("using the webhook's certificate for %s", ", ".join(sorted(observed.hosts)))
        return plan.requeue_after, replace(observed, served=stored)
    return plan.requeue_after, observed


async def serve_folder(folder: Path, serve: Serve) -> None:
    """Serve tls.crt and tls.key of a folder, again after each change, until cancelled."""
    served: tuple[str, str] | None = None
    while True:
        try:
            found = (folder / "tls.crt").read_text(), (folder / "tls.key").read_text()
            if found != served:
                serve(*found)
                served = found
                log.info("serving the webhook's certificate in %s", folder)
        except (OSError, ssl.SSLError) as error:  # not created yet, or only one of the files is replaced
            log.warning("waiting for the webhook's certificate in %s: %s", folder, error)
        await asyncio.sleep(INTERVAL_S)


def observe_certificate(
    configuration: dict[str, Any], secret: dict[str, Any] | None, last: ObservedCertificate | None
) -> ObservedCertificate:
    """From the ValidatingWebhookConfiguration, the Secret, if it exists, and the last observation."""
    clients = [webhook["clientConfig"] for webhook in configuration["webhooks"]]
    stored = _parse_secret(secret)
    return ObservedCertificate(
        hosts=frozenset(map(_get_host, clients)),
        trusted=frozenset(_decode(client.get("caBundle", "")) for client in clients),
        stored=stored,
        served=last.served if last else None,
        propagated=last is not None and last.is_trusted and last.stored == stored,
    )


def build_secret(location: CertificateLocation, pair: KeyPair, replaced: dict[str, Any] | None) -> dict[str, Any]:
    """The Secret. It replaces exactly the version that was observed."""
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": pair.trusted}
    version = {"resourceVersion": replaced["metadata"]["resourceVersion"]} if replaced else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": location.secret, "namespace": location.secret_namespace, **version},
        "data": {name: _encode(text) for name, text in files.items()},
    }


def build_trust_patch(configuration: dict[str, Any], pair: KeyPair) -> dict[str, Any]:
    """The caBundle of each webhook only. With the uid, the API server never creates the configuration."""
    metadata = configuration["metadata"]
    client = {"caBundle": _encode(pair.trusted)}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
        "webhooks": [{"name": webhook["name"], "clientConfig": client} for webhook in configuration["webhooks"]],
    }


def _parse_secret(secret: dict[str, Any] | None) -> KeyPair | None:
    data = (secret or {}).get("data") or {}
    if not data:
        return None
    try:
        return parse_key_pair(*(_decode(data[name]) for name in ("tls.crt", "tls.key", "ca.crt")))
    except (KeyError, ValueError) as error:
        log.warning("the Secret holds no usable certificate and gets a new one: %r", error)
        return None


def _get_host(client: dict[str, Any]) -> str:
    if service := client.get("service"):
        return f"{service['name']}.{service['namespace']}.svc"
    host: str | None = urlsplit(client["url"]).hostname
    assert host  # the API server validates it
    return host


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()
