"""spec.rollout: generation of responses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.blocks.functions import FunctionName, PythonFunction
from rlt_api.blocks.resources import EnvVar, KeyReference
from rlt_api.blocks.sandbox import Sandbox
from rlt_api.model import ApiModel, DnsLabel, JsonObject, ObjectName, Positive, Probability, Url, cel

Argument = Annotated[str, StringConstraints(max_length=4096)]
FieldName = Annotated[str, StringConstraints(min_length=1, max_length=253)]
ParserName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$", max_length=63)]
StopString = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class McpServer(ApiModel):
    """A server of the Model Context Protocol (modelcontextprotocol.io), which offers tools."""

    model_config = cel(
        ("has(self.url) != has(self.command)", "must have exactly one of url and command"),
        ("!has(self.apiKey) || has(self.url)", "apiKey is only for servers with url"),
        ("!has(self.env) || self.env.size() == 0 || has(self.command)", "env is only for servers with command"),
        ("!has(self.sandbox) || !self.sandbox || has(self.command)", "sandbox is only for servers with command"),
    )

    url: Url | None = None
    """URL of a server with the transport streamable HTTP, such as http://search:8000/mcp."""
    api_key: KeyReference | None = None
    """The key of a Secret with the token of the requests (Authorization: Bearer). Default: requests without a token."""
    command: Annotated[list[Argument], Field(min_length=1, max_length=64)] | None = None
    """A program in the image with the transport stdio, and its arguments."""
    env: Annotated[list[EnvVar], Field(max_length=64)] = []
    """Environment variables of the program."""
    sandbox: bool = False
    """Run the program in the sandbox of each conversation, from the image of multiTurn.sandbox, without Secrets."""


class Tool(ApiModel):
    """A tool of the policy, or the tools of an MCP server. It has one of name, function and mcp."""

    model_config = cel(
        (
            "[has(self.name), has(self.function), has(self.mcp)].exists_one(given, given)",
            "must have exactly one of name, function and mcp",
        ),
    )

    name: Literal["calculator", "python"] | None = None
    """A tool of the trainer. calculator evaluates an expression of numbers. python runs a program and returns its
    output: in the conversation's sandbox, or without multiTurn.sandbox in a process of the head pod with limits and
    without variables of the pod."""
    function: PythonFunction | None = None
    """A user-defined function. Its name, type annotations and docstring (Google style) describe the tool."""
    mcp: McpServer | None = None
    """An MCP server with tools."""


class OpenEnv(ApiModel):
    """A server of OpenEnv (github.com/meta-pytorch/OpenEnv) that runs an environment. Each conversation has a WebSocket
    connection to it: see docs/openenv.md."""

    url: Annotated[str, StringConstraints(pattern=r"^(https?|wss?)://[^\s]+$", max_length=1024)]
    """URL of the server, such as http://wordle.games:8000. The connections go to /ws below it."""
    api_key: KeyReference | None = None
    """The key of a Secret with a token for the connections (Authorization: Bearer). Default: connections without a
    token."""
    action_field: FieldName | None = None
    """The field of the action that gets the text of a turn, such as message. Default: the text is a JSON object with
    all fields of the action."""
    action_pattern: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    """A Python regular expression with one group, which matches the text for the action in a turn. The last match
    counts. A turn without a match is an error that the policy receives. Default: the whole turn."""
    observation_field: FieldName | None = None
    """The field of the observation that the policy receives, such as text. messages.content is the field content of
    each item in messages. Default: all fields, as JSON."""
    concurrency: Annotated[int, Field(ge=1, le=4096)] = 64
    """Maximum number of conversations, and so of connections, at the same time. The server's max_concurrent_envs must
    not be less."""


class Agent(ApiModel):
    """An agent of a conversation: a function that runs it, or a program in the sandbox. It has one of name and
    command."""

    model_config = cel(
        ("has(self.name) != has(self.command)", "must have exactly one of name and command"),
    )

    name: FunctionName | None = None
    """A user-defined module:function. It runs an agent on a prompt and returns its reward, or None. Its process has the
    variables OPENAI_BASE_URL, ANTHROPIC_BASE_URL and their keys, of a server with Chat Completions, Responses and
    Anthropic's Messages, whose model is the policy. With sandbox, its second parameter is the sandbox, whose programs
    have these variables as well."""
    config_map: ObjectName | None = None
    """A ConfigMap in the job's namespace with one key for each file of the function's module. Default: the image
    contains the module."""
    command: Annotated[list[Argument], Field(min_length=1, max_length=64)] | None = None
    """A program of the sandbox's image and its arguments. It runs in /work for each response, with the variables above.
    Its standard input is the text of the prompt, and the file prompt.json there has text, messages and extra_info. The
    last line of its output is the reward."""
    reward_file: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """The file with the reward of the program, in /work or with an absolute path. Default: the last line of its
    output."""


