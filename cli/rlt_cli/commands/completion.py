"""rlt completion: completion scripts for shells and for kubectl."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from rlt_cli.output import emit_result, output_option, print_message

INSTALL = {
    "bash": "source <(rlt completion bash)",
    "zsh": "source <(rlt completion zsh)",
    "fish": "rlt completion fish | source",
    "kubectl": "rlt completion kubectl > ~/bin/kubectl_complete-rlt && chmod +x ~/bin/kubectl_complete-rlt",
}
"""The command that installs each script."""

KUBECTL = """\
#!/bin/sh
# kubectl runs the program kubectl_complete-rlt on PATH to complete `kubectl rlt`. The output is in cobra's format: one
# candidate per line, then :0 (complete files) or :4 (do not).
answers=$(COMP_WORDS="rlt $*" COMP_CWORD=$# _RLT_COMPLETE=bash_complete rlt)
printf '%s\\n' "$answers" | sed -n 's/^plain,//p'
case "$answers" in *file,*) echo :0 ;; *) echo :4 ;; esac
"""


@click.command()
@click.argument("shell", type=click.Choice(list(INSTALL)))
@output_option()
@click.pass_context
def command(context: click.Context, shell: str, output: str) -> None:
    """Write a shell completion script to standard output."""
    completion = get_completion_class(shell)
    script = completion(context.find_root().command, {}, "rlt", "_RLT_COMPLETE").source() if completion else KUBECTL
    emit_result(script.rstrip("\n"), {"shell": shell, "script": script, "use": INSTALL[shell]}, output)
    print_message(f"next: {INSTALL[shell]}")
