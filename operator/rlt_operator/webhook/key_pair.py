"""A serving certificate with an authority of its own, made anew at each renewal. The authority's key is never kept."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = timedelta(days=90)
RENEWED_AFTER = 2 / 3
"""Share of the validity that has passed when a certificate is renewed."""
CLOCK_SKEW = timedelta(minutes=5)
"""Certificates are valid since a little before they were made: clocks differ."""


@dataclass(frozen=True)
class KeyPair:
    """What the server needs and what its clients trust. All in PEM."""

    certificate: str
    key: str
    trusted: str
    """The authority of this certificate, then the one before it: who still trusts only one of them trusts both."""

    def hosts(self) -> frozenset[str]:
        """The names and addresses that it is valid for."""
        names = self._parsed().extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = names.get_values_for_type(x509.IPAddress)
        return frozenset(names.get_values_for_type(x509.DNSName)) | frozenset(map(str, addresses))

    def due(self) -> datetime:
        """When it is to be renewed."""
        parsed = self._parsed()
        start, end = parsed.not_valid_before_utc, parsed.not_valid_after_utc
        return start + (end - start) * RENEWED_AFTER

    def _parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate.encode())


def make(hosts: frozenset[str], *, now: datetime, before: KeyPair | None = None) -> KeyPair:
    """A new one for DNS names and IP addresses; clients trust the one before it too."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = _name(f"rlt-operator webhook authority {now:%Y-%m-%d %H:%M:%S}")
    authority = (
        _builder(name, authority_key.public_key(), now)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name("rlt-operator webhook"), key.public_key(), now)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in sorted(hosts)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    earlier = [each for each in _certificates(before.trusted) if each.not_valid_after_utc > now][:1] if before else []
    return KeyPair(_pem(certificate), private.decode(), "".join(map(_pem, [authority, *earlier])))


def parse(certificate: str, key: str, trusted: str) -> KeyPair:
    """One that was kept. Raises ValueError if it is damaged."""
    pair = KeyPair(certificate, key, trusted)
    public = pair._parsed().public_key()
    if serialization.load_pem_private_key(key.encode(), None).public_key() != public or not _certificates(trusted):
        raise ValueError("certificate, key and authority do not belong together")
    return pair


def _builder(subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
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


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificates(pem: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem.encode())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