class MultiTurn(ApiModel):
    """Conversations with an environment, with tools, or of an agent: verl's rollout.multi_turn."""

    model_config = cel(
        (
            "[has(self.environment), has(self.openenv), has(self.tools) && self.tools.size() > 0, has(self.agent)]"
            ".exists_one(given, given)",
            "must have exactly one of environment, openenv, tools and agent",
        ),
    )

    environment: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.:]*$", max_length=253)] | None = None
    """calculator, or a user-defined module:Class in the image or in the ConfigMap: see docs/conversations.md."""
    openenv: OpenEnv | None = None
    """An environment on a server of OpenEnv."""
    config_map: ObjectName | None = None
    """A ConfigMap in the job's namespace with one key for each file of the module. Default: the image contains the
    module."""
    tools: Annotated[list[Tool], Field(max_length=16)] = []
    """Tools that the policy calls, described by the chat template: verl's tool_config_path. A turn without a call ends
    the conversation."""
    agent: Agent | None = None
    """An agent, which calls the policy by an API of OpenAI or Anthropic. The tokens of all requests are trained on: see
    docs/conversations.md."""
    sandbox: Sandbox | None = None
    """A pod for each conversation, for the tool python, MCP servers with sandbox, an agent's program, and the programs
    and files of an agent's function or of a reward function with the parameter sandbox. Default: they run in the head
    pod."""
    format: ParserName = "hermes"
    """The form of a call in a turn: the name of a tool parser of vLLM 0.32.0 (--tool-call-parser), such as hermes (Qwen
    2.5 and 3), llama3_json, qwen3_coder, deepseek_v31, glm45, kimi_k2 or mistral. verl's multi_turn.format."""
    reasoning_parser: ParserName | None = None
    """The form of the reasoning in a turn: the name of a reasoning parser of vLLM 0.32.0 (--reasoning-parser), such as
    qwen3, deepseek_r1 or glm45. An agent gets the reasoning apart from the content. Default: reasoning is content."""
    max_parallel_calls: Positive = 8
    """Maximum number of calls in one turn. Further calls are answered with an error. (verl: 1.)"""
    max_tool_response_length: Positive = 4096
    """Maximum number of characters in a tool's response, or in an observation of openenv. The middle of a longer one is
    left out. (verl: 256.)"""
    max_turns: Positive = 8
    """Maximum number of assistant turns, or of an agent's requests: verl's max_assistant_turns. data.maxResponseLength
    bounds all turns and answers of a conversation together."""
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Timeout for one answer of the environment or a tool, and for the time of an agent between two requests, in
    seconds. A timeout of an environment, an agent or an MCP server counts as a failed reward. The policy receives a
    timeout of another tool as the answer, and the function of an agent the timeout of a program in its sandbox. The
    time for a sandbox to become ready does not count."""


class Staleness(ApiModel):
    """Generation ahead of the training."""

    max_steps: Positive = 1
    """Maximum age of the weights at the start of a response, in steps, when the response is used for training. 1 is one
    step off-policy."""
    kv_cache: Literal["recompute", "keep"] = "recompute"
    """What a weight sync does to the KV cache of responses in progress. recompute: the engine computes it again with
    the new weights, which delays them. keep: they continue at once, and their later tokens attend to values of earlier
    weights, as with AReaL's and PipelineRL's in-flight updates; rolloutCorrection corrects the difference. keep needs
    engine vllm, and a cache that stays during the training: mode separate, or freeCacheEngine false."""


class SpeculativeConfig(ApiModel):
    """Speculative decoding: vLLM proposes the next tokens of a response, and computes their probabilities at once."""

    model_config = cel(
        (
            "!has(self.promptLookupMin) || "
            "self.promptLookupMin <= (has(self.promptLookupMax) ? self.promptLookupMax : 5)",
            "promptLookupMin must not be more than promptLookupMax",
        ),
    )

    method: Literal["ngram"] = "ngram"
    """ngram: the tokens that followed an earlier occurrence of the last tokens, in the prompt or the response (prompt
    lookup decoding). Each is accepted with its probability under the policy, and replaced otherwise (arXiv 2211.17192),
    so that the distribution of responses and their log-probabilities stay the policy's."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=32)] = 5
    """Maximum number of proposed tokens in a step of the engine: vLLM's num_speculative_tokens."""
    prompt_lookup_max: Annotated[int, Field(ge=1, le=32)] = 5
    """Maximum number of last tokens to find: vLLM's prompt_lookup_max."""
    prompt_lookup_min: Annotated[int, Field(ge=1, le=32)] | None = None
    """Minimum number of last tokens to find: vLLM's prompt_lookup_min. Less proposes more often, and more of it is
    rejected. Default: promptLookupMax."""


