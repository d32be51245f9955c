"""Signatures with a key by cosign, without a transparency log: signing contacts no service but the registry.

The password of the key is in the environment variable COSIGN_PASSWORD.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from release.registry import PushedImage
from rlt_e2e.cluster.stages import stage

WITHOUT_LOG = ("--use-signing-config=false", "--tlog-upload=false")
"""With a signing config, cosign 3.1 reads Sigstore's root from the network even if the config names no service."""


@dataclass(frozen=True)
class Signer:
    cosign: Path
    key: Path
    """The private key, encrypted."""
    log: Path

    def sign_file(self, file: Path) -> Path:
        """Write the signature of a file beside it, and return its path."""
        bundle = file.with_name(f"{file.name}.sigstore.json")
        self._sign(file.name, "sign-blob", "--bundle", bundle, file)
        return bundle

    def sign_image(self, image: PushedImage) -> None:
        """Push the signature of an image or chart to its repository."""
        self._sign(image.pinned, "sign", image.pinned)

    def _sign(self, what: str, command: str, *arguments: str | Path) -> None:
        with stage(f"sign {what}", estimate_s=1) as this:
            options: list[str | Path] = ["--yes", "--key", self.key, *WITHOUT_LOG]
            advice = "set COSIGN_PASSWORD to the password of COSIGN_KEY"
            this.run([self.cosign, command, *options, *arguments], log=self.log, advice=advice)
