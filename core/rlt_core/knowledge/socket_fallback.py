"""NCCL's fall back to sockets in a log that shows that RDMA was expected. Both are lines of healthy runs."""

from __future__ import annotations

from dataclasses import dataclass

CODE = "NcclUsesSockets"
EXPECTED = (b"NCCL_IB_HCA", b"NCCL_IB_GID_INDEX", b"NCCL_NET=IB", b"NCCL_NET set by environment to IB")
DISABLED = (b"NCCL_IB_DISABLE=1", b"NCCL_IB_DISABLE set by environment to 1")
SOCKETS = (b"Using network Socket", b"NET/IB : No device found")


@dataclass
class SocketFallback:
    """Collects both signs, chunk by chunk."""

    expected: bool
    """Whether RDMA is expected: by the caller, or by a variable that the log names."""
    line: int = 0
    """Number of the first line about sockets; 0 without one."""
    raw: str = ""
    _disabled: bool = False

    def read(self, text: bytes, start: int, number: int) -> None:
        """Read the lines of a chunk from the position `start`, whose number is `number`."""
        self.expected = self.expected or any(each in text for each in EXPECTED)
        self._disabled = self._disabled or any(each in text for each in DISABLED)
        positions = [position for each in SOCKETS if (position := text.find(each, start)) >= 0]
        if positions and not self.line:
            first = text.rfind(b"\n", 0, min(positions)) + 1
            self.line = number + text.count(b"\n", start, first)
            self.raw = text[first : first + 500].partition(b"\n")[0].decode("utf-8", "replace")

    @property
    def is_found(self) -> bool:
        return bool(self.line) and self.expected and not self._disabled