class Rollout(ApiModel):
    """Generation of responses."""

    model_config = cel(
        (
            "!has(self.maxNumBatchedTokens) || !has(self.maxNumSeqs) || self.maxNumBatchedTokens >= self.maxNumSeqs",
            "maxNumBatchedTokens must not be less than maxNumSeqs",
        ),
        (
            "!has(self.workerGroup) || !has(self.mode) || self.mode == 'separate'",
            "workerGroup is only for mode separate",
        ),
    )

    engine: Literal["vllm", "transformers"] = "vllm"
    """vllm, or transformers: a plain sampler for comparison and small models."""
    mode: Literal["colocated", "separate"] = "colocated"
    """colocated: the workers alternate between training and generation. separate: a second worker group generates, as
    with ROLL's disjoint device mappings."""
    worker_group: DnsLabel | None = None
    """Name of the worker group that generates, for mode separate."""
    responses_per_prompt: Annotated[int, Field(ge=1, le=4096)] = 8
    """Number of responses to each prompt, the group size of GRPO: verl's rollout.n. (kubectl reads the key n as
    false.)"""
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Sampling temperature. The training uses the log-probabilities at the same temperature."""
    top_p: Probability = 1.0
    """Nucleus sampling: total probability of the most probable tokens that are sampled from."""
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    """Number of most probable tokens that are sampled from. -1 means all."""
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Tokens are sampled from if their probability is at least this share of the most probable token's (arXiv
    2407.01082). 0 keeps all."""
    stop: Annotated[list[StopString], Field(max_length=16)] = []
    """Texts that end a response, or a turn, such as </answer>: vLLM's SamplingParams.stop. The response keeps the text
    and the whole token that completes it. Default: responses end at the end-of-text tokens and at maxResponseLength."""
    tensor_parallel_size: Positive = 1
    """Number of devices per engine: verl's tensor_model_parallel_size. With mode separate, an engine can have the
    devices of several pods."""
    quantization: Literal["fp8"] | None = None
    """fp8: vLLM quantizes the linear layers in each weight sync, and their inputs in each step: verl's quantization. It
    requires model.dtype: bfloat16. Default: vLLM computes in model.dtype."""
    gpu_memory_utilization: Probability = 0.5
    """Share of a GPU's memory for vLLM. A CPU uses kvCacheSpace instead."""
    kv_cache_space: Annotated[int, Field(ge=1, le=4096)] = 1
    """Size of vLLM's KV cache on a CPU, in GiB (VLLM_CPU_KVCACHE_SPACE)."""
    enforce_eager: bool = True
    """Whether vLLM runs without compilation and CUDA graphs. Default: true, on GPUs false."""
    max_model_len: Positive | None = None
    """Maximum length of a sequence in the engine. Default: maxPromptLength + maxResponseLength."""
    max_num_seqs: Positive | None = None
    """Maximum number of sequences in a batch of the engine. Default: the engine's."""
    max_num_batched_tokens: Positive | None = None
    """Maximum number of tokens in a batch of the engine. Default: the engine's."""
    enable_chunked_prefill: bool | None = None
    """Whether the engine splits the prefill of long prompts. Default: the engine's. vLLM on CPUs splits none."""
    free_cache_engine: bool = False
    """Whether vLLM releases its memory during training, on GPUs in mode colocated. Default: false, on GPUs in mode
    colocated true."""
    verify_weights_freq: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Verify every N-th weight sync: the sums over all weights and the log-probabilities of at least 256 tokens are
    compared. 0: none."""
    speculative_config: SpeculativeConfig | None = None
    """Speculative decoding: vLLM's speculative_config. It can be faster where responses repeat parts of their prompts
    or of themselves, and batches are small. Default: none."""
    engine_kwargs: JsonObject = {}
    """Additional options of the engine, by their names in vLLM: verl's rollout.engine_kwargs."""
    staleness: Staleness | None = None
    """Generation ahead of the training. In mode separate it runs during the training. In mode colocated, responses of
    later steps are interrupted by the training, and continue with the new weights. Default: none, on-policy."""
    multi_turn: MultiTurn | None = None
    """Conversations with an environment, with tools, or of an agent. Default: one response to each prompt."""
