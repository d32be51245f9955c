"""The programs that a release needs besides Python packages and Helm, built from pinned Go modules."""

from __future__ import annotations

from pathlib import Path

from rlt_e2e.cluster.go_programs import Family, obtain

MODULES = Path(__file__).with_name("go")

CRANE = Family(
    name="crane",
    title="crane",
    packages=("github.com/google/go-containerregistry/cmd/crane",),
    module=MODULES / "crane",
    estimate_s=60,
)
"""Pushes images. It also serves a registry on loopback, for the tests."""

COSIGN = Family(
    name="cosign",
    title="cosign",
    packages=("github.com/sigstore/cosign/v3/cmd/cosign",),
    module=MODULES / "cosign",
    estimate_s=300,
)
"""Signs checksums and images."""

KREW = Family(
    name="krew", title="krew", packages=("sigs.k8s.io/krew/cmd/krew",), module=MODULES / "krew", estimate_s=60
)
"""Installs plugins of kubectl. The tests install the one of a release."""


def obtain_program(family: Family) -> Path:
    """Return a program. The first build takes minutes."""
    return obtain(family) / family.name
