"""Validation of the training config before Ray starts."""

from __future__ import annotations

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from rlt_api.rules.model_families import find_adapter_obstacle, find_vllm_obstacle
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.cluster.pods import count_train_workers
from rlt_trainer.data.encoding import chat_text
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.driver.experience import load_estimator
from rlt_trainer.environments.environment import load_agent, load_environment
from rlt_trainer.environments.turn_parser import check_parsers
from rlt_trainer.policy.config import load_config, resolve_teacher_model
from rlt_trainer.policy.families import validate_family
from rlt_trainer.policy.mesh import data_parallel_size
from rlt_trainer.policy.policy_objective import PolicyObjective
from rlt_trainer.rollout.vllm_options import check_engine_kwargs

MIN_HEAD_SIZE = 32
"""Minimum head size of vLLM's attention on CPUs (vLLM 0.32.0, vllm/v1/attention/backends/cpu_attn.py)."""


def validate_rollout(config: TrainingConfig) -> None:
    """Raises ValueError for settings that the engines do not support."""
    rollout = config.rollout
    size = config.rollout.tensor_parallel_size
    devices = max(1, config.rollout_devices_per_worker if config.rollout_workers else config.devices_per_worker)
    if rollout.engine == "transformers":
        if size > 1:
            raise ValueError(
                f"rollout.tensorParallelSize: {size} requires rollout.engine: vllm. Remove it, or use vllm."
            )
        if rollout.engine_kwargs:
            raise ValueError(
                "rollout.engineKwargs: vLLM options require rollout.engine: vllm. Remove them, or use vllm."
            )
    check_engine_kwargs(rollout)
    total = config.rollout_workers * devices
    spans_pods = total > 0 and size % devices == 0 and total % size == 0
    if devices % size and not spans_pods:
        other = f"a multiple that divides {total}" if total else "rollout.mode: separate for an engine in several pods"
        raise ValueError(
            f"rollout.tensorParallelSize: {size} does not divide the {devices} devices of a pod. "
            f"Use a divisor of {devices}, or {other}."
        )
    requested = config.data.max_prompt_length + config.data.max_response_length
    if rollout.max_model_len is not None and rollout.max_model_len < requested:
        raise ValueError(
            f"rollout.maxModelLen: {rollout.max_model_len} is less than data.maxPromptLength + maxResponseLength = "
            f"{requested}. Use at least {requested}, or remove it."
        )


def validate_functions(config: TrainingConfig) -> None:
    """Raises ValueError if a user-defined function, environment or agent cannot be imported."""
    load_estimator(config.algorithm)
    PolicyObjective(config.algorithm, max_response_length=config.data.max_response_length)
    if config.rollout.multi_turn and config.rollout.multi_turn.environment:
        load_environment(config.rollout.multi_turn)
    multi_turn = config.rollout.multi_turn
    if multi_turn and multi_turn.agent and multi_turn.agent.name:
        load_agent(multi_turn)


