"""The webhook's certificate over several renewals: planned with fixed times, verified by OpenSSL."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from rlt_operator.key_pair import VALIDITY, create_key_pair, parse_key_pair
from rlt_operator.webhook.certificates import (
    PROPAGATION_S,
    CertificateLocation,
    CertificatePlan,
    ObservedCertificate,
    build_secret,
    observe_certificate,
    plan_certificate,
    serve_folder,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DAY = timedelta(days=1)
HOSTS = frozenset({"rlt-operator.rlt-system.svc", "127.0.0.1"})
FIRST = create_key_pair(HOSTS, now=NOW)
SECOND = create_key_pair(HOSTS, now=NOW + 61 * DAY, previous=FIRST)
SETTLED = ObservedCertificate(hosts=HOSTS, trusted=frozenset({FIRST.trusted}), stored=FIRST, served=FIRST)


def configuration(*clients: Mapping[str, object]) -> dict[str, object]:
    return {"metadata": {"name": "rlt", "uid": "u"}, "webhooks": [{"name": "w", "clientConfig": c} for c in clients]}


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def shown_to_a_client(server: ssl.SSLContext, trusted: str, host: str) -> str:
    """Serial number of the certificate, as seen by a client that trusts `trusted` only. Raises ssl.SSLError."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        client = ssl.create_default_context(cadata=trusted)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=host)
        serial: str = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
    return serial


def test_a_certificate_is_renewed_after_two_thirds_of_its_validity() -> None:
    assert plan_certificate(SETTLED, NOW + VALIDITY * 0.66) == CertificatePlan()
    assert plan_certificate(SETTLED, NOW + VALIDITY * 0.67) == CertificatePlan(renew=True, requeue_after=0)


def test_the_first_certificate_is_trusted_and_served_together() -> None:
    fresh = ObservedCertificate(hosts=HOSTS, trusted=frozenset({""}), stored=None, served=None)
    assert plan_certificate(fresh, NOW).renew
    first = plan_certificate(replace(fresh, stored=FIRST), NOW)
    assert (first.trust, first.serve) == (True, True)


def test_a_renewed_certificate_is_served_after_it_is_trusted() -> None:
    renewed = replace(SETTLED, stored=SECOND)
    first = plan_certificate(renewed, NOW + 61 * DAY)
    assert (first.trust, first.serve) == (True, False)
    renewed = replace(renewed, trusted=frozenset({SECOND.trusted}))
    trusted = plan_certificate(renewed, NOW + 61 * DAY)
    assert trusted == CertificatePlan(requeue_after=PROPAGATION_S)  # the other replica may have written it just now
    assert plan_certificate(replace(renewed, propagated=True), NOW + 61 * DAY) == CertificatePlan(serve=True)


@pytest.mark.parametrize(
    "observed",
    [
        replace(SETTLED, stored=None),
        replace(SETTLED, hosts=frozenset({"other.svc"})),
        replace(SETTLED, trusted=frozenset({""})),
    ],
)
def test_the_leader_alone_writes_secret_and_configuration(observed: ObservedCertificate) -> None:
    leader = plan_certificate(observed, NOW)
    assert leader.renew or leader.trust
    assert plan_certificate(replace(observed, leads=False), NOW) == CertificatePlan(requeue_after=PROPAGATION_S)


def test_a_certificate_is_propagated_if_it_was_trusted_before() -> None:
    secret = build_secret(CertificateLocation("ns", "webhook", "rlt"), SECOND, None)
    trusted = configuration({"service": {"namespace": "ns", "name": "s"}, "caBundle": encode(SECOND.trusted)})
    first = observe_certificate(trusted, secret, replace(SETTLED, stored=FIRST))
    assert (first.propagated, first.served) == (False, FIRST)
    assert observe_certificate(trusted, secret, first).propagated


def test_a_changed_host_requires_a_new_certificate() -> None:
    assert plan_certificate(replace(SETTLED, hosts=frozenset({"other.svc"})), NOW).renew


def test_an_overwritten_authority_is_restored() -> None:
    decided = plan_certificate(replace(SETTLED, trusted=frozenset({"", FIRST.trusted})), NOW)
    assert (decided.trust, decided.serve, decided.renew) == (True, False, False)


