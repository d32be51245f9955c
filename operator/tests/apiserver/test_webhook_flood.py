"""A flood of reviews and of posts to the webhook: its memory is bounded, and the operator's process does not notice."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator, Webhook
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rlt_e2e.ports import free_port
from rlt_operator.key_pair import VALIDITY, create_key_pair
from rlt_operator.webhook.server import MAX_REVIEW_BYTES, MAX_REVIEWS, MAX_WAITING

pytestmark = pytest.mark.apiserver

MAX_RSS_MB = 400
"""The chart's memory limit is 512 MiB."""


def review(spec: dict[str, Any], **metadata: Any) -> bytes:
    """An AdmissionReview for a new job."""
    job = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum", **metadata}}
    request = {"uid": "1", "operation": "CREATE", "namespace": "default", "object": {**job, "spec": spec}}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def with_template(template: dict[str, Any]) -> dict[str, Any]:
    return {**o.SPEC, "cluster": {**o.SPEC["cluster"], "head": {"podTemplate": template}}}


def hostile_bodies() -> Iterator[bytes]:
    """Large reviews of one text, of many small objects and of deep nesting, and bodies that are not reviews."""
    small: list[dict[str, Any]] = [{}] * (MAX_REVIEW_BYTES // 5)
    yield review(with_template({"metadata": {"annotations": {"a": "x" * 1_400_000}}}))
    yield review(with_template({"spec": {"containers": small}}))
    yield review(o.SPEC, annotations={"kubectl.kubernetes.io/last-applied-configuration": json.dumps(small)})
    yield b"[" * 3_000_000
    yield b"{" + b"\0" * 3_000_000
    yield json.dumps({"request": small}).encode()


def read_memory_mb(server: Operator, field: str = "VmRSS") -> float:
    assert server.process
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def read_cpu_s(server: Operator) -> float:
    assert server.process
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def post(port: int, bodies: Iterable[bytes], *, context: ssl.SSLContext | bool = False) -> Counter[int]:
    """Post all at the same time. Returns the number of answers by status."""
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send(body: bytes) -> int:
            async with session.post(f"https://127.0.0.1:{port}/validate", data=body) as response:
                await response.read()
                return response.status

        return Counter(await asyncio.gather(*map(send, bodies)))


async def test_a_flood_leaves_memory_and_the_operator_as_they_are(
    kubernetes: Kubernetes, webhook: Webhook, operator: Operator
) -> None:
    before = read_memory_mb(operator), read_cpu_s(operator), read_cpu_s(webhook.server)
    print(f"idle: {read_memory_mb(webhook.server):.0f} MB")
    for _ in range(4):
        answers = await post(webhook.port, [body for body in hostile_bodies() for _ in range(4)])
        assert set(answers) <= {200, 400, 503}
        assert answers[200]
        assert answers[400]
    spent = read_cpu_s(webhook.server) - before[2]
    peak = read_memory_mb(webhook.server, "VmHWM")
    print(f"webhook: {peak:.0f} MB at most, {spent:.1f} s; operator: {read_cpu_s(operator) - before[1]:.1f} s")
    assert peak < MAX_RSS_MB
    assert read_memory_mb(operator) - before[0] < 10
    assert read_cpu_s(operator) - before[1] < max(0.5, spent / 5)
    assert webhook.server.fetch("/healthz") == "ok\n"
    webhook.wait()


async def test_a_body_above_the_maximum_is_not_read(webhook: Webhook) -> None:
    assert await post(webhook.port, [b"x" * (MAX_REVIEW_BYTES + 1)]) == {413: 1}


async def test_reviews_beyond_a_number_are_refused_at_once(webhook: Webhook) -> None:
    """Each announces a body that it does not send, and so keeps its turn."""
    context = trust(None)
    opened = [
        await asyncio.open_connection("127.0.0.1", webhook.port, ssl=context)
        for _ in range(MAX_REVIEWS + MAX_WAITING + 1)
    ]
    head = b"POST /validate HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
    try:
        for _, writer in opened:
            writer.write(head)
            await writer.drain()
        answered = [asyncio.create_task(reader.readuntil(b"\r\n")) for reader, _ in opened]
        done, _ = await asyncio.wait(answered, return_when=asyncio.FIRST_COMPLETED)
        assert b" 503 " in next(iter(done)).result()
        assert b" 408 " in await answered[0]
    finally:
        for _, writer in opened:
            writer.close()
        for task in answered:
            task.cancel()
        await asyncio.gather(*answered, return_exceptions=True)
    webhook.wait()


async def test_a_client_needs_a_certificate_where_one_is_configured(
    kubernetes: Kubernetes, webhook: Webhook, tmp_path: Path
) -> None:
    """The certificate in the test is signed by itself, and so is its own authority."""
    pair = create_key_pair(frozenset({"127.0.0.1"}), now=datetime.now(UTC))
    (tmp_path / "tls.crt").write_text(pair.certificate)
    (tmp_path / "tls.key").write_text(pair.key)
    name = issue_client(tmp_path, "kube-apiserver")
    other = issue_client(tmp_path, "other")
    (tmp_path / "ca.crt").write_text(name.read_text() + other.read_text())
    port = free_port()
    options = (f"--port={port}", f"--certificates={tmp_path}", f"--client-ca={tmp_path / 'ca.crt'}")
    server = Operator(
        kubernetes.cluster.kubeconfig, tmp_path / "log", (*options, "--client-name=kube-apiserver"), command="webhook"
    )
    server.start()
    try:
        with pytest.raises(aiohttp.ClientError):
            await post(port, [review(o.SPEC)], context=trust(None))
        assert await post(port, [review(o.SPEC)], context=trust(other)) == {403: 1}
        assert await post(port, [review(o.SPEC)], context=trust(name)) == {200: 1}
    finally:
        server.stop()


def issue_client(folder: Path, name: str) -> Path:
    """A self-signed client certificate with its key (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - VALIDITY).not_valid_after(now + VALIDITY)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    formats = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    file = folder / f"{name}.pem"
    file.write_bytes(certificate + key.private_bytes(serialization.Encoding.PEM, *formats))
    return file


def trust(client: Path | None) -> ssl.SSLContext:
    """A client that trusts every server, with this certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if client:
        context.load_cert_chain(client)
    return context
