"""The console line of a step. Its grammar is verl's and part of the API, because the operator's tools read it too."""

from rlt_api.step_line import parse_step_line, step_line

__all__ = ["parse_step_line", "step_line"]
