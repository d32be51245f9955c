"""Objects of S3, or of a server with its API: lists, requests for parts and small puts, with the standard library."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree

from rlt_pod.download.identity import find_keys, get_region
from rlt_pod.download.signature import TIME_FORMAT, sign
from rlt_pod.download.transfer import TEMPORARY, DownloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from http.client import HTTPResponse

    from rlt_pod.download.signature import Keys

TIMEOUT_S = 60.0
KEYS_AGE_S = 60.0
"""Seconds for which found keys are used. Temporary ones are valid for five minutes at least."""
SCHEME = "s3://"

CREDENTIALS = (
    "Correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the Secret spec.storage.secretName, or the workload "
    "identity of the pods."
)
REGION = "The bucket is in another region: set AWS_REGION in spec.cluster.env{region}."
NO_KEYS = "no keys"
NO_OBJECTS = "no objects"
NO_S3 = "no S3"
OTHER = "other"
"""Errors without a code of S3."""
FIXES = {
    "NoSuchBucket": "Correct {field}, or create the bucket.",
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "XAdminUserNotFound"),
        CREDENTIALS,
    ),
    "AccessDenied": "Give the user of spec.storage.secretName, or the workload identity, the right to list and read "
    "these objects.",
    **dict.fromkeys(("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint"), REGION),
    "RequestTimeTooSkewed": "Synchronize the clock of the nodes, or of the server spec.storage.endpoint (NTP).",
    NO_KEYS: "Set spec.storage.secretName, or serviceAccountName in the podTemplate of head and workers.",
    NO_OBJECTS: "Correct {field}, or upload the files.",
    NO_S3: "Set spec.storage.endpoint to the URL of a server with the API of S3.",
    OTHER: "Verify {field}, spec.storage.endpoint and secretName, and the log of the server.",
}
"""Error code -> what to do in a job. https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html"""
NONE: Mapping[str, str] = {}
CHANGED = (404, 412)
"""Statuses of a listed object that was deleted or replaced."""


class ChangedError(Exception):
    """An object has been replaced or deleted since it was listed."""


@dataclass(frozen=True)
class Location:
    """Where a job reads objects, and the field that names it."""

    field: str
    url: str

    @property
    def bucket(self) -> str:
        """The bucket."""
        return self.url[len(SCHEME) :].partition("/")[0]

    @property
    def key(self) -> str:
        """The key of an object, or the prefix of several, without a slash at the end."""
        return self.url[len(SCHEME) :].partition("/")[2].rstrip("/")


@dataclass(frozen=True)
class Listed:
    """An object."""

    key: str
    size: int
    etag: str
    """Another one for other content."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer: the signature is for one server."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        """Do not follow."""


