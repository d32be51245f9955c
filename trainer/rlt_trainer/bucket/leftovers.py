"""Multipart uploads that a killed program left: they use space, and no object shows them.

Servers differ in lifecycle rules that abort them, and obstore cannot list them. These are two signed requests.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http.client import HTTPException
from urllib.parse import quote
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from rlt_pod.download.signature import TIME_FORMAT, Keys, sign

TIMEOUT_S = 60


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
    headers = sign(keys, method, url, arguments, time.strftime(TIME_FORMAT, time.gmtime()))
    try:
        with urlopen(Request(f"{url}?{arguments}", headers=headers, method=method), timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except HTTPException as error:
        raise OSError(f"{method} {url}: {error!r}") from error
    return content
