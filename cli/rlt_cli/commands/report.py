"""rlt report: write everything about a run to one HTML file."""

from __future__ import annotations

import importlib.metadata
from datetime import UTC, datetime
from pathlib import Path

import click

from rlt.kube_context import KubeContext
from rlt.report.markdown import build_summary
from rlt.report.summary import Origin
from rlt_cli.failure import Failure
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import emit_result, output_option
from rlt_cli.run_arguments import load_runs
from rlt_pod.download.bucket import SCHEME
from rlt_ui.report import build_report


@click.command()
@click.argument("run")
@click.option("--markdown", is_flag=True, help="Print a summary as Markdown, for a pull request, and write no file.")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="HTML file to write.  [default: NAME-report.html, or DIRECTORY-report.html]",
)
@kube_context_options
@output_option()
def command(run: str, markdown: bool, file: Path | None, kube_context: KubeContext, output: str) -> None:
    """Write everything about a run to one HTML file.

    RUN is a run directory, a run in a bucket (s3://BUCKET/PREFIX) or the name of a job, as in `compare`. The file
    contains phase, findings, attempts, learning curves, the time of a step, the best and the worst rollouts, and the
    configuration. It is the run page of `ui` as a file, which loads and sends nothing. Secrets are masked as far as
    their name or shape shows them: check the rollouts before you publish the file.
    """
    (found,) = load_runs([run], kube_context)
    origin = Origin(importlib.metadata.version("rlt"), f"{datetime.now(UTC):%FT%TZ}")
    if markdown:
        summary = build_summary(found, origin)
        emit_result(summary.rstrip("\n"), {"markdown": summary}, output)
        return
    # Two runs of one job have different directories.
    name = Path(run).absolute().name if run.startswith(SCHEME) or Path(run).is_dir() else found.name
    path = file or Path(f"{name}-report.html")
    try:
        path.write_text(build_report(found, origin), encoding="utf-8")
    except OSError as error:
        raise Failure(f"Cannot write {path}: {error.strerror}.", next=f"rlt report {run} --file FILE") from error
    emit_result(str(path), {"file": str(path), "notes": list(found.notes)}, output)
