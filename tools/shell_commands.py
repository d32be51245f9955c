"""Checks the commands in a page's code blocks: shell syntax, programs, targets of make, commands and options of rlt."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

import click

from markdown_page import CodeBlock
from rlt_cli.main import cli

ROOT = Path(__file__).parent.parent
PROGRAMS = {
    *("cat", "cd", "curl", "echo", "export", "git", "go", "grep", "head", "jq", "ls", "printf", "sed", "sort"),
    *("bash", "sh", "buildah", "cmctl", "docker", "dstack", "helm", "kind", "kubectl", "make", "openssl"),
    *("aws", "cosign", "hf", "inspect", "lm-eval", "sbatch", "scancel", "sha256sum", "tail", "tar"),
    *("claude", "codex", "mini", "opencode", "smolagent", "ulimit"),
    *("pip", "pytest", "python", "python3", "rlt", "rlt-operator", "rlt-trainer", "torchrun"),
}
"""Programs that the pages use; a reader installs them or has them."""
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def check_commands(text: str, first_line: int, check_path: Callable[[str], str | None]) -> Iterator[tuple[int, str]]:
    """Yield line and message of each problem in a shell script."""
    parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    if parsed.returncode:
        yield first_line, f"shell: {parsed.stderr.strip()}"
        return
    for line, words in simple_commands(text, first_line):
        yield from ((line, problem) for problem in check_command(words))
        for word in words:
            if problem := check_path(word.rpartition("=")[2]):
                yield line, problem


def prompted_commands(block: CodeBlock) -> Iterator[tuple[int, str]]:
    """Yield the commands after a prompt `$ ` in a transcript, with their lines."""
    lines = block.text.splitlines()
    for index, line in enumerate(lines):
        if line.startswith("$ "):
            end = index
            while lines[end].endswith("\\"):
                end += 1
            yield block.line + index, "\n".join([line[2:], *lines[index + 1 : end + 1]])


def simple_commands(text: str, first_line: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the words of each simple command: pipelines and lists are split."""
    pending = ""
    start = first_line
    for number, line in enumerate(text.splitlines(), first_line):
        pending, start = (pending + line, start) if pending else (line, number)
        try:
            lexer = shlex.shlex(pending.removesuffix("\\"), posix=True, punctuation_chars=";|&")
            lexer.whitespace_split = True
            tokens = list(lexer)
        except ValueError:  # a quotation ends on a later line
            pending += "\n"
            continue
        if pending.endswith(("\\", "|")):
            pending = pending.removesuffix("\\")
            continue
        pending = ""
        command: list[str] = []
        for token in [*tokens, ";"]:
            if token and set(token) <= set(";|&"):
                if command:
                    yield start, command
                command = []
            else:
                command.append(token)


def check_command(words: list[str]) -> Iterator[str]:
    """Yield what is wrong with one simple command."""
    while words and ASSIGNMENT.match(words[0]):
        words = words[1:]
    if not words:
        return
    program = words[0].removeprefix(".venv/bin/")
    arguments = words[1:]
    if program == "kubectl" and arguments[:1] == ["rlt"]:
        program = "rlt"
        arguments = arguments[1:]
    if program not in PROGRAMS and program == words[0]:
        yield f"{program}: is not a known program; add it to PROGRAMS in tools/shell_commands.py"
    elif program == "make":
        for target in arguments:
            if not ASSIGNMENT.match(target) and target not in TARGETS:
                yield f"make {target}: the Makefile has no such target"
    elif program == "rlt":
        yield from check_rlt(arguments)


def check_rlt(arguments: list[str]) -> Iterator[str]:
    """Yield what is wrong with the arguments of rlt."""
    if not arguments or arguments[0].startswith("-"):
        return
    command = cli.get_command(click.Context(cli), arguments[0])
    if command is None:
        yield f"rlt {arguments[0]}: is not a command"
        return
    if isinstance(command, click.Group):
        return
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in takewhile(lambda word: word != "--", arguments[1:]):
        option = word.partition("=")[0]
        if re.fullmatch(r"--?[a-z-]+", option) and option not in known | {"-h", "--help"}:
            yield f"rlt {arguments[0]}: has no option {option}"
