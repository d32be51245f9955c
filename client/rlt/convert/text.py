"""Expanded words of a shell: characters for a literal $, and around expansions whose value the script does not have."""

from __future__ import annotations

import re

LITERAL = "\ue000"
"""A $ without expansion, a character that scripts do not have (private use)."""
BACKTICK = "\ue003"
"""A literal backtick."""
UNQUOTED = "\ue001"
"""Before an expansion that the job's shell splits into words."""
QUOTED = "\ue004"
"""Before an expansion in double quotes, which stays one word."""
END = "\ue002"
"""After an expansion."""
EXPANSION = re.compile(f"([{UNQUOTED}{QUOTED}])([^{UNQUOTED}{QUOTED}{END}]*){END}")
SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
"""Names of variables whose values do not go into a file."""
SECRET_VALUE = re.compile(r"\b(hf_[A-Za-z0-9]{16,}|[0-9a-f]{40}|sk-[A-Za-z0-9-]{16,}|gh[pousr]_[A-Za-z0-9]{20,})\b")


def reveal(text: str) -> str:
    """The text as the shell gets it: with its expansions and its literal $."""
    return mark_plain(text).replace(LITERAL, "$").replace(BACKTICK, "`")


def mark_plain(text: str) -> str:
    """The text without the marks of expansions. A literal $ keeps its mark."""
    return re.sub(f"[{UNQUOTED}{QUOTED}{END}]", "", text)


def show(text: str) -> str:
    """The text for a comment: on one line, without values that look like secrets."""
    return SECRET_VALUE.sub("…", " ".join(reveal(text).split()))


def keep(text: str, quoted: bool) -> str:
    """An expansion that stays in the word."""
    return f"{QUOTED if quoted else UNQUOTED}{text}{END}"


def requote(text: str, quoted: bool) -> str:
    """The text with its expansions in double quotes, or not."""
    return EXPANSION.sub(lambda match: keep(match[2], quoted), text)


def protect(text: str) -> str:
    """A text without expansions."""
    return text.replace("$", LITERAL).replace("`", BACKTICK)


def is_known(text: str) -> bool:
    """Whether the text has no expansion."""
    return not (set(text) & {UNQUOTED, QUOTED, "$", "`"})


def split_fields(text: str) -> list[str]:
    """Split at spaces outside of expansions (POSIX XCU 2.6.5)."""
    parts = re.findall(f"(?:[{UNQUOTED}{QUOTED}][^{UNQUOTED}{QUOTED}{END}]*{END}|[^\\s{UNQUOTED}{QUOTED}])+", text)
    return parts


def show_source(text: str) -> str:
    """A part of a script on one line."""
    lines = [line.strip() for line in text.replace("\\\n", " ").split("\n")]
    shown = ""
    for line in filter(None, (re.sub(r"(^|\s)#\s.*", "", line) for line in lines)):
        joined = not shown or re.search(r"(\b(then|do|else|in)|[{(;|&])$", shown) is not None
        shown += f"{'' if not shown else ' ' if joined else '; '}{line.strip()}"
    return show(shown)
