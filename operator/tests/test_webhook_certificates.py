"""The webhook's certificate through the years: planned with frozen clocks, checked by openssl's own judgement."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from rlt_operator.webhook import key_pair
from rlt_operator.webhook.certificates import Observed, Places, Plan, follow, observe, plan, secret_manifest
from rlt_operator.webhook.key_pair import VALIDITY

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DAY = timedelta(days=1)
HOSTS = frozenset({"rlt-operator.rlt-system.svc", "127.0.0.1"})
FIRST = key_pair.make(HOSTS, now=NOW)
SECOND = key_pair.make(HOSTS, now=NOW + 61 * DAY, before=FIRST)
SETTLED = Observed(hosts=HOSTS, trusted=frozenset({FIRST.trusted}), kept=FIRST, served=FIRST)


def configuration(*clients: dict[str, object]) -> dict[str, object]:
    return {"metadata": {"name": "rlt", "uid": "u"}, "webhooks": [{"name": "w", "clientConfig": c} for c in clients]}


async def shown_to_a_client(server: ssl.SSLContext, trusted: str, host: str) -> str:
    """Serial number of the certificate that a client gets which trusts only that. Raises ssl.SSLError."""

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


def test_all_is_well_for_two_thirds_of_the_validity() -> None:
    assert plan(SETTLED, NOW + VALIDITY * 0.66) == Plan()
    assert plan(SETTLED, NOW + VALIDITY * 0.67) == Plan(renew=True, requeue_after=0)


def test_the_first_is_made_then_trusted_and_served_at_once() -> None:
    fresh = Observed(hosts=HOSTS, trusted=frozenset({""}), kept=None, served=None)
    assert plan(fresh, NOW).renew
    made = plan(replace(fresh, kept=FIRST), NOW)
    assert (made.trust, made.serve) == (True, True)


def test_the_next_is_served_only_after_it_is_trusted() -> None:
    kept = replace(SETTLED, kept=SECOND)
    first = plan(kept, NOW + 61 * DAY)
    assert (first.trust, first.serve) == (True, False)
    trusted = plan(replace(kept, trusted=frozenset({SECOND.trusted})), NOW + 61 * DAY)
    assert (trusted.trust, trusted.serve) == (False, True)


def test_another_name_of_the_server_takes_another_certificate() -> None:
    assert plan(replace(SETTLED, hosts=frozenset({"other.svc"})), NOW).renew


def test_an_authority_that_was_overwritten_is_put_back() -> None:
    decided = plan(replace(SETTLED, trusted=frozenset({"", FIRST.trusted})), NOW)
    assert (decided.trust, decided.serve, decided.renew) == (True, False, False)


def test_a_restart_serves_what_is_kept() -> None:
    assert plan(replace(SETTLED, served=None), NOW) == Plan(serve=True)


def test_the_server_is_called_by_its_service_or_its_address() -> None:
    service = {"service": {"namespace": "rlt-system", "name": "rlt-operator", "path": "/validate"}}
    seen = observe(configuration(service, {"url": "https://127.0.0.1:9443/validate"}), None, None)
    assert seen == Observed(hosts=HOSTS, trusted=frozenset({""}), kept=None, served=None)


def test_what_is_kept_is_read_back() -> None:
    secret = secret_manifest(Places("ns", "webhook", "rlt"), FIRST, None)
    assert observe(configuration(), secret, None).kept == FIRST


@pytest.mark.parametrize("damage", [{}, {"tls.crt": "bm8="}, {"tls.key": "//8="}, {"ca.crt": ""}])
def test_a_damaged_secret_holds_nothing(damage: dict[str, str]) -> None:
    data = secret_manifest(Places("ns", "webhook", "rlt"), FIRST, None)["data"]
    assert observe(configuration(), {"data": {**data, **damage} if damage else None}, None).kept is None


def test_a_key_of_another_certificate_is_refused() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        key_pair.parse(FIRST.certificate, SECOND.key, FIRST.trusted)


def test_a_secret_is_replaced_only_as_it_was_seen() -> None:
    places = Places("ns", "webhook", "rlt")
    seen = {"metadata": {"resourceVersion": "7"}}
    assert secret_manifest(places, FIRST, seen)["metadata"]["resourceVersion"] == "7"
    assert "resourceVersion" not in secret_manifest(places, FIRST, None)["metadata"]


def test_an_authority_that_has_ended_is_trusted_no_longer() -> None:
    late = key_pair.make(HOSTS, now=NOW + VALIDITY + DAY, before=FIRST)
    assert len(x509.load_pem_x509_certificates(late.trusted.encode())) == 1


def test_the_authoritys_key_is_nowhere() -> None:
    (authority, _) = x509.load_pem_x509_certificates(SECOND.trusted.encode())
    assert SECOND.key.count("PRIVATE KEY") == 2
    assert authority.public_key() != x509.load_pem_x509_certificate(SECOND.certificate.encode()).public_key()


@pytest.mark.parametrize("host", sorted(HOSTS))
async def test_a_client_trusts_it_by_every_name(host: str) -> None:
    from rlt_operator.webhook.server import Tls

    now = datetime.now(UTC)
    pair, tls = key_pair.make(HOSTS, now=now), Tls()
    tls.show(pair.certificate, pair.key)
    assert await shown_to_a_client(tls.context, pair.trusted, host)
    with pytest.raises(ssl.SSLError):
        await shown_to_a_client(tls.context, pair.trusted, "other.svc")


async def test_a_client_of_before_trusts_what_comes_after_and_the_other_way_round() -> None:
    from rlt_operator.webhook.server import Tls

    old = key_pair.make(HOSTS, now=datetime.now(UTC) - 61 * DAY)
    new, tls = key_pair.make(HOSTS, now=datetime.now(UTC), before=old), Tls()
    tls.show(old.certificate, old.key)
    before = await shown_to_a_client(tls.context, new.trusted, "127.0.0.1")
    tls.show(new.certificate, new.key)
    assert await shown_to_a_client(tls.context, new.trusted, "127.0.0.1") != before
    with pytest.raises(ssl.SSLError):
        await shown_to_a_client(tls.context, old.trusted, "127.0.0.1")


async def test_a_folder_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty at first, then half filled, then filled, then renewed."""
    monkeypatch.setattr("rlt_operator.webhook.certificates.LOOK_S", 0.01)
    served: asyncio.Queue[str] = asyncio.Queue()
    following = asyncio.create_task(follow(tmp_path, lambda certificate, _: served.put_nowait(certificate)))
    for pair in (FIRST, SECOND):
        for name, text in (("tls.key", pair.key), ("tls.crt", pair.certificate)):
            (tmp_path / name).write_text(text)
        while await asyncio.wait_for(served.get(), 10) != pair.certificate:
            pass  # the new key with the old certificate
    following.cancel()
