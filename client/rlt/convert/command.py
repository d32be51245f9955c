"""The words of a program as a job's command: as they are, or through bash where the pods' shell must expand them."""

from __future__ import annotations

import re
import shlex

from rlt.convert.draft import Draft
from rlt.convert.text import END, EXPANSION, QUOTED, SECRET, UNQUOTED, is_known, mark_plain, reveal

PLAIN = re.compile(r"(\$\{[^}$]*\}|\$\([^)$]*\)|`[^`]*`|\$\w+)")


def build_command(
    draft: Draft,
    words: tuple[str, ...],
    line: int | None = None,
    directory: str = "",
    sources: dict[str, str] | None = None,
) -> list[str]:
    """The command; through bash if its arguments have variables that the script does not set. `directory`: where it
    runs. `sources`: name of a variable -> what sets it in the script."""
    if all(map(is_known, words)) and not directory:
        return [reveal(word) for word in words]
    for name in sorted({name for word in words for name in list_names(word)}):
        source = (sources or {}).get(name)
        why = f"it is not in the script ({source})" if source else "it is not in the script"
        secret = "with a secretKeyRef in spec.cluster.env" if SECRET.search(name) else "in spec.cluster.env"
        draft.leave_out(f"value of {name}", f"{why}: set it {secret}, or in the command", line)
    if any(not is_known(word) and not list_names(word) for word in words):
        draft.leave_out("value of a command substitution", "bash computes it in the pod", line)
    text = " ".join(map(_quote, words))
    return ["bash", "-c", f"cd {shlex.quote(directory)} && {text}" if directory else text]


def _quote(word: str) -> str:
    """A word for bash: its expansions as they are, in double quotes if the script has them there."""
    if is_known(word):
        return shlex.quote(reveal(word))
    if not set(word) & {UNQUOTED, QUOTED}:
        word = PLAIN.sub(lambda match: f"{QUOTED}{match[0]}{END}", word)
    if UNQUOTED not in word:
        return f'"{"".join(_escape(part) for part in _split(word))}"'
    return "".join(_quote_part(part) for part in _split(word))


def _split(word: str) -> list[str]:
    return [part for part in re.split(f"([{UNQUOTED}{QUOTED}][^{UNQUOTED}{QUOTED}{END}]*{END})", word) if part]


def _escape(part: str) -> str:
    match = EXPANSION.fullmatch(part)
    return match[2] if match else re.sub(r'([\\"$`])', r"\\\1", reveal(part))


def _quote_part(part: str) -> str:
    match = EXPANSION.fullmatch(part)
    if match is None:
        return shlex.quote(reveal(part))
    return match[2] if match[1] == UNQUOTED else f'"{match[2]}"'


def list_names(word: str) -> list[str]:
    """The names of the variables in the expansions of a word."""
    names = [name for _, text in EXPANSION.findall(word) for name in re.findall(r"\$\{?[#!]?([A-Za-z_]\w*)", text)]
    plain = EXPANSION.sub("", word)
    return [*names, *re.findall(r"\$\{?([A-Za-z_]\w*)", mark_plain(plain))]