def test_a_restart_serves_the_stored_certificate() -> None:
    assert plan_certificate(replace(SETTLED, served=None), NOW) == CertificatePlan(serve=True)


def test_hosts_come_from_services_and_urls() -> None:
    service = {"service": {"namespace": "rlt-system", "name": "rlt-operator", "path": "/validate"}}
    seen = observe_certificate(configuration(service, {"url": "https://127.0.0.1:9443/validate"}), None, None)
    assert seen == ObservedCertificate(hosts=HOSTS, trusted=frozenset({""}), stored=None, served=None)


def test_the_stored_certificate_is_read() -> None:
    secret = build_secret(CertificateLocation("ns", "webhook", "rlt"), FIRST, None)
    assert observe_certificate(configuration(), secret, None).stored == FIRST


@pytest.mark.parametrize("damage", [{}, {"tls.crt": "bm8="}, {"tls.key": "//8="}, {"ca.crt": ""}])
def test_a_damaged_secret_is_ignored(damage: dict[str, str]) -> None:
    data = build_secret(CertificateLocation("ns", "webhook", "rlt"), FIRST, None)["data"]
    assert observe_certificate(configuration(), {"data": {**data, **damage} if damage else None}, None).stored is None


def test_a_key_of_another_certificate_is_rejected() -> None:
    with pytest.raises(ValueError, match="do not match"):
        parse_key_pair(FIRST.certificate, SECOND.key, FIRST.trusted)


def test_only_the_observed_version_of_a_secret_is_replaced() -> None:
    places = CertificateLocation("ns", "webhook", "rlt")
    seen = {"metadata": {"resourceVersion": "7"}}
    assert build_secret(places, FIRST, seen)["metadata"]["resourceVersion"] == "7"
    assert "resourceVersion" not in build_secret(places, FIRST, None)["metadata"]


def test_an_expired_authority_is_not_trusted() -> None:
    late = create_key_pair(HOSTS, now=NOW + VALIDITY + DAY, previous=FIRST)
    assert len(x509.load_pem_x509_certificates(late.trusted.encode())) == 1


def test_the_key_of_the_authority_is_not_stored() -> None:
    (authority, _) = x509.load_pem_x509_certificates(SECOND.trusted.encode())
    assert SECOND.key.count("PRIVATE KEY") == 2
    assert authority.public_key() != x509.load_pem_x509_certificate(SECOND.certificate.encode()).public_key()


@pytest.mark.parametrize("host", sorted(HOSTS))
async def test_a_client_trusts_the_certificate_for_every_host(host: str) -> None:
    from rlt_operator.webhook.tls import Tls

    now = datetime.now(UTC)
    pair = create_key_pair(HOSTS, now=now)
    tls = Tls()
    tls.load(pair.certificate, pair.key)
    assert await shown_to_a_client(tls.context, pair.trusted, host)
    with pytest.raises(ssl.SSLError):
        await shown_to_a_client(tls.context, pair.trusted, "other.svc")


async def test_old_and_new_certificates_are_trusted_during_a_renewal() -> None:
    from rlt_operator.webhook.tls import Tls

    old = create_key_pair(HOSTS, now=datetime.now(UTC) - 61 * DAY)
    new = create_key_pair(HOSTS, now=datetime.now(UTC), previous=old)
    tls = Tls()
    tls.load(old.certificate, old.key)
    before = await shown_to_a_client(tls.context, new.trusted, "127.0.0.1")
    tls.load(new.certificate, new.key)
    assert await shown_to_a_client(tls.context, new.trusted, "127.0.0.1") != before
    with pytest.raises(ssl.SSLError):
        await shown_to_a_client(tls.context, old.trusted, "127.0.0.1")


async def test_a_folder_is_served_after_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is empty, then has one file, then both, then a renewed certificate."""
    monkeypatch.setattr("rlt_operator.webhook.certificates.INTERVAL_S", 0.01)
    served: asyncio.Queue[str] = asyncio.Queue()
    following = asyncio.create_task(serve_folder(tmp_path, lambda certificate, _: served.put_nowait(certificate)))
    for pair in (FIRST, SECOND):
        for name, text in (("tls.key", pair.key), ("tls.crt", pair.certificate)):
            (tmp_path / name).write_text(text)
        while await asyncio.wait_for(served.get(), 10) != pair.certificate:
            pass  # the new key with the old certificate
    following.cancel()
