"""docs/reference/network-profiles.md, generated from the profiles: what each sets, why, and the source."""

from __future__ import annotations

from rlt_core.fabric.profiles import Profile, Variable, load_profiles

HEADER = """# Network profiles
<!-- Generated from core/rlt_core/fabric/profiles by `make generate`. Do not edit. -->

The settings of each fabric, with reasons and sources. [Networking](../networking.md) describes how rlt chooses a
profile. A profile is one file in `core/rlt_core/fabric/profiles`. *Second-hand* marks a value that was not checked at
its source.

"""


def build_profiles_page() -> str:
    """Build the page: an overview, then a section for each profile with its variables, rules and sources."""
    lines = ["| Profile | Title | Fabric | Chosen for | Attach (default first) |", "|---|---|---|---|---|"]
    for profile in load_profiles().values():
        conditions = "; ".join(f"{key} {' or '.join(globs)}" for key, globs in profile.match) or "nodes that disagree"
        modes = ", ".join(profile.attach.modes)
        name = f"[{profile.name}](#{profile.name})"
        lines.append(f"| {name} | {profile.title} | {profile.fabric} | {conditions} | {modes} |")
    for profile in load_profiles().values():
        lines += ["", f"## {profile.name}", *_build_section(profile)]
    return HEADER + "\n".join(lines) + "\n"


def _build_section(profile: Profile) -> list[str]:
    lines = [f"{profile.title}.{f' {profile.notes}' if profile.notes else ''}", ""]
    if profile.env:
        lines += ["| Variable | Value | Reason | Source |", "|---|---|---|---|"]
        lines += [_build_row(variable) for variable in profile.env]
        lines.append("")
    for shape, variables in profile.shapes:
        values = ", ".join(f"`{each.name}={each.value}`" for each in variables)
        lines.append(f"- `{shape}`: {values} ({variables[0].source})")
    if profile.script:
        lines.append(f"- Script that bash reads first in the container (`BASH_ENV`): `{profile.script}`")
    for host, path in profile.mounts:
        lines.append(f"- Mounted from the host: `{host}` at `{path}`")
    for name, count in profile.attach.resources:
        lines.append(f"- Resource `{name}`: {count if count != 'all' else 'the amount in allocatable'}")
    if profile.capabilities:
        lines.append(f"- Capabilities: {', '.join(profile.capabilities)}")
    if profile.groups:
        lines.append(f"- Supplementary groups: {', '.join(profile.groups)}")
    if profile.attach.compute_domain:
        lines.append("- Workers claim a channel of a ComputeDomain by DRA")
    lines += [f"- Warning: {warning}" for warning in profile.warnings]
    sources = dict.fromkeys((*profile.sources, profile.attach.source))
    lines.append(f"- Sources: {', '.join(sources)}")
    return lines


def _build_row(variable: Variable) -> str:
    when = f" (with {variable.when})" if variable.when else ""
    unverified = "" if variable.verified else " *second-hand*"
    return f"| `{variable.name}` | `{variable.value}`{when} | {variable.rule} | {variable.source}{unverified} |"
