"""Amazon's signature of a request, version 4, with the standard library.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

TIME_FORMAT = "%Y%m%dT%H%M%SZ"
"""How a request has its time, in UTC: for time.strftime."""


@dataclass(frozen=True)
class Keys:
    """Credentials, and the region that they are used in."""

    key_id: str
    secret: str
    token: str
    region: str

    @classmethod
    def find(cls, environment: Mapping[str, str], *, region: str) -> Keys | None:
        """Find static keys in the environment. None: the pod has a workload identity."""
        key_id = environment.get("AWS_ACCESS_KEY_ID")
        secret = environment.get("AWS_SECRET_ACCESS_KEY")
        return cls(key_id, secret, environment.get("AWS_SESSION_TOKEN", ""), region) if key_id and secret else None

    def __repr__(self) -> str:
        return f"Keys({self.region})"


def sign(keys: Keys, method: str, url: str, arguments: str, time: str, body: bytes = b"") -> dict[str, str]:
    """Return the headers of a request. `url` and `arguments`, which are sorted, are percent-encoded.

    `time`: now, in TIME_FORMAT.
    """
    parts = urlsplit(url)
    content = sha256(body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": content, "x-amz-date": time}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{parts.path}\n{arguments}\n{lines}\n{names}\n{content}"
    scope = f"{time[:8]}/{keys.region}/s3/aws4_request"
    key = f"AWS4{keys.secret}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{sha256(request.encode()).hexdigest()}"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = f"Credential={keys.key_id}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {signature}"}
