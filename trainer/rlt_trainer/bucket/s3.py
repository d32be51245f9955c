"""The objects of a run in S3, or on a server with the same API, by obstore.

Credentials come from the environment: the keys of spec.storage.secretName, else the workload identity of the pod or the
role of its node. https://developmentseed.org/obstore/latest/authentication/
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rlt_api.spec.training_config import RunBucket
from rlt_pod.download.identity import find_keys, get_region
from rlt_pod.download.signature import Keys
from rlt_trainer.bucket.leftovers import abort_uploads
from rlt_trainer.bucket.objects import BucketError

if TYPE_CHECKING:
    from obstore.store import RetryConfig, S3Config

R = TypeVar("R")

MAX_RETRIES = 8
"""The waits between them grow from 0.1 s to 15 s (object_store's default): about half a minute of errors."""
RETRY_TIMEOUT = timedelta(minutes=3)
REQUEST_TIMEOUT = timedelta(minutes=2)
"""For one part of a file."""
PART_BYTES = 16 * 2**20
"""Size of a part of an uploaded file. A larger file than MAX_PARTS of them has larger parts."""
MAX_PARTS = 10_000
"""https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html"""
BROKEN_OFF = "response body error"
"""In object_store's error for an answer that is shorter than its length."""
RANGE_BYTES = 64 * 2**20
"""Bytes that one request of a file downloads."""

NO_S3 = "Set spec.storage.endpoint to the URL of a server with the API of S3."
REGION = "The bucket is in another region: set AWS_REGION in spec.cluster.env."
FIXES = {
    ("NoSuchBucket",): "Create the bucket, or correct spec.storage.bucket.",
    (
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "InvalidToken",
        "ExpiredToken",
        "UnauthenticatedError",
        "XAdminUserNotFound",
    ): "Correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the Secret spec.storage.secretName, or the workload "
    "identity of the pods.",
    ("AccessDenied", "AllAccessDisabled", "PermissionDeniedError"): "Give the user of spec.storage.secretName, or the "
    "workload identity, the right to list, read, write and delete objects below spec.storage.bucket.",
    ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"): REGION,
    (
        "QuotaExceeded",
        "QuotaExceededException",
        "XMinioStorageFull",
        "XMinioAdminBucketQuotaExceeded",
        "InsufficientStorage",
        "InsufficientCapacity",
    ): "The bucket is full: raise its quota, or delete objects, such as checkpoints of earlier runs.",
    ("RequestTimeTooSkewed",): "Synchronize the clock of the nodes, or of the server spec.storage.endpoint (NTP).",
    ("NotImplemented", "NotSupportedError"): "The server has no conditional puts (If-None-Match, If-Match): set "
    "spec.storage.endpoint to one that has, such as S3, MinIO or Ceph.",
}
"""Error codes of S3, and exceptions of obstore -> what to do."""
PHRASES = {
    "redirect without LOCATION": REGION,
    "Header missing from response": NO_S3,
    "status code: 404": NO_S3,
}
"""Parts of object_store's errors for answers without an error code of S3 -> what to do."""
DEFAULT_FIX = "Verify spec.storage.bucket, endpoint and secretName, that the pods can reach the server, and its log."


def get_server(bucket: RunBucket) -> str:
    """Return the URL of the bucket's server, without a slash at the end."""
    return (bucket.endpoint or f"https://s3.{get_region()}.amazonaws.com").rstrip("/")


class S3Objects:
    """The objects below a URL s3://BUCKET/PREFIX."""

    def __init__(self, bucket: RunBucket, *, max_retries: int | None = None, keys: Keys | None = None) -> None:
        """`keys`: default: from the environment."""
        import obstore  # an optional package: extras.py
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
        from obstore.store import S3Store

        self.url = bucket.url
        self._obstore: Any = obstore
        self._error = BaseError
        self._exists = AlreadyExistsError
        self._changed = PreconditionError
        self._server = get_server(bucket)
        self._name, _, self._prefix = bucket.url.removeprefix("s3://").partition("/")
        self._region = get_region()
        self._keys = keys
        self._max_retries = MAX_RETRIES if max_retries is None else max_retries
        retries: RetryConfig = {"max_retries": self._max_retries, "retry_timeout": RETRY_TIMEOUT}
        config: S3Config = {"region": self._region}
        if keys:
            config["access_key_id"] = keys.key_id
            config["secret_access_key"] = keys.secret
        if bucket.endpoint:
            config["aws_endpoint_url_s3"] = bucket.endpoint  # replaces AWS_ENDPOINT_URL_S3 of the environment
        with self._explain("opened"):
            self._store = S3Store(
                self._name,
                prefix=self._prefix,
                config=config,
                retry_config=retries,
                client_options={"timeout": REQUEST_TIMEOUT, "allow_http": (bucket.endpoint or "").startswith("http:")},
            )

    def put(self, key: str, file: Path) -> None:
        """Write a file as a whole object. A failed upload of several parts is aborted."""
        part = max(PART_BYTES, -(-file.stat().st_size // MAX_PARTS))
        with self._explain("written", key):
            self._obstore.put(self._store, key, file, chunk_size=part)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Write an object unless it exists. A request that is repeated after a lost answer may find its own content."""
        with self._explain("written", key):
            try:
                self._obstore.put(self._store, key, content, mode="create")
            except self._exists:
                return self.read(key) == content
        return True

    def put_if_same(self, key: str, content: bytes, version: str | None) -> str | None:
        """Write an object in one request if it still has this ETag, or with None if it does not exist."""
        with self._explain("written", key):
            mode = "create" if version is None else {"e_tag": version}
            try:
                result = self._obstore.put(self._store, key, content, mode=mode, use_multipart=False)
            except (self._exists, self._changed, FileNotFoundError):
                return None
        return str(result["e_tag"])

    def find_version(self, key: str) -> str | None:
        """Return the ETag of an object. None: it does not exist."""
        with self._explain("read", key):
            try:
                return str(self._obstore.head(self._store, key)["e_tag"])
            except FileNotFoundError:
                return None

    def list(self, folder: str) -> dict[str, int]:
        """Return key -> size in bytes of all objects below a folder."""
        with self._explain("listed", folder):
            items = self._repeat(lambda: [item for items in self._obstore.list(self._store, folder) for item in items])
            return {item["path"]: item["size"] for item in items}

    def read(self, key: str) -> bytes | None:
        """Read a small object. None: it does not exist."""
        with self._explain("read", key):
            try:
                return self._repeat(lambda: bytes(self._obstore.get(self._store, key).bytes()))
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    def get(self, key: str, file: Path) -> None:
        """Write an object to a file, under a temporary name first."""
        temporary = file.with_name(f"{file.name}.partial")
        with self._explain("read", key), temporary.open("wb") as target:
            size = self._obstore.head(self._store, key)["size"]
            for start in range(0, size, RANGE_BYTES):
                end = min(start + RANGE_BYTES, size)
                part = partial(self._obstore.get_range, self._store, key, start=start, end=end)
                target.write(self._repeat(part))
        temporary.replace(file)

    def delete(self, keys: Collection[str]) -> None:
        """Delete objects."""
        if keys:
            with self._explain("deleted", min(keys)):
                self._repeat(lambda: self._obstore.delete(self._store, sorted(keys)))

    def abort_uploads(self) -> int:
        """Abort the multipart uploads below the prefix, for which obstore has no request."""
        with self._explain("listed"):
            keys = self._keys or find_keys(os.environ)
            return abort_uploads(keys, self._server, self._name, f"{self._prefix}/") if keys else 0

    def _repeat(self, request: Callable[[], R]) -> R:
        """Repeat a request whose answer broke off. obstore repeats only those without an answer, or with a status."""
        for _ in range(self._max_retries):
            try:
                return request()
            except self._error as error:
                if BROKEN_OFF not in str(error):
                    raise
        return request()

    @contextmanager
    def _explain(self, action: str, key: str = "") -> Iterator[None]:
        """Raise BucketError for errors of obstore, without the body of the answer, which repeats the request."""
        try:
            yield
        except (self._error, OSError) as error:
            text = str(error).partition("\n\nDebug source")[0]
            code = _find("Code", text) or type(error).__name__
            reason = f"{code}: {_find('Message', text) or text.partition('<')[0]}"
            known = [advice for codes, advice in FIXES.items() if code in codes]
            likely = [advice for phrase, advice in PHRASES.items() if phrase in text]
            fix = next(iter([*known, *likely]), DEFAULT_FIX)
            problem = f"{self.url}/{key} could not be {action}: {' '.join(reason.split()).rstrip('.: ')}."
            raise BucketError(problem, fix) from None


def _find(tag: str, text: str) -> str | None:
    """The content of the first element with this tag."""
    content, end, _ = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")
    return content if end else None
