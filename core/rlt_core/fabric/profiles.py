"""Profiles of fabrics, from profiles/*.toml, and the choice of one for the facts of a node."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from rlt_api.findings.finding import Finding, remove, use
from rlt_api.findings.spelling import find_nearest_word
from rlt_core.fabric.facts import Facts

ASSUMED_VERSIONS = {"vllm": "0.32.0", "nccl": "2.29.7", "aws-ofi-nccl": "1.16.3"}
"""Versions assumed if cluster.env sets none: those in the images of rlt, and in the test image of AWS (EFA plugin)."""

VERSION_VARIABLES = {"VLLM_VERSION": "vllm", "NCCL_VERSION": "nccl", "AWS_OFI_NCCL_VERSION": "aws-ofi-nccl"}
"""Variables in cluster.env with the versions in the image. The images of the vendors set them too."""


RDMA_FABRICS = frozenset({"infiniband", "roce", "efa", "gib"})
"""Fabrics with RDMA. TCPX and TCPXO are TCP with GPUDirect."""


@dataclass(frozen=True)
class Variable:
    """One environment variable of a profile."""

    name: str
    value: str
    rule: str
    """Why it is set."""
    source: str
    """URL of the reason."""
    when: str = ""
    """A version range that limits the variable, such as aws-ofi-nccl<1.7. Empty: all versions."""
    verified: bool = True
    """Whether the source was checked. Otherwise the value is second-hand."""

    def applies(self, versions: Mapping[str, str]) -> bool:
        """Whether the variable applies to these versions."""
        if not self.when:
            return True
        match = re.fullmatch(r"([a-z-]+)(<|>=)([0-9.]+)", self.when)
        assert match, self.when
        older = _parse_version(versions.get(match[1], ASSUMED_VERSIONS[match[1]])) < _parse_version(match[3])
        return older if match[2] == "<" else not older


@dataclass(frozen=True)
class AttachmentOptions:
    """How pods can attach to the fabric. A job uses one mode."""

    modes: tuple[str, ...]
    """Supported modes, the default first."""
    resources: tuple[tuple[str, str | int], ...]
    """Globs of resource names with an amount: a number, or "all" for that in allocatable. The first match counts."""
    needs_resources: bool = False
    """Whether pods need one of the resources for access. Not with dra."""
    compute_domain: bool = False
    """Whether pods claim a channel of a ComputeDomain by DRA (MNNVL)."""
    host_interface: str = ""
    """The host interface for control traffic. Empty if unknown."""
    source: str = ""


@dataclass(frozen=True)
class Profile:
    """The settings of one fabric."""

    name: str
    title: str
    fabric: str
    match: tuple[tuple[str, tuple[str, ...]], ...]
    """Facts, each with globs of which one must match. Empty: chosen by name only."""
    env: tuple[Variable, ...]
    shapes: tuple[tuple[str, tuple[Variable, ...]], ...]
    """Additional variables for instance types, by glob."""
    attach: AttachmentOptions
    capabilities: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Names of supplementary groups that may open the devices."""
    hcas: tuple[str, ...] = ()
    """Prefixes of the RDMA devices' names. Empty if unknown."""
    script: str = ""
    """A file of the host that sets the variables. The container sources it first (BASH_ENV)."""
    mounts: tuple[tuple[str, str], ...] = ()
    """Host paths and their mount paths."""
    network: str = ""
    """How additional networks are added: gke-interfaces or multus."""
    warnings: tuple[str, ...] = ()
    notes: str = ""
    """What the profile leaves out and why, for the reference page."""
    sources: tuple[str, ...] = ()

    def variables(self, facts: Facts, versions: Mapping[str, str]) -> tuple[Variable, ...]:
        """The variables for these facts, ordered by name. A shape's variables override the profile's."""
        shape = next((v for glob, v in self.shapes if fnmatchcase(facts.instance_type or "", glob)), ())
        chosen = {each.name: each for each in (*self.env, *shape) if each.applies(versions)}
        return tuple(chosen[name] for name in sorted(chosen))

    def matches(self, values: Mapping[str, str]) -> bool:
        """Whether the values of the facts (`_get_match_values`) satisfy every condition of `match`."""
        return bool(self.match) and all(
            any(fnmatchcase(values[key], glob) for glob in globs) for key, globs in self.match
        )


def choose_profile(facts: Facts) -> Profile:
    """Choose the matching profile with the most conditions. At least one matches all facts (tcp, cpu-only).

    Contradictory facts get the generic profile of the vendor.
    """
    if facts.contradictions:
        return get_generic_profile(facts.vendor)
    return _choose_best(_get_match_values(facts))


@cache
def _choose_best(values: tuple[tuple[str, str], ...]) -> Profile:
    matching = [profile for profile in load_profiles().values() if profile.matches(dict(values))]
    assert matching, values
    most = max(len(profile.match) for profile in matching)
    (best,) = [profile for profile in matching if len(profile.match) == most]
    return best


def get_generic_profile(vendor: str) -> Profile:
    """The profile that works on all nodes of a vendor."""
    return load_profiles()["generic-amd" if vendor == "amd" else "generic"]


def validate_profile_name(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Validate network.profile of a job's spec, as JSON."""
    match spec:
        case {"network": {"profile": str(name)}} if name not in load_profiles():
            field = "spec.network.profile"
            meant = find_nearest_word(name, load_profiles(), max_distance=3)
            fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(load_profiles())}, or none"
            edits = use(field, meant) if meant else remove(field)
            yield Finding(field, name, "is not a network profile", fix, rule="network-profile", edits=edits)


@cache
def load_profiles() -> Mapping[str, Profile]:
    """Load all profiles, by name and ordered by name."""
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
    rule = f"{shape['rule']} for {shape['type']}"
    source = shape["source"]
    return tuple(Variable(name, value, rule, source) for name, value in shape["env"].items())


def _get_match_values(facts: Facts) -> tuple[tuple[str, str], ...]:
    """The values that the match conditions of the profile files refer to."""
    return (
        ("vendor", facts.vendor),
        ("cloud", facts.cloud),
        ("fabric", facts.fabric),
        ("mnnvl", "yes" if facts.mnnvl else "no"),
        ("nic", facts.nic or ""),
    )


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
