"""TLS of the webhook's server."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from rlt_operator import metrics
from rlt_operator.key_pair import load_key_pair


@dataclass(frozen=True)
class ClientCertificates:
    """The certificate that a client must have.

    An API server has one for webhooks if its AdmissionConfiguration names a kubeconfig:
    https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers
    """

    authority: Path
    """The certificates of the authorities (PEM)."""
    name: str | None = None
    """The common name of the client's certificate. None: any certificate of the authorities."""


class Tls:
    """TLS 1.3 of the server. Its certificate can be replaced while it serves."""

    def __init__(self, clients: ClientCertificates | None = None) -> None:
        """Raises OSError or ssl.SSLError if the authorities of the clients cannot be read."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.has_certificate = False
        self._name = clients.name if clients else None
        if clients:
            self.context.verify_mode = ssl.CERT_REQUIRED
            self.context.load_verify_locations(clients.authority)

    def load(self, certificate: str, key: str) -> None:
        """Use this certificate and key for new connections (PEM). Raises ssl.SSLError if they do not match."""
        load_key_pair(self.context, certificate, key)
        self.has_certificate = True
        expiry = x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc
        metrics.CERTIFICATE_EXPIRY.set(expiry.timestamp())

    def admits(self, connection: ssl.SSLObject) -> bool:
        """Whether the client's certificate, which the authorities have signed, has the required name."""
        if self._name is None:
            return True
        encoded = connection.getpeercert(binary_form=True)
        if encoded is None:
            return False
        names = x509.load_der_x509_certificate(encoded).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return [each.value for each in names] == [self._name]
