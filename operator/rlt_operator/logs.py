"""Logs: one JSON object per line on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from rlt_api.findings.masking import mask_text

FIELDS = ("job", "reason", "namespaces", "inCluster", "identity")
"""Fields of a record besides its message."""


def configure() -> None:
    """Log at level info, and of kopf, asyncio and aiohttp only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("kopf", "asyncio", "aiohttp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns that kopf does not handle the signals, which `main` does.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


class JsonLines(logging.Formatter):
    """Time, level, message and the FIELDS of the record, with secrets masked."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": mask_text(record.getMessage()),
            **{name: getattr(record, name) for name in FIELDS if hasattr(record, name)},
        }
        if record.exc_info:
            line["error"] = mask_text(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)
