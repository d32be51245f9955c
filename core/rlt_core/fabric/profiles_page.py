"""The table of profiles in docs/networking.md, generated: what each sets, why, and where that is written."""

from __future__ import annotations

from rlt_core.fabric.profiles import Profile, Variable, load_profiles

BEGIN, END = "<!-- profiles: begin -->\n", "<!-- profiles: end -->\n"


def with_profiles(page: str) -> str:
    """The page with the table of the profiles that there are between its two marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{build_profiles_table()}{END}{rest.partition(END)[2]}"


def build_profiles_table() -> str:
    """Markdown: one overview, then a section for each profile with its variables, rules and sources."""
    lines = ["| Profile | What | Fabric | Chosen for | AttachmentOptions (default first) |", "|---|---|---|---|---|"]
    for profile in load_profiles().values():
        conditions = "; ".join(f"{key} {' or '.join(globs)}" for key, globs in profile.match) or "nodes that disagree"
        modes = ", ".join(profile.attach.modes)
        name = f"[{profile.name}](#{profile.name})"
        lines.append(f"| {name} | {profile.title} | {profile.fabric} | {conditions} | {modes} |")
    for profile in load_profiles().values():
        lines += ["", f"### {profile.name}", *_section(profile)]
    return "\n".join(lines) + "\n"


def _section(profile: Profile) -> list[str]:
    lines = [f"{profile.title}.{f' {profile.notes}' if profile.notes else ''}", ""]
    if profile.env:
        lines += ["| Variable | Value | Why | Source |", "|---|---|---|---|"]
        lines += [_row(variable) for variable in profile.env]
        lines.append("")
    for shape, variables in profile.shapes:
        values = ", ".join(f"`{each.name}={each.value}`" for each in variables)
        lines.append(f"- `{shape}`: {values} ({variables[0].source})")
    if profile.script:
        lines.append(f"- Read by bash before anything else in the container (`BASH_ENV`): `{profile.script}`")
    for host, path in profile.mounts:
        lines.append(f"- Mounted from the host: `{host}` at `{path}`")
    for name, count in profile.attach.resources:
        lines.append(f"- Resource `{name}`: {count if count != 'all' else 'all that the node offers'}")
    if profile.capabilities:
        lines.append(f"- Capabilities: {', '.join(profile.capabilities)}")
    if profile.groups:
        lines.append(f"- Supplementary groups: {', '.join(profile.groups)}")
    if profile.attach.compute_domain:
        lines.append("- A ComputeDomain's channel is claimed by DRA")
    lines += [f"- Warns: {warning}" for warning in profile.warnings]
    sources = dict.fromkeys((*profile.sources, profile.attach.source))
    lines.append(f"- Sources: {', '.join(sources)}")
    return lines


def _row(variable: Variable) -> str:
    when = f" (with {variable.when})" if variable.when else ""
    unverified = "" if variable.verified else " *second hand*"
    return f"| `{variable.name}` | `{variable.value}`{when} | {variable.rule} | {variable.source}{unverified} |"
