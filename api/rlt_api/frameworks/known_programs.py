"""The programs of command jobs whose arguments are read: one record for each, in the folder of its framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rlt_api.frameworks.arguments import Program, read_words
from rlt_api.frameworks.known_program import KnownProgram, find_call
from rlt_api.frameworks.nemo_rl.program import NEMO_RL
from rlt_api.frameworks.openrlhf.program import OPENRLHF
from rlt_api.frameworks.prime_rl.program import PRIME_RL
from rlt_api.frameworks.skyrl.program import SKYRL
from rlt_api.frameworks.slime.program import MILES, SLIME
from rlt_api.frameworks.trl.program import TRL
from rlt_api.frameworks.verl.program import VERL

PROGRAMS: Mapping[str, KnownProgram] = {
    each.name: each for each in (VERL, OPENRLHF, MILES, SLIME, NEMO_RL, SKYRL, PRIME_RL, TRL)
}
"""Name -> record, in the order in which they are tried: Miles before slime, whose options it has."""


def find_program(command: Sequence[str]) -> Program | None:
    """Find the known program in a command: python3 [options] -m MODULE, a script, torchrun -m MODULE, ray job submit --
    COMMAND, env A=B COMMAND, or bash -c with any of these. None for other programs."""
    words = read_words(command)
    in_script = len({index for index, _ in words}) < len(words)
    for position in range(len(words)):
        for known in PROGRAMS.values():
            call = find_call(known.recognize, words, position)
            if call:
                return replace(known.read(call), in_script=in_script, launcher=call.launcher)
    return None


def get_record(program: Program) -> KnownProgram:
    """Return the record of a program that find_program has found."""
    return PROGRAMS[program.name]


def find_folder(command: Sequence[str], choose: Callable[[KnownProgram], str]) -> str | None:
    """Find an absolute path in the arguments of a known program, in the one that `choose` returns."""
    program = find_program(command)
    found = program.values.get(choose(get_record(program))) if program else None
    return found if isinstance(found, str) and found.startswith("/") else None
