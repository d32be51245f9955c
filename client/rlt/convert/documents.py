"""The YAML documents of a source, with the line of each field. A script is not YAML with fields."""

from __future__ import annotations

import re
import tomllib

from rlt.convert.draft import ConvertError
from rlt.manifest_files import Document, parse_documents

YAML_NAMES = (".yaml", ".yml")
FIELD = re.compile(r"[A-Za-z_][\w./-]*:(\s|$)|\{")
"""The beginning of the first line with content of a text that is YAML."""


def read_yaml(text: str, file: str) -> list[Document] | None:
    """Read the documents. None for a script. Raises ConvertError, with the line, for a file that is not YAML although
    its name or its first line is."""
    documents = list(parse_documents(file, text.encode(errors="surrogatepass")))
    broken = next((each for each in documents if not each.manifest and each.findings), None)
    if broken is None:
        return documents
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "---")))
    if not (file.endswith(YAML_NAMES) or FIELD.match(next(lines, ""))):
        _reject_toml(text, file)
        return None
    finding = broken.findings[0]
    line = min(broken.line, text.rstrip().count("\n") + 1)
    raise ConvertError(f"line {line}: it {finding.message}: {finding.fix}.")


def _reject_toml(text: str, file: str) -> None:
    try:
        tables = [key for key, value in tomllib.loads(text).items() if isinstance(value, dict)]
    except tomllib.TOMLDecodeError:
        return
    if tables:
        names = ", ".join(tables[:8])
        raise ConvertError(
            f"line 1: {file} is TOML with the tables {names}, such as a config of prime-rl, and no TOML is converted: "
            "pass the command that reads it."
        )
