"""Where the webhook's certificate comes from: made and renewed by the operator, or a folder that cert-manager fills.

The operator's own is kept in a Secret, so that a restart keeps it, and the API server trusts it by the caBundle of the
ValidatingWebhookConfiguration. Observe, plan, apply, again and again: whatever is lost or overwritten is put right.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.webhook import key_pair
from rlt_operator.webhook.key_pair import KeyPair

LOOK_S = 10.0
"""Between looks when all is well, and when the API server refuses."""
SPREAD_S = 2.0
"""API servers learn of a new caBundle by a watch; a new certificate is not served before."""

Serve = Callable[[str, str], None]
"""Serve a certificate with its key from now on (PEM). Raises ssl.SSLError if they do not belong together."""

log = logging.getLogger("rlt_operator.webhook")


@dataclass(frozen=True)
class Places:
    """Where the operator keeps its own certificate."""

    secret_namespace: str
    secret: str
    configuration: str
    """Name of the ValidatingWebhookConfiguration."""


@dataclass(frozen=True)
class Observed:
    """The certificate, in one look."""

    hosts: frozenset[str]
    """What the configuration calls the server: one name or address for each of its webhooks."""
    trusted: frozenset[str]
    """The authorities that the configuration's webhooks trust (PEM): a single one if all is well."""
    kept: KeyPair | None
    """What the Secret holds; None if that is nothing usable."""
    served: KeyPair | None
    """What the server shows."""


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    renew: bool = False
    """Make a new certificate and keep it."""
    trust: bool = False
    """Write the authority into the configuration."""
    serve: bool = False
    """Show the certificate that is kept."""
    requeue_after: float = LOOK_S


def plan(observed: Observed, now: datetime) -> Plan:
    """A new certificate is kept first, then trusted, and then served."""
    kept = observed.kept
    if kept is None or kept.hosts() != observed.hosts or now >= kept.due():
        return Plan(renew=True, requeue_after=0)
    if observed.trusted != {kept.trusted}:
        return Plan(trust=True, serve=observed.served is None, requeue_after=SPREAD_S)
    return Plan(serve=observed.served != kept)


async def keep(api: KubernetesApi, places: Places, serve: Serve) -> None:
    """Make, keep and renew the operator's own certificate, for ever."""
    served: KeyPair | None = None
    while True:
        try:
            requeue_after, served = await look(api, places, serve, served=served, now=datetime.now(UTC))
        except Exception as error:  # whatever it is, the next look may find it mended
            unexpected = not isinstance(error, ApiError)
            log.warning("the webhook's certificate cannot be looked after: %s", error, exc_info=unexpected)
            requeue_after = LOOK_S
        await asyncio.sleep(requeue_after)


async def look(
    api: KubernetesApi, places: Places, serve: Serve, *, served: KeyPair | None, now: datetime
) -> tuple[float, KeyPair | None]:
    """One look: seconds until the next, and what is served then. Raises ApiError."""
    configuration = await api.get(api_paths.webhook_configuration(places.configuration))
    if configuration is None:
        log.warning("the webhook waits for the ValidatingWebhookConfiguration %s", places.configuration)
        return SPREAD_S, served
    secret = await api.get(api_paths.secret(places.secret_namespace, places.secret))
    observed = observe(configuration, secret, served)
    decided = plan(observed, now)
    kept = observed.kept
    if decided.renew:
        made = key_pair.make(observed.hosts, now=now, before=served or kept)
        manifest = secret_manifest(places, made, secret)
        await api.apply(api_paths.secret(places.secret_namespace, places.secret), manifest)
        log.info("made the webhook's certificate, to be renewed on %s", f"{made.due():%Y-%m-%d}")
    if decided.trust:
        assert kept
        path = api_paths.webhook_configuration(places.configuration)
        await api.apply(path, trust_manifest(configuration, kept))
    if decided.serve:
        assert kept
        serve(kept.certificate, kept.key)
        log.info("serving the webhook's certificate for %s", ", ".join(sorted(observed.hosts)))
        return decided.requeue_after, kept
    return decided.requeue_after, served


async def follow(folder: Path, serve: Serve) -> None:
    """Serve tls.crt and tls.key of a folder, and what takes their place there, for ever."""
    served: tuple[str, str] | None = None
    while True:
        try:
            found = (folder / "tls.crt").read_text(), (folder / "tls.key").read_text()
            if found != served:
                serve(*found)
                served = found
                log.info("serving the webhook's certificate in %s", folder)
        except (OSError, ssl.SSLError) as error:  # not there yet, or one file of two replaced
            log.warning("the webhook waits for a certificate in %s: %s", folder, error)
        await asyncio.sleep(LOOK_S)


def observe(configuration: dict[str, Any], secret: dict[str, Any] | None, served: KeyPair | None) -> Observed:
    """What a look has found: the ValidatingWebhookConfiguration and the Secret, if there is one."""
    clients = [webhook["clientConfig"] for webhook in configuration["webhooks"]]
    return Observed(
        hosts=frozenset(map(_host, clients)),
        trusted=frozenset(_decoded(client.get("caBundle", "")) for client in clients),
        kept=_kept(secret),
        served=served,
    )


def secret_manifest(places: Places, pair: KeyPair, replaced: dict[str, Any] | None) -> dict[str, Any]:
    """The Secret, to take the place of exactly the one that was seen."""
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": pair.trusted}
    version = {"resourceVersion": replaced["metadata"]["resourceVersion"]} if replaced else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": places.secret, "namespace": places.secret_namespace, **version},
        "data": {name: _encoded(text) for name, text in files.items()},
    }


def trust_manifest(configuration: dict[str, Any], pair: KeyPair) -> dict[str, Any]:
    """The caBundle of each webhook and nothing else. The uid: it is changed, never created."""
    metadata = configuration["metadata"]
    client = {"caBundle": _encoded(pair.trusted)}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
        "webhooks": [{"name": webhook["name"], "clientConfig": client} for webhook in configuration["webhooks"]],
    }


def _kept(secret: dict[str, Any] | None) -> KeyPair | None:
    data = (secret or {}).get("data") or {}
    if not data:
        return None
    try:
        return key_pair.parse(*(_decoded(data[name]) for name in ("tls.crt", "tls.key", "ca.crt")))
    except (KeyError, ValueError) as error:
        log.warning("the Secret holds no certificate that could be served, and gets a new one: %r", error)
        return None


def _host(client: dict[str, Any]) -> str:
    if service := client.get("service"):
        return f"{service['name']}.{service['namespace']}.svc"
    host: str | None = urlsplit(client["url"]).hostname
    assert host  # the API server has checked it
    return host


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
