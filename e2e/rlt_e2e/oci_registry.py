"""Serve an image registry with crane, which keeps it until the process ends, for the tests of releases."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread


@contextmanager
def oci_registry(crane: Path, folder: Path, *, port: int = 0, inside: Sequence[str] = ()) -> Iterator[str]:
    """Serve an empty registry on all addresses, with its blobs and log in `folder`. Yields its address on loopback.

    With port 0, the system chooses one. `inside` is a command line that runs another command in the network of a node.
    """
    folder.mkdir()
    command = [*inside, str(crane), "registry", "serve", "--address", f"0.0.0.0:{port}", "--disk", str(folder)]
    with (
        (folder / "registry.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        assert process.stdout
        try:
            address = f"127.0.0.1:{await_port(process.stdout)}"
            copy = Thread(target=shutil.copyfileobj, args=(process.stdout, log), daemon=True)
            copy.start()
            yield address
        finally:
            process.terminate()
            process.wait(timeout=30)
        copy.join()


def await_port(output: Iterable[str]) -> int:
    """Return the port that a registry prints once it listens. Raises ChildProcessError if it ends before."""
    printed: list[str] = []
    for line in output:
        printed.append(line)
        if found := re.search(r"serving on port (\d+)", line):
            return int(found[1])
    raise ChildProcessError(f"the registry has ended: {''.join(printed)}")
