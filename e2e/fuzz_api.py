"""Random manifests before two judges, the real API server and the offline validator: `python e2e/fuzz_api.py --help`.

What the CRD refuses, the validator refuses; with the admission webhook both refuse the same. Nothing crashes, and every
refusal names a field.
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

from rlt_api.crd import GROUP, PLURAL, RUNTIME_KIND, RUNTIME_PLURAL, VERSION
from rlt_api.finding import Finding
from rlt_api.validation import validate_manifest

ROOT = Path(__file__).parent.parent
TEST = "operator/tests/apiserver/test_random_jobs.py"
THREADS = 4


@dataclass(frozen=True)
class Answer:
    """What the API server says to a manifest."""

    status: int
    message: str
    causes: tuple[tuple[str, str], ...]
    """Where it sees something wrong, and what."""
    warning: str = ""

    @property
    def accepted(self) -> bool:
        return self.status < 300


class ApiServer:
    """Server-side dry runs, over one kept connection for each thread."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._host = urlsplit(cluster["server"]).netloc
        self._context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w") as pair:
            pair.write(_decoded(user["client-certificate-data"]) + _decoded(user["client-key-data"]))
            pair.flush()
            self._context.load_cert_chain(pair.name)
        self._local = threading.local()

    def judge(self, manifest: Any, *, validation: str = "Strict") -> Answer:
        """The answer to the creation of a manifest, in the namespace default."""
        runtime = manifest["kind"] == RUNTIME_KIND
        return self.judge_text(json.dumps(as_written(manifest)), runtime=runtime, validation=validation)

    def judge_text(self, text: str, *, runtime: bool = False, validation: str = "Strict") -> Answer:
        """The answer to a manifest that is JSON already."""
        place = RUNTIME_PLURAL if runtime else f"namespaces/default/{PLURAL}"
        path = f"/apis/{GROUP}/{VERSION}/{place}?dryRun=All&fieldValidation={validation}"
        connection = self._connection()
        connection.request("POST", path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        said, warning = json.loads(response.read()), response.getheader("Warning", "")
        if response.status < 300:
            return Answer(response.status, "", (), warning)
        listed = (said.get("details") or {}).get("causes") or []
        causes = [(each.get("field", ""), each.get("message", "")) for each in listed]
        unknown = re.findall(r'unknown field "((?:[^"\\]|\\.)*)"', said["message"])
        causes += [(path, "unknown field") for path in unknown]
        return Answer(response.status, said["message"], tuple(causes), warning)

    def _connection(self) -> http.client.HTTPSConnection:
        if not hasattr(self._local, "connection"):
            self._local.connection = http.client.HTTPSConnection(self._host, context=self._context, timeout=60)
        connection: http.client.HTTPSConnection = self._local.connection
        return connection


def as_written(value: Any) -> Any:
    """A manifest as kubectl and client-go send it: whole numbers without a fraction, as Go's encoding/json writes them.

    Sent raw, 8.0 is an integer to the API server's schema, but not to its CEL.
    """
    if isinstance(value, dict):
        return {key: as_written(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_written(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


@dataclass
class Outcome:
    """Both judges' verdicts on many manifests."""

    counts: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.counts.items()))
        rules = ", ".join(f"{rule} {count}" for rule, count in self.rules.most_common())
        return f"{self.counts.total()} manifests: {verdicts}\nfindings by rule: {rules}"


def compare(
    api: ApiServer, manifests: Iterable[Any], *, webhook: bool, note: Callable[[int], None] = lambda done: None
) -> Outcome:
    """Put manifests before both. With the webhook they must agree, without it the CRD may accept more."""
    outcome = Outcome()
    with ThreadPoolExecutor(THREADS) as pool:
        for done, (manifest, answer, found) in enumerate(pool.map(lambda each: _both(api, each), manifests), 1):
            verdict = f"{'accepted' if answer.accepted else 'refused'} by the API server, "
            outcome.counts[verdict + f"{'refused' if found else 'accepted'} offline"] += 1
            outcome.rules.update({each.rule for each in found})
            if complaint := _complaint(answer, found, webhook=webhook):
                text = json.dumps(manifest)
                said = f"API server: {answer.status} {answer.message[:1000]}\noffline: {[*map(str, found[:5])]}"
                outcome.disagreements.append(f"{complaint}\n{said}\n{text[:3000]}")
            note(done)
    return outcome


def _both(api: ApiServer, manifest: Any) -> tuple[Any, Answer, Sequence[Finding]]:
    return manifest, api.judge(manifest), validate_manifest(json.loads(json.dumps(manifest)), {})


def _complaint(answer: Answer, found: Sequence[Finding], *, webhook: bool) -> str:
    if answer.status >= 500:
        return "the API server failed"
    if not answer.accepted and not found:
        return "refused by the API server alone"
    if webhook and answer.accepted and found:
        return "refused offline alone"
    if any(not each.field or not str(each).isprintable() for each in found):
        return "a finding without a printable field"
    if answer.status == 422 and not answer.causes:
        return "a refusal without a field"
    return ""


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def main() -> None:
    """Run the test with a greater count: it brings up API server, CRDs and webhook, and takes them down again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="manifests without the webhook, and again with it")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same manifests")
    options = parser.parse_args()
    environment = {"RLT_FUZZ_COUNT": str(options.count), "RLT_FUZZ_SEED": str(options.seed)}
    command = [sys.executable, "-m", "pytest", "-q", "-s", TEST]
    sys.exit(subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}).returncode)


if __name__ == "__main__":
    main()
