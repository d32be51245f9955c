"""The environment variables of an agent."""

from __future__ import annotations

from rlt_trainer.environments.policy_request import MODEL


def build_variables(base_url: str, key: str, *, no_proxy: str) -> dict[str, str]:
    """Return the variables that clients of OpenAI and Anthropic read, and the hosts without a proxy."""
    return {
        "OPENAI_BASE_URL": f"{base_url}/v1",
        "OPENAI_API_KEY": key,
        "OPENAI_DEFAULT_MODEL": MODEL,  # openai-agents
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,  # side requests of Claude Code
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
    }
