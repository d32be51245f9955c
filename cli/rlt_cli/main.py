"""The command `rlt`. Commands are imported by name when they are asked for: help and offline commands stay fast."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

import click

COMMANDS = {
    "init": ("init", "Write a first job to start from."),
    "validate": ("validate", "Say what is wrong with manifests, without a cluster."),
    "render": ("render", "Show everything that a job becomes, without a cluster."),
    "explain": ("explain", "Say what a field means."),
    "run": ("run", "Run a job in this machine's processes, without Kubernetes."),
    "submit": ("submit", "Hand jobs to the cluster."),
    "get": ("get", "List jobs."),
    "status": ("status", "Everything about one job, on a page."),
    "watch": ("watch", "Follow a job to its end."),
    "wait": ("wait", "Wait for a job to be done, for scripts."),
    "logs": ("logs", "Show what a job's program or pods say."),
    "metrics": ("metrics", "Show the numbers of each step."),
    "rollouts": ("rollouts", "Show prompts, responses and their scores."),
    "suspend": ("suspend", "Release a job's cluster for a while."),
    "resume": ("resume", "Continue a suspended job from its latest checkpoint."),
    "cancel": ("cancel", "Stop a job and release its cluster, and keep the job."),
    "delete": ("delete", "Delete jobs and their clusters. What lies in the volume stays."),
    "version": ("version", "Show versions."),
    "completion": ("completion", "Write the shell's completion script."),
}
"""Name -> module in rlt_cli.commands and the help in one line, in the order of `rlt --help`."""


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"rlt_cli.commands.{COMMANDS[cmd_name][0]}").command
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            ctx.exit(INTERRUPTED)


INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells have it."""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.pass_context
def cli(ctx: click.Context) -> None:
    """RL post-training of language models on Kubernetes.

    Data goes to standard output, talk to standard error. Exit codes: 0 done, 1 not done or not in order, 2 a wrong
    command line (`wait`: or out of time).
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def program() -> str:
    """What the user types: `rlt`, or `kubectl rlt` where kubectl started it as a plugin."""
    return "kubectl rlt" if Path(sys.argv[0]).name == "kubectl-rlt" else "rlt"


def main() -> None:
    """The entry point."""
    cli(prog_name=program())


if __name__ == "__main__":
    main()
