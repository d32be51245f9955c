"""A serving certificate and its certificate authority, both new at each renewal. The authority's key is not stored."""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = timedelta(days=90)
RENEWAL_SHARE = 2 / 3
"""Share of the validity after which a certificate is renewed."""
CLOCK_SKEW = timedelta(minutes=5)
"""Certificates become valid this long before their creation, because clocks differ."""


@dataclass(frozen=True)
class KeyPair:
    """Certificate and key of the server, and the authorities that its clients trust, in PEM."""

    certificate: str
    key: str
    trusted: str
    """The authority of this certificate, then the previous one: clients trust both certificates during a renewal."""

    def list_hosts(self) -> frozenset[str]:
        """DNS names and addresses of the certificate."""
        names = self._parse().extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = names.get_values_for_type(x509.IPAddress)
        return frozenset(names.get_values_for_type(x509.DNSName)) | frozenset(map(str, addresses))

    def get_renewal_time(self) -> datetime:
        """When to renew the certificate."""
        parsed = self._parse()
        start = parsed.not_valid_before_utc
        end = parsed.not_valid_after_utc
        return start + (end - start) * RENEWAL_SHARE

    def _parse(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate.encode())


def create_key_pair(hosts: frozenset[str], *, now: datetime, previous: KeyPair | None = None) -> KeyPair:
    """Create a key pair for DNS names and IP addresses. Its clients also trust the previous one."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    name = _build_name(f"rlt-operator webhook authority {now:%Y-%m-%d %H:%M:%S}")
    authority = (
        _start_certificate(name, authority_key.public_key(), now)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_build_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _start_certificate(_build_name("rlt-operator webhook"), key.public_key(), now)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_build_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_parse_host(host) for host in sorted(hosts)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    older = _load_authorities(previous.trusted) if previous else []
    valid = [each for each in older if each.not_valid_after_utc > now][:1]
    return KeyPair(_encode_pem(certificate), private.decode(), "".join(map(_encode_pem, [authority, *valid])))


def parse_key_pair(certificate: str, key: str, trusted: str) -> KeyPair:
    """Parse a stored key pair. Raises ValueError if it is damaged."""
    pair = KeyPair(certificate, key, trusted)
    public = pair._parse().public_key()
    if serialization.load_pem_private_key(key.encode(), None).public_key() != public or not _load_authorities(trusted):
        raise ValueError("certificate, key and authority do not match")
    return pair


def load_key_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Serve this certificate for new connections (PEM). Raises ssl.SSLError if the key does not match."""
    # Python loads them from files only. A file in memory keeps the private key off the disk.
    descriptor = os.memfd_create("certificate")
    with open(descriptor, "w") as file:
        file.write(f"{key}\n{certificate}")
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")


def _start_certificate(subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _build_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _build_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _parse_host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _load_authorities(pem: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem.encode())


def _encode_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
