"""The memory and lengths that the arguments of OpenRLHF, slime and Miles request, compared with the accelerators.

The sums are lower bounds, so that they are certain: the engine's weights in its share, and the weights, gradients and
moments of the training, divided over all of its accelerators, without activations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rlt_api.blocks.model import Model
from rlt_api.findings.finding import Finding
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.demand import read_number
from rlt_api.frameworks.command.devices import COMMAND, list_involved
from rlt_api.frameworks.command.engine_limits import list_context_problems, list_share_problems
from rlt_api.frameworks.command.problem import Problem, build_command_finding, format_problem, name_argument
from rlt_api.frameworks.known_program import Demand
from rlt_api.model import quantity_value
from rlt_api.rules.memory_parts import GIB
from rlt_api.rules.model_size import model_size
from rlt_api.spec.job_spec import RLTrainingJobSpec

RULE = "command-memory"
WEIGHT_BYTES = 2
"""Bytes of a parameter in an engine: bfloat16."""
STATE_BYTES = 16
"""Bytes of a parameter in the training with Adam: weights and gradients in bfloat16, and weights and two moments in
float32 (ZeRO, https://arxiv.org/abs/1910.02054). Megatron-LM has gradients in float32."""
QUANTIZED = re.compile(r"fp8|fp4|int[48]|awq|gptq|bnb|[48]-?bit", re.IGNORECASE)
"""A model with fewer bytes of a parameter, by its name."""


@dataclass(frozen=True)
class MemoryArguments:
    """The arguments that memory and lengths depend on, by their keys."""

    count_devices: Callable[[Program], Demand | None]
    models: tuple[str, ...]
    """The policy, in this and earlier versions."""
    share: str
    """The engine's share of a device."""
    default_share: float | None
    """None: the engine computes it."""
    engines: str
    """The number of engines, 0 by default. Empty: there is always one."""
    devices_of_engine: str
    limit: str
    """The longest sequence of the engine, in tokens."""
    lengths: tuple[str, ...]
    """Lengths that add up to the longest sequence. Compared if all are given."""
    reducing: tuple[str, ...]
    """Arguments with which the training holds less than all of its state: it is not compared."""

    def list_problems(self, program: Program) -> Iterator[Problem]:
        """List the problems of the share and of the lengths."""
        yield from list_share_problems(program, self.share)
        lengths = [(key, size) for key in self.lengths if (size := read_number(program, key, None))]
        model = next((key for key in self.models if key in program.values), "")
        complete = lengths if len(lengths) == len(self.lengths) else []
        yield from list_context_problems(program, model, self.limit, complete)

    def warn(self, program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
        """Yield the warnings about the share and the lengths."""
        for problem in self.list_problems(program):
            if problem.since is None:
                yield format_problem(problem, program)

    def validate(self, program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
        """The share is one, and the weights fit, if the model's name contains its size."""
        certain = [each for each in self.list_problems(program) if each.since is not None]
        for problem in certain:
            yield build_command_finding(problem, program, RULE)
        if not certain:
            yield from self._validate_memory(program, spec)

    def _validate_memory(self, program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
        key = next((key for key in self.models if isinstance(program.values.get(key), str)), None)
        demand = self.count_devices(program)
        accelerator = spec.cluster.workers[0].accelerator if spec.cluster.workers else None
        if key is None or demand is None or accelerator is None or not accelerator.memory:
            return
        path = str(program.values[key])
        size = model_size(Model.model_validate({"path": path}))
        if size is None or QUANTIZED.search(path) or any("quantization" in each for each in program.given):
            return
        device = quantity_value(accelerator.memory)
        share = program.values.get(self.share, self.default_share)
        count = read_number(program, self.devices_of_engine, 1)
        if self.engines and not read_number(program, self.engines, 0):
            count = None
        weights = WEIGHT_BYTES * size.parameters / count if count else 0
        if isinstance(share, int | float) and weights >= share * device:
            message = (
                f"{weights / GIB:.3g} GiB of weights on each of {count} accelerators of an engine fill its share of "
                f"{share:g} x {device / GIB:.3g} GiB ({size.source})"
            )
            yield self._build(program, spec, self.share, message, "use a larger share, or more accelerators per engine")
            return
        state = STATE_BYTES * size.parameters / max(1, demand.training)
        if not set(self.reducing) & program.given.keys() and state > device:
            message = (
                f"weights, gradients and moments need at least {state / GIB:.3g} GiB on each of {demand.training} "
                f"accelerators, which have {device / GIB:.3g} GiB ({size.source})"
            )
            yield self._build(program, spec, key, message, "use more accelerators, or offload the optimizer")

    def _build(self, program: Program, spec: RLTrainingJobSpec, key: str, message: str, fix: str) -> Finding:
        argument = program.given.get(key)
        involved = (*list_involved(spec.cluster.workers), "spec.framework.type")
        field = f"{COMMAND}[{argument.index}]" if argument else COMMAND
        value = name_argument(argument) if argument else f"{key}={self.default_share}, the default"
        return Finding(field, value, message, fix, rule=RULE, involved=involved)
