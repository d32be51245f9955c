"""The commands of a script with their variables and redirections, as the reader of the script meets them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rlt.convert.expansion import expand_document, expand_text
from rlt.convert.grammar import Node, Redirect, Simple
from rlt.convert.script_content import Command, Script, Skipped
from rlt.convert.text import SECRET, reveal, show, show_source


class Recorder:
    """The place in a script, and what was found before it."""

    def __init__(self, script: Script, text: str) -> None:
        self.script = script
        self.scope = script.scope
        self.text = text
        self.loop: tuple[str, str, int] | None = None
        self.background = False
        self.output = ""
        """The redirections of the groups around a command."""

    def get_source(self, node: Node) -> str:
        return show_source(self.text[node.start : node.end])

    def note(self, what: str, why: str, line: int) -> None:
        self.script.notes.append((show(what), why, line))

    def skip(self, node: Node, text: str, why: str, line: int) -> None:
        self.script.skipped.append(Skipped(node, line, text, why))
        self.note(text, why, line)

    def record(
        self, node: Simple, words: list[str], environment: dict[str, str], piped: bool, document: str | None
    ) -> None:
        redirects = " ".join(filter(None, (self.show_redirects(node.redirects), self.output)))
        if document is not None and words[0] in ("cat", "tee"):
            for each in node.redirects:
                if each.operator.text in (">", ">>", ">|") and each.target is not None:
                    self.script.files[reveal(expand_text(each.target.text, node.line, self.scope))] = document
            for path in words[1:] if words[0] == "tee" else ():
                self.script.files[reveal(path)] = document
        shown = [f"{name}={show(value)}" for name, value in environment.items() if not SECRET.search(name)]
        shown += [name for name in environment if SECRET.search(name)]
        shown += [show(each) or "''" for each in words]
        shown += [redirects, show(document or ""), "&" if self.background else ""]
        self.script.commands.append(
            Command(
                tuple(words), node.line, environment, " ".join(filter(None, shown)), self.get_exported(),
                dict(self.script.exported), self.scope.directory, document, redirects, self.background, piped,
                self.loop,
            )
        )  # fmt: skip

    def get_exported(self) -> dict[str, str]:
        """The exported variables, with empty values for secrets."""
        found = {}
        for name in self.script.exported:
            value = self.scope.get(name)
            if value is not None:
                found[name] = value
            elif name in self.scope.unknown:
                found[name] = f"${name}"
            elif SECRET.search(name):
                found[name] = ""
        return found

    def show_redirects(self, redirects: Collection[Redirect]) -> str:
        shown = []
        for each in redirects:
            target = show(expand_text(each.target.text, each.operator.line, self.scope)) if each.target else ""
            shown.append(f"{each.descriptor}{each.operator.text}{target}")
        return " ".join(shown)

    def get_document(self, redirects: Collection[Redirect]) -> str | None:
        for each in redirects:
            if each.operator.document is not None:
                content = each.operator.document
                return (
                    content
                    if each.operator.literal
                    else reveal(expand_document(content, each.operator.line, self.scope))
                )
            if each.operator.text == "<<<" and each.target is not None:
                return reveal(expand_text(each.target.text, each.operator.line, self.scope))
        return None

    def get_values(self) -> dict[str, str]:
        return dict(self.scope.variables)

    def adopt(self, inner: Script, redirects: str) -> None:
        """Take over the commands of an inner script, which runs in the same shell."""
        for command in inner.commands:
            self.script.commands.append(
                replace(
                    command,
                    exported={**self.get_exported(), **command.exported},
                    background=command.background or self.background,
                    redirects=" ".join(filter(None, (command.redirects, redirects))),
                    loop=command.loop or self.loop,
                )
            )
        self.scope.variables.update(inner.scope.variables)
        self.script.notes += inner.notes
