"""A real S3 server for tests, with an empty bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlt_e2e.cluster.s3_server import s3_server


@contextmanager
def bucket_server(folder: Path, bucket: str) -> Iterator[str]:
    """Yield the URL of a server with an empty bucket. The variables of its clients are set."""
    with s3_server(folder) as variables, pytest.MonkeyPatch.context() as patch:
        (folder / "objects" / bucket).mkdir()
        for name, value in variables.items():
            patch.setenv(name, value)
        yield variables["AWS_ENDPOINT_URL_S3"]
