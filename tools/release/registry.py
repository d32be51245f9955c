"""Push images and the chart to a registry. A tag that exists with other content is not replaced."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from release.checksums import hash_file
from rlt_e2e.cluster.stages import StageError, stage


@dataclass(frozen=True)
class PushedImage:
    """An image, or a chart, in a registry."""

    repository: str
    """With the registry, such as registry.example.com/rlt-operator."""
    tag: str
    digest: str
    """Such as sha256:4f53…"""

    @property
    def pinned(self) -> str:
        """The name by digest, which another push cannot change."""
        return f"{self.repository}@{self.digest}"


@dataclass(frozen=True)
class Registry:
    """A registry and a path in it, such as registry.example.com/team. Credentials are Docker's."""

    address: str
    crane: Path
    helm: Path
    log: Path

    def push_image(self, archive: Path, name: str, tag: str) -> PushedImage:
        """Push the image of a Docker archive. Raises StageError if the tag is another image."""
        repository = f"{self.address}/{name}"
        with stage(f"push {repository}:{tag}", estimate_s=20) as this:
            digest = self._read(self.crane, "digest", "--tarball", archive)
            if not self._is_pushed(repository, tag, self._find_digest(repository, tag), digest):
                this.run([self.crane, "push", archive, f"{repository}:{tag}"], log=self.log)
            pushed = PushedImage(repository, tag, digest)
            this.run([self.crane, "validate", "--fast", "--remote", pushed.pinned], log=self.log)
            return pushed

    def push_chart(self, archive: Path, name: str, version: str) -> PushedImage:
        """Push the archive of a chart to the path `charts`. Raises StageError if the version is another chart."""
        repository = f"{self.address}/charts/{name}"
        with stage(f"push {repository}:{version}", estimate_s=2) as this:
            found = self._find_digest(repository, version)
            content = found and read_content(self._read(self.crane, "manifest", f"{repository}@{found}"))
            if not self._is_pushed(repository, version, content, f"sha256:{hash_file(archive)}"):
                plain = ["--plain-http"] if is_loopback(self.address) else []
                this.run([self.helm, "push", archive, f"oci://{self.address}/charts", *plain], log=self.log)
            return PushedImage(repository, version, self._read(self.crane, "digest", f"{repository}:{version}"))

    def _is_pushed(self, repository: str, tag: str, found: str, wanted: str) -> bool:
        if found and found != wanted:
            raise StageError(
                f"{repository}:{tag} exists with other content, {found}: release another version, "
                "or delete the tag if it is not in use"
            )
        return bool(found)

    def _find_digest(self, repository: str, tag: str) -> str:
        """Return the digest of a tag, empty if the tag does not exist. Raises StageError for other failures."""
        done = _run([self.crane, "digest", f"{repository}:{tag}"])
        if done.returncode and not re.search(r"MANIFEST_UNKNOWN|NAME_UNKNOWN|NOT_FOUND|404", done.stderr):
            raise StageError(f"REGISTRY: {self.address}: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout.strip()

    def _read(self, *command: str | Path) -> str:
        done = _run(command)
        if done.returncode:
            raise StageError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
        return done.stdout.strip()


def read_content(manifest: str) -> str:
    """Return the digest of the chart's archive from its manifest."""
    digest: str = json.loads(manifest)["layers"][0]["digest"]
    return digest


def is_loopback(address: str) -> bool:
    """Whether a registry is on this machine, where it has no TLS."""
    host = address.partition("/")[0].rpartition(":")[0] or address.partition("/")[0]
    return host == "localhost" or host.startswith("127.")


def _run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)