class Server:
    """S3, or the server at `endpoint`."""

    def __init__(
        self,
        endpoint: str | None,
        environment: Mapping[str, str] = os.environ,
        timeout_s: float = TIMEOUT_S,
        fixes: Mapping[str, str] = FIXES,
    ) -> None:
        """`fixes`: error code -> what to do. It has the keys of FIXES."""
        self._fixes = fixes
        self._environment = environment
        self._timeout_s = timeout_s
        self._url = (endpoint or f"https://s3.{get_region(environment)}.amazonaws.com").rstrip("/")
        self._keys: Keys | None = None
        self._found = float("-inf")

    def list_objects(self, location: Location) -> list[Listed]:
        """List the object of this key, or those below it. Raises DownloadError, also if there is none, and OSError."""
        found = list(self._list(location, f"{location.key}/"))
        if not found:
            found = [each for each in self._list(location, location.key, limit=1) if each.key == location.key]
        if not found:
            raise self._fail(location, NO_OBJECTS, f"{location.url}: the bucket has no such objects.")
        return found

    def open_object(self, location: Location, listed: Listed, start: int) -> HTTPResponse:
        """Request an object from byte `start` on. Raises ChangedError, DownloadError, OSError."""
        headers = {"If-Match": listed.etag, **({"Range": f"bytes={start}-"} if start else {})}
        try:
            return self._open(location, quote(listed.key), headers=headers)
        except urllib.error.HTTPError as error:
            if error.code in CHANGED:
                raise ChangedError(listed.key) from error
            raise self._explain(location, error) from error

    def put_object(self, location: Location, content: bytes) -> None:
        """Write a small object in one request. Raises DownloadError, OSError."""
        self._change("PUT", location, content)

    def delete_object(self, location: Location) -> None:
        """Delete an object, if it exists. Raises DownloadError, OSError."""
        self._change("DELETE", location)

    def _change(self, method: str, location: Location, content: bytes | None = None) -> None:
        try:
            with self._open(location, quote(location.key), method=method, body=content) as response:
                response.read()
        except urllib.error.HTTPError as error:
            raise self._explain(location, error, "written") from error
        except HTTPException as error:
            raise OSError(f"{self._url} breaks off its answer") from error

    def _list(self, location: Location, prefix: str, limit: int | None = None) -> Iterator[Listed]:
        """Yield the objects whose key begins with `prefix`, at most `limit`. Markers of folders are left out."""
        arguments = {"list-type": "2", "prefix": prefix, **({"max-keys": str(limit)} if limit else {})}
        while True:
            try:
                with self._open(location, "", arguments) as response:
                    page = ElementTree.fromstring(response.read())
                if not page.tag.endswith("ListBucketResult"):
                    raise ElementTree.ParseError(f"the answer is {page.tag}")
            except urllib.error.HTTPError as error:
                raise self._explain(location, error) from error
            except HTTPException as error:
                raise OSError(f"{self._url} breaks off its answer") from error
            except ElementTree.ParseError as error:
                problem = f"{location.url}: {self._url} gives no list ({error})."
                raise self._fail(location, NO_S3, problem) from error
            for each in page.findall("{*}Contents"):
                key = each.findtext("{*}Key", "")
                if key.endswith("/"):
                    continue
                if any(part in ("", ".", "..") for part in key.split("/")):
                    problem = f"{location.url}: the key {key!r} is not a path of a file."
                    raise DownloadError(problem, "Rename the object.")
                yield Listed(key, int(each.findtext("{*}Size", "0")), each.findtext("{*}ETag", ""))
            token = page.findtext("{*}NextContinuationToken")
            if not token or limit:
                return
            arguments["continuation-token"] = token

    def _open(
        self,
        location: Location,
        key: str,
        query: Mapping[str, str] = NONE,
        *,
        headers: Mapping[str, str] = NONE,
        method: str = "GET",
        body: bytes | None = None,
    ) -> HTTPResponse:
        """Send a signed request for the bucket, or for an object of it. Raises HTTPError for final statuses."""
        keys = self._get_keys(location)
        url = f"{self._url}/{location.bucket}{f'/{key}' if key else ''}"
        arguments = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(query.items()))
        signed = sign(keys, method, url, arguments, time.strftime(TIME_FORMAT, time.gmtime()), body or b"")
        address = f"{url}?{arguments}" if arguments else url
        request = urllib.request.Request(address, body, {**signed, **headers}, method=method)
        try:
            response: HTTPResponse = urllib.request.build_opener(_NoRedirect).open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as error:
            if error.code in TEMPORARY:
                raise OSError(f"{self._url} answers {error.code} {error.reason}") from error
            raise
        return response

    def _get_keys(self, location: Location) -> Keys:
        now = time.monotonic()
        if self._keys is None or now - self._found > KEYS_AGE_S:
            try:
                found = find_keys(self._environment)
            except urllib.error.HTTPError as error:
                reason = f"the identity of the pod gets no credentials ({error.code} {error.reason})"
                if error.code in TEMPORARY:
                    raise OSError(reason) from error  # an HTTPError would be an answer of the bucket's server
                raise self._fail(location, "InvalidToken", f"{location.url}: {reason}.") from error
            if found is None and self._keys is not None:
                raise OSError("the metadata service of the node does not answer any longer")
            self._keys = found
            self._found = now
        if self._keys is None:
            raise self._fail(location, NO_KEYS, f"{location.url}: its credentials are missing.")
        return self._keys

    def _explain(self, location: Location, error: urllib.error.HTTPError, action: str = "read") -> DownloadError:
        """The answer of the server as a sentence, without what repeats the request."""
        region = error.headers.get("x-amz-bucket-region")
        try:
            answer = ElementTree.fromstring(error.read())
        except (ElementTree.ParseError, HTTPException, OSError):
            answer = ElementTree.Element("Error")
        code = answer.findtext("{*}Code") or {403: "AccessDenied", 301: "PermanentRedirect"}.get(error.code, "")
        region = region or answer.findtext("{*}Region")
        reason = f"{code or error.code}: {answer.findtext('{*}Message') or error.reason}".rstrip(".")
        return self._fail(location, code, f"{location.url} cannot be {action}: {reason}.", region)

    def _fail(self, location: Location, code: str, problem: str, region: str | None = None) -> DownloadError:
        fix = self._fixes.get(code, self._fixes[OTHER])
        return DownloadError(problem, fix.format(field=location.field, region=f" to {region}" if region else ""))
