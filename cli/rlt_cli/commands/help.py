"""rlt help: describe a command."""

from __future__ import annotations

import click


@click.command()
@click.argument("name", required=False, metavar="[COMMAND]")
@click.pass_context
def command(context: click.Context, name: str | None) -> None:
    """Describe a command, or list the commands."""
    assert context.parent
    group = context.parent.command
    assert isinstance(group, click.Group)
    if name is None:
        click.echo(group.get_help(context.parent))
        return
    found, described, _ = group.resolve_command(context.parent, [name])
    assert described
    click.echo(described.get_help(click.Context(described, info_name=found, parent=context.parent)))
