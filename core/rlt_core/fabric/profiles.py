"""Profiles: what each fabric wants, as data in profiles/*.toml, and which of them fits a node's facts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from rlt_core.fabric.facts import Facts

CURRENT = {"vllm": "0.32.0", "nccl": "2.29.7", "aws-ofi-nccl": "1.16.3"}
"""Versions that are assumed where nobody gives one: those of rlt's own images, and of AWS' own test image."""

VERSION_VARIABLES = {"VLLM_VERSION": "vllm", "NCCL_VERSION": "nccl", "AWS_OFI_NCCL_VERSION": "aws-ofi-nccl"}
"""Variables in cluster.env that tell the versions in the image, as vendors' own images do."""


@dataclass(frozen=True)
class Variable:
    """One environment variable of a profile."""

    name: str
    value: str
    rule: str
    """Why it is set."""
    source: str
    """Where that is written."""
    when: str = ""
    """For some versions only, such as aws-ofi-nccl<1.7."""
    verified: bool = True
    """Whether the source itself was read; else it is second hand."""

    def applies(self, versions: Mapping[str, str]) -> bool:
        """Whether these versions want it."""
        if not self.when:
            return True
        match = re.fullmatch(r"([a-z-]+)(<|>=)([0-9.]+)", self.when)
        assert match, self.when
        older = _parse_version(versions.get(match[1], CURRENT[match[1]])) < _parse_version(match[3])
        return older if match[2] == "<" else not older


@dataclass(frozen=True)
class AttachmentOptions:
    """How pods get at the fabric: one mode, never a mix."""

    modes: tuple[str, ...]
    """Modes that work, the default first."""
    resources: tuple[tuple[str, str | int], ...]
    """Globs over resource names with a count: a number, or "all" that the node offers. The first that fits counts."""
    needs_resources: bool = False
    """Whether pods have no access without one of them, except with dra."""
    compute_domain: bool = False
    """Whether a ComputeDomain's channel is claimed by DRA (MNNVL)."""
    host_interface: str = ""
    """The interface of the control traffic on the host network, where it is known."""
    source: str = ""


@dataclass(frozen=True)
class Profile:
    """What one fabric wants."""

    name: str
    title: str
    fabric: str
    match: tuple[tuple[str, tuple[str, ...]], ...]
    """Facts with the globs one of which each must fit. Empty: chosen by name only."""
    env: tuple[Variable, ...]
    shapes: tuple[tuple[str, tuple[Variable, ...]], ...]
    """More variables for some instance types, by glob."""
    attach: AttachmentOptions
    capabilities: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Supplementary groups of the devices."""
    hcas: tuple[str, ...] = ()
    """Prefixes of the RDMA devices' names, where they are known."""
    script: str = ""
    """A file of the host that sets the variables, to be sourced before anything else in the container."""
    mounts: tuple[tuple[str, str], ...] = ()
    """Host paths and where they are mounted."""
    network: str = ""
    """What an additional network needs: gke-interfaces, or multus."""
    warnings: tuple[str, ...] = ()
    notes: str = ""
    """What was left out and why, for people."""
    sources: tuple[str, ...] = ()

    def variables(self, facts: Facts, versions: Mapping[str, str]) -> tuple[Variable, ...]:
        """The variables for these facts, ordered by name; a shape's own come before the profile's."""
        shape = next((v for glob, v in self.shapes if fnmatchcase(facts.instance_type or "", glob)), ())
        chosen = {each.name: each for each in (*self.env, *shape) if each.applies(versions)}
        return tuple(chosen[name] for name in sorted(chosen))

    def fits(self, said: Mapping[str, str]) -> bool:
        """Whether every condition of `match` holds of what facts say (see `_match_values`)."""
        return bool(self.match) and all(
            any(fnmatchcase(said[key], glob) for glob in globs) for key, globs in self.match
        )


def choose_profile(facts: Facts) -> Profile:
    """The profile with the most conditions of those that fit; there is one for every fact (tcp, cpu-only).

    Contradictory facts get the vendor's generic profile.
    """
    if facts.contradictions:
        return generic_profile(facts.vendor)
    return _choose_best(_match_values(facts))


@cache
def _choose_best(said: tuple[tuple[str, str], ...]) -> Profile:
    fitting = [profile for profile in load_profiles().values() if profile.fits(dict(said))]
    assert fitting, said
    most = max(len(profile.match) for profile in fitting)
    (best,) = [profile for profile in fitting if len(profile.match) == most]
    return best


def generic_profile(vendor: str) -> Profile:
    """The profile that is safe on all nodes of a vendor."""
    return load_profiles()["generic-amd" if vendor == "amd" else "generic"]


@cache
def load_profiles() -> Mapping[str, Profile]:
    """All profiles by name, in the order of their names."""
    folder = resources.files(__package__) / "profiles"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {profile.name: profile for profile in map(_parse_profile, files)}


def _parse_profile(file: Traversable) -> Profile:
    table = tomllib.loads(file.read_text())
    attach = table["attach"]
    known = {"title", "fabric", "match", "env", "shape", "attach", "capabilities", "groups", "hcas", "script", "mounts"}
    assert set(table) <= known | {"network", "warnings", "notes", "sources"}, file.name
    return Profile(
        name=file.name.removesuffix(".toml"),
        title=table["title"],
        fabric=table["fabric"],
        match=tuple((key, tuple(globs)) for key, globs in table.get("match", {}).items()),
        env=tuple(Variable(**each) for each in table.get("env", [])),
        shapes=tuple((shape["type"], _parse_shape(shape)) for shape in table.get("shape", [])),
        attach=AttachmentOptions(
            modes=tuple(attach["modes"]),
            resources=tuple(attach.get("resources", {}).items()),
            needs_resources=attach.get("needs_resources", False),
            compute_domain=attach.get("compute_domain", False),
            host_interface=attach.get("host_interface", ""),
            source=attach["source"],
        ),
        capabilities=tuple(table.get("capabilities", [])),
        groups=tuple(table.get("groups", [])),
        hcas=tuple(table.get("hcas", [])),
        script=table.get("script", ""),
        mounts=tuple(table.get("mounts", {}).items()),
        network=table.get("network", ""),
        warnings=tuple(table.get("warnings", [])),
        notes=table.get("notes", ""),
        sources=tuple(table.get("sources", [])),
    )


def _parse_shape(shape: Mapping[str, Any]) -> tuple[Variable, ...]:
    rule, source = f"{shape['rule']} for {shape['type']}", shape["source"]
    return tuple(Variable(name, value, rule, source) for name, value in shape["env"].items())


def _match_values(facts: Facts) -> tuple[tuple[str, str], ...]:
    """What profiles are chosen by, as their files write it."""
    return (
        ("vendor", facts.vendor),
        ("cloud", facts.cloud),
        ("fabric", facts.fabric),
        ("mnnvl", "yes" if facts.mnnvl else "no"),
        ("nic", facts.nic or ""),
    )


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
