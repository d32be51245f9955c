"""Compare the API server and the offline validator on random manifests: `python -m rlt_e2e.fuzz_api --help`.

The validator rejects what the CRD rejects. With the admission webhook both reject the same manifests. Nothing crashes,
and every rejection names a field.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from rlt_api.findings.finding import Finding
from rlt_api.schema.crd import GROUP, PLURAL, RUNTIME_KIND, RUNTIME_PLURAL, VERSION
from rlt_api.validation.validate import validate_manifest

ROOT = Path(__file__).parents[2]
TEST = "operator/tests/apiserver/test_random_jobs.py"
THREADS = 4


@dataclass(frozen=True)
class ApiResponse:
    """Response of the API server to a manifest."""

    status: int
    message: str
    causes: tuple[tuple[str, str], ...]
    """Field and message of each cause."""
    warning: str = ""

    @property
    def accepted(self) -> bool:
        return self.status < 300


class ApiServer:
    """Server-side dry runs, with one persistent connection per thread."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        self._host = urlsplit(cluster["server"]).netloc
        self._context = ssl.create_default_context(cadata=_decode(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w") as pair:
            pair.write(_decode(user["client-certificate-data"]) + _decode(user["client-key-data"]))
            pair.flush()
            self._context.load_cert_chain(pair.name)
        self._local = threading.local()

    def dry_run(self, manifest: Any, *, validation: str = "Strict") -> ApiResponse:
        """Create a manifest in the namespace default as a dry run."""
        runtime = manifest["kind"] == RUNTIME_KIND
        return self.dry_run_text(json.dumps(normalize_numbers(manifest)), runtime=runtime, validation=validation)

    def dry_run_text(self, text: str, *, runtime: bool = False, validation: str = "Strict") -> ApiResponse:
        """Create a manifest in JSON as a dry run."""
        place = RUNTIME_PLURAL if runtime else f"namespaces/default/{PLURAL}"
        path = f"/apis/{GROUP}/{VERSION}/{place}?dryRun=All&fieldValidation={validation}"
        connection = self._connection()
        connection.request("POST", path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = json.loads(response.read())
        warning = response.getheader("Warning", "")
        if response.status < 300:
            return ApiResponse(response.status, "", (), warning)
        listed = (body.get("details") or {}).get("causes") or []
        causes = [(each.get("field", ""), each.get("message", "")) for each in listed]
        unknown = re.findall(r'unknown field "((?:[^"\\]|\\.)*)"', body["message"])
        causes += [(path, "unknown field") for path in unknown]
        return ApiResponse(response.status, body["message"], tuple(causes), warning)

    def _connection(self) -> http.client.HTTPSConnection:
        if not hasattr(self._local, "connection"):
            self._local.connection = http.client.HTTPSConnection(self._host, context=self._context, timeout=60)
        connection: http.client.HTTPSConnection = self._local.connection
        return connection


def normalize_numbers(value: Any) -> Any:
    """Return a manifest as kubectl and client-go send it: Go's encoding/json writes 8.0 as 8.

    In the API server 8.0 is an integer for the schema, but not for CEL.
    """
    if isinstance(value, dict):
        return {key: normalize_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [normalize_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


@dataclass
class Outcome:
    """Results of both for many manifests."""

    counts: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        results = ", ".join(f"{count} {result}" for result, count in sorted(self.counts.items()))
        rules = ", ".join(f"{rule} {count}" for rule, count in self.rules.most_common())
        return f"{self.counts.total()} manifests: {results}\nfindings by rule: {rules}"


def compare(
    api: ApiServer, manifests: Iterable[Any], *, webhook: bool, note: Callable[[int], None] = lambda done: None
) -> Outcome:
    """Validate manifests with both. With the webhook they must agree, without it the CRD may accept more."""
    outcome = Outcome()
    with ThreadPoolExecutor(THREADS) as pool:
        for done, (manifest, response, found) in enumerate(pool.map(lambda each: _validate(api, each), manifests), 1):
            online = "accepted" if response.accepted else "rejected"
            offline = "rejected" if found else "accepted"
            outcome.counts[f"{online} by the API server, {offline} offline"] += 1
            outcome.rules.update({each.rule for each in found})
            if problem := _find_disagreement(response, found, webhook=webhook):
                text = json.dumps(manifest)
                server = f"API server: {response.status} {response.message[:1000]}"
                outcome.disagreements.append(f"{problem}\n{server}\noffline: {[*map(str, found[:5])]}\n{text[:3000]}")
            note(done)
    return outcome


def _validate(api: ApiServer, manifest: Any) -> tuple[Any, ApiResponse, Sequence[Finding]]:
    return manifest, api.dry_run(manifest), validate_manifest(json.loads(json.dumps(manifest)), {})


def _find_disagreement(response: ApiResponse, found: Sequence[Finding], *, webhook: bool) -> str:
    if response.status >= 500:
        return "the API server failed"
    if not response.accepted and not found:
        return "rejected only by the API server"
    if webhook and response.accepted and found:
        return "rejected only offline"
    if any(not each.field or not str(each).isprintable() for each in found):
        return "a finding without a printable field"
    if response.status == 422 and not response.causes:
        return "a rejection without a field"
    return ""


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()


def main() -> None:
    """Run the test with a larger count. The test starts and stops API server and webhook."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--count", type=int, default=2000, help="number of manifests, each without and with the webhook"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random manifests")
    options = parser.parse_args()
    environment = {"RLT_FUZZ_COUNT": str(options.count), "RLT_FUZZ_SEED": str(options.seed)}
    command = [sys.executable, "-m", "pytest", "-q", "-s", TEST]
    sys.exit(subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}).returncode)


if __name__ == "__main__":
    main()
