"""The interfaces of environments, the other side of a conversation, and of agents, and the environments by name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Protocol

from rlt_api.blocks.functions import PythonFunction
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.algorithms.user_functions import load_user_function
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.calculator import Calculator
from rlt_trainer.sandboxes.user_sandbox import UserSandbox


class Environment(Protocol):
    """An instance is created without arguments for each conversation, in its own process in the head pod. A call
    may take rollout.multiTurn.timeoutSeconds.

    An exception ends the conversation. Its response is left out of the update and counted as failed.
    """

    def reset(self, prompt: Prompt) -> str | None:
        """Start the conversation. The return value is an observation before the first turn, or None.

        In a chat the prompt already ends with the generation prompt of the assistant, so the observation follows an
        empty assistant turn. Text that belongs to the prompt should be in the data.
        """
        ...

    def step(self, response: str) -> tuple[str, float | None, bool]:
        """Process one turn of the policy, without end-of-text token. Return the observation, the reward of the turn or
        None, and whether the conversation has ended. The policy does not receive the last observation.

        The rewards of a conversation are added up, and the sum is added to spec.rewards' rewards. If all rewards are
        None, the environment gives no reward.
        """
        ...


class Agent(Protocol):
    """A function that runs an agent, in its own process in the head pod."""

    def __call__(self, prompt: Prompt, *sandbox: UserSandbox) -> float | Awaitable[float | None] | None:
        """Run the agent on a prompt, and return its reward or None. The function may be asynchronous.

        With rollout.multiTurn.sandbox it also gets its sandbox. The process has the variables OPENAI_BASE_URL and
        OPENAI_API_KEY, which belong to this call. Its time without a request may take
        rollout.multiTurn.timeoutSeconds. An exception ends the episode: see run_agent.
        """
        ...


ENVIRONMENTS: dict[str, Callable[[], Environment]] = {"calculator": Calculator}


def load_environment(multi_turn: MultiTurn) -> Callable[[], Environment]:
    """Return the factory of the environment: one of ENVIRONMENTS, or a user-defined `module:Class`.

    Raises ValueError if the environment does not exist.
    """
    name = multi_turn.environment
    assert name is not None, "the conversation has no environment in a process"
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    if ":" not in name:
        raise ValueError(
            f"rollout.multiTurn.environment {name}: no such environment. Use {', '.join(ENVIRONMENTS)}, or "
            "module:Class for a user-defined environment."
        )
    function = PythonFunction(name=name, config_map=multi_turn.config_map)
    return load_user_function(function, field="rollout.multiTurn.environment")


def load_agent(multi_turn: MultiTurn) -> Agent:
    """Return the user-defined agent. Raises ValueError if it does not exist or has other parameters."""
    given = multi_turn.agent
    assert given is not None
    assert given.name is not None, "the agent is a program in the sandbox"
    field = "rollout.multiTurn.agent"
    agent: Agent = load_user_function(PythonFunction(name=given.name, config_map=given.config_map), field=field)
    names = ["prompt", "sandbox"] if multi_turn.sandbox else ["prompt"]
    try:
        inspect.signature(agent).bind(*names)
    except TypeError as error:
        state = "with" if multi_turn.sandbox else "without"
        raise ValueError(
            f"{field} {given.name}: {error}. {state.capitalize()} rollout.multiTurn.sandbox, its parameters "
            f"are ({', '.join(names)})."
        ) from None
    return agent
