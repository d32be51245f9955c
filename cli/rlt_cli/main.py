"""The command `rlt`. It imports a command's module only to run or describe that command, so that it starts fast."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module

import click

from rlt.errors import RltError
from rlt.program import program_name
from rlt_api.findings.spelling import find_nearest_word
from rlt_cli.failure import Failure

COMMANDS = {
    "init": "Write an example manifest to standard output",
    "convert": "Convert a script, config or manifest of another program to a job",
    "validate": "Validate manifests, without a cluster",
    "render": "Show the manifests that the operator creates for a job, without a cluster",
    "explain": "Describe a field of the API",
    "diagnose": "Find failures in logs, without a cluster",
    "doctor": "Show what the cluster has and lacks for RL post-training",
    "run": "Run a job on this machine, without Kubernetes",
    "preflight": "Run the preflight checks of a job without its training",
    "diff": "Show what `rlt submit` would change in the cluster",
    "submit": "Submit jobs and runtimes to the cluster",
    "get": "List jobs, or show one job",
    "status": "Show everything about a job on one page",
    "watch": "Follow a job until it ends",
    "wait": "Wait until a condition of a job is True, or until the job is deleted",
    "logs": "Show the log of a job or of one of its pods",
    "events": "Show the events of a job, its Ray cluster and its pods",
    "ui": "Show runs on a page in the browser: metrics, evaluations, rollouts, times, state and accelerator hours",
    "dashboard": "Open the Ray dashboard of a job on this machine",
    "exec": "Run a command in a pod of a job",
    "debug": "Attach a debugger to a breakpoint of a job",
    "top": "Show CPU, memory and GPU usage of a job's pods",
    "usage": "Show the accelerator hours of jobs, also of deleted ones, and what the accelerators did",
    "bundle": "Write everything about a job to an archive, for a bug report",
    "metrics": "Show the metrics of a job or a run directory by step",
    "rollouts": "Show prompts, responses and rewards of one step",
    "compare": "Compare the configuration and the metrics of runs",
    "report": "Write everything about a run to one HTML file",
    "eval": "Evaluate checkpoints of a job on its suites, without training",
    "export": "Export a checkpoint of a job as a model in Hugging Face format",
    "serve": "Print the manifests of a vLLM server for the model of a job",
    "suspend": "Release the cluster of a job and keep its checkpoints",
    "resume": "Resume a suspended job from its latest checkpoint",
    "scale": "Change the number of pods that only generate, while the job runs",
    "cancel": "Stop a job permanently and keep the job object",
    "delete": "Delete jobs and their clusters",
    "version": "Show the versions of the CLI and of the API",
    "help": "Describe a command, or list the commands",
    "completion": "Write a shell completion script to standard output",
}
"""Module in rlt_cli.commands -> first sentence of its command's help, in the order of `rlt --help`."""

ALIASES = {"apply": "submit", "create": "submit", "describe": "status", "list": "get", "ls": "get"}
"""Names of kubectl and similar programs -> the command."""
MEANINGS = {
    "abort": "cancel",
    "attach": "logs --follow",
    "bill": "usage",
    "check": "validate",
    "cost": "usage",
    "cp": "export",
    "deploy": "serve",
    "edit": "submit",
    "evaluate": "eval",
    "history": "metrics",
    "info": "status",
    "jobs": "get",
    "kill": "cancel",
    "lint": "validate",
    "patch": "submit",
    "pause": "suspend",
    "port-forward": "dashboard",
    "ps": "get",
    "queue": "get",
    "remove": "delete",
    "replace": "submit",
    "rm": "delete",
    "shell": "exec",
    "show": "status",
    "ssh": "exec",
    "start": "submit",
    "stop": "cancel",
    "tail": "logs --follow",
    "terminate": "cancel",
    "unpause": "resume",
}
"""Name that users try -> the command that they mean. Those with an effect are suggestions, not aliases."""
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as in shells."""


class LazyGroup(click.Group):
    """A group that imports a command by its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"rlt_cli.commands.{cmd_name}").command
        command.name = cmd_name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            meant = MEANINGS.get(args[0]) or find_nearest_word(args[0], [*COMMANDS, *ALIASES], max_distance=2)
            hint = f"Did you mean {meant}?" if meant else f"Try {program_name()} --help."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        if sys.stdout is None:  # closed, such as by >&-
            click.echo("error: standard output is closed.", err=True)
            ctx.exit(1)
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except RltError as error:
            raise Failure(error.message, next=error.next) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            click.echo(f"error: the output could not be written: {error.strerror}.", err=True)
            # The interpreter would try to write the rest at exit.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            ctx.exit(1)


def _print_version(ctx: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if given:
        import importlib.metadata  # slow, and only this option needs it

        click.echo(f"{program_name()} {importlib.metadata.version('rlt')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """RL post-training of language models on Kubernetes.

    Data goes to standard output, messages to standard error. Exit codes: 0 success, 1 failure or invalid input,
    2 usage error (`wait`: timeout).
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        ctx.color = False


def main() -> None:
    """The entry point."""
    cli(prog_name=program_name())


if __name__ == "__main__":
    main()
