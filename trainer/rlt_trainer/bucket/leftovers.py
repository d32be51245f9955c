"""Multipart uploads that a killed program left: they use space, and no object shows them.

Servers differ in lifecycle rules that abort them, and obstore cannot list them. These are two requests with Amazon's
signature, version 4: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from http.client import HTTPException
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree

TIMEOUT_S = 60
EMPTY = sha256(b"").hexdigest()
"""The hash of the body."""


@dataclass(frozen=True)
class Keys:
    """Static credentials, and the region that they are used in."""

    key_id: str
    secret: str
    token: str
    region: str

    @classmethod
    def find(cls, environment: Mapping[str, str], *, region: str) -> Keys | None:
        """Find the keys in the environment. None: the pod has a workload identity."""
        key_id = environment.get("AWS_ACCESS_KEY_ID")
        secret = environment.get("AWS_SECRET_ACCESS_KEY")
        return cls(key_id, secret, environment.get("AWS_SESSION_TOKEN", ""), region) if key_id and secret else None

    def __repr__(self) -> str:
        return f"Keys({self.region})"


def abort_uploads(keys: Keys, server: str, bucket: str, prefix: str) -> int:
    """Abort all multipart uploads of keys that begin with `prefix`. Return their number. Raises OSError."""
    url = f"{server}/{bucket}"
    aborted = 0
    while True:
        listed = _parse(_send(keys, "GET", url, {"prefix": prefix, "uploads": ""}))
        uploads = listed.findall("{*}Upload")
        for upload in uploads:
            key = quote(upload.findtext("{*}Key", ""))
            _send(keys, "DELETE", f"{url}/{key}", {"uploadId": upload.findtext("{*}UploadId", "")})
            aborted += 1
        if not uploads or listed.findtext("{*}IsTruncated") != "true":
            return aborted


def _parse(content: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise OSError(f"the list of unfinished uploads is not XML ({error})") from error


def _send(keys: Keys, method: str, url: str, query: Mapping[str, str]) -> bytes:
    """Send a signed request without a body, and return the body of its answer."""
    arguments = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(query.items()))
    headers = sign(keys, method, url, arguments, datetime.now(UTC))
    try:
        with urlopen(Request(f"{url}?{arguments}", headers=headers, method=method), timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except HTTPException as error:
        raise OSError(f"{method} {url}: {error!r}") from error
    return content


def sign(keys: Keys, method: str, url: str, arguments: str, now: datetime) -> dict[str, str]:
    """Return the headers of a request without a body. `url` and `arguments`, which are sorted, are percent-encoded."""
    parts = urlsplit(url)
    time = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-content-sha256": EMPTY, "x-amz-date": time}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{parts.path}\n{arguments}\n{lines}\n{names}\n{EMPTY}"
    scope = f"{time[:8]}/{keys.region}/s3/aws4_request"
    key = f"AWS4{keys.secret}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{sha256(request.encode()).hexdigest()}"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = f"Credential={keys.key_id}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {signature}"}