def validate_chat_template(config: TrainingConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError if there is an agent, whose requests are messages, and no chat template."""
    if config.rollout.multi_turn and config.rollout.multi_turn.agent:
        chat_text([{"role": "user", "content": "?"}], tokenizer, config.data.chat_template)


def validate_parsers(config: TrainingConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError if a parser of turns cannot be used with the tokenizer."""
    multi_turn = config.rollout.multi_turn
    if multi_turn and (multi_turn.tools or multi_turn.agent):
        check_parsers(multi_turn, tokenizer)


def validate_teacher(config: TrainingConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError if there is a teacher with another family or vocabulary: its log-probabilities are of the
    policy's tokens."""
    distillation = config.algorithm.distillation
    if distillation is None:
        return
    teacher = resolve_teacher_model(config, distillation)
    try:
        ours = tokenizer.get_vocab()
        theirs = load_tokenizer(teacher).get_vocab()
        architecture = load_config(teacher)
        validate_family(architecture, packed=config.model.use_remove_padding)
    except ValueError as error:
        raise ValueError(str(error).replace("model.path", "algorithm.distillation.modelPath")) from error
    differing = sorted(token for token, number in ours.items() if theirs.get(token) != number)
    if differing:
        raise ValueError(
            f"algorithm.distillation.modelPath: {distillation.model_path}: its tokenizer has another number for "
            f"{len(differing)} of {len(ours)} tokens of {config.model.path or 'model.fromSeed'}, such as "
            f"{differing[0]!r}. Use a teacher with the same vocabulary, such as a larger model of the same family."
        )
    models = (load_config(config.model), architecture)
    vocabulary = min(each.get_text_config().vocab_size for each in models)
    if distillation.loss_mode == "forward_kl_topk" and distillation.topk > vocabulary:
        raise ValueError(
            f"algorithm.distillation.topk: {distillation.topk} is above the {vocabulary} tokens of policy and teacher. "
            f"Use {vocabulary} or less."
        )


def validate_batches(config: TrainingConfig) -> None:
    """Raises ValueError if the ranks cannot form groups, or if a batch cannot be split equally between them."""
    training = config.training
    mini = training.ppo_mini_batch_size
    shares = data_parallel_size(training, count_train_workers(config))
    size = training.context_parallel_size
    groups = f"{shares} ranks" if size == 1 else f"{shares} groups of {size} ranks (contextParallelSize)"
    if training.train_batch_size % mini:
        raise ValueError(
            f"training.trainBatchSize: {training.train_batch_size} is not divisible by ppoMiniBatchSize {mini}: use a "
            f"multiple of {mini}."
        )
    if mini % shares:
        raise ValueError(f"training.ppoMiniBatchSize: {mini} is not divisible by {groups}: use a multiple of {shares}.")
    if training.warmup and training.warmup.batch_size % shares:
        raise ValueError(
            f"training.warmup.batchSize: {training.warmup.batch_size} is not divisible by {groups}: use a multiple of "
            f"{shares}."
        )


def validate_engine(config: TrainingConfig, architecture: PreTrainedConfig) -> None:
    """Raises ValueError if the rollout engine does not support the model."""
    text = architecture.get_text_config()
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    devices = config.rollout_devices_per_worker if config.rollout_workers else config.devices_per_worker
    if config.rollout.engine == "vllm" and devices == 0 and head_size < MIN_HEAD_SIZE:
        raise ValueError(
            f"model: attention heads of {head_size} dimensions are not supported by vLLM on CPUs (minimum "
            f"{MIN_HEAD_SIZE}): use a model with wider heads, or rollout.engine: transformers."
        )
    obstacle = find_vllm_obstacle(architecture.model_type, on_gpu=devices > 0)
    if config.rollout.engine == "vllm" and obstacle is not None:
        raise ValueError(
            f"rollout.engine: vllm does not work with models of type {architecture.model_type}: {obstacle}. Use "
            "transformers."
        )
    lora = config.model.lora
    if lora is not None and lora.sync_adapters:
        obstacle = find_adapter_obstacle(text.model_type, lora.target_modules, on_gpu=devices > 0)
        if obstacle is not None:
            raise ValueError(
                f"model.lora.syncAdapters does not work with models of type {text.model_type}: {obstacle}. Remove it."
            )


def validate_lengths(config: TrainingConfig, architecture: PreTrainedConfig) -> None:
    """Raises ValueError if the model does not support the sequence length."""
    text = architecture.get_text_config()
    max_length = getattr(text, "max_position_embeddings", None)
    requested = config.data.max_prompt_length + config.data.max_response_length
    if max_length is not None and requested > max_length:
        raise ValueError(
            f"data: maxPromptLength {config.data.max_prompt_length} and maxResponseLength "
            f"{config.data.max_response_length} add up to {requested} tokens, but the model supports {max_length}: "
            "reduce one of them."
        )
