"""The key of a release, from which the tokens of all Ray clusters are derived (HMAC-SHA256, RFC 2104).

The name of an attempt's Secret ends with another value of the key. No user without the key can create a Secret of that
name before the operator does, so that a Secret that exists is the operator's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from functools import lru_cache

KEY_BYTES = 32
"""Random bytes of a key."""
SUFFIX_LENGTH = 16
"""Hexadecimal digits of the suffix."""
MAX_KNOWN = 8192
"""Number of derived values that are kept, two for each running job. Each takes about 300 bytes."""
NAME = re.compile(r".+-ray-token-([0-9]{1,9})-([0-9a-f]{16})")


@dataclass(frozen=True)
class TokenKey:
    """The key of a release."""

    key: bytes = field(repr=False)

    def derive_token(self, job_uid: str, attempt: int) -> str:
        """The token of an attempt: 43 characters with 256 bits."""
        return base64.urlsafe_b64encode(self._derive("token", job_uid, attempt)).decode().rstrip("=")

    def derive_suffix(self, job_uid: str, attempt: int) -> str:
        """The suffix for the name of the attempt's Secret."""
        return self._derive("name", job_uid, attempt).hex()[:SUFFIX_LENGTH]

    def find_attempt(self, secret: str, job_uid: str) -> int | None:
        """The attempt of the job whose Secret has this name; None if it is not a name that the operator gave."""
        match = NAME.fullmatch(secret)
        if match is None:
            return None
        attempt = int(match[1])
        return attempt if hmac.compare_digest(match[2], self.derive_suffix(job_uid, attempt)) else None

    def _derive(self, purpose: str, job_uid: str, attempt: int) -> bytes:
        return _digest(self.key, f"{purpose}\n{job_uid}\n{attempt}")


@lru_cache(MAX_KNOWN)
def _digest(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), hashlib.sha256)
