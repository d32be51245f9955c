"""The types of a job's spec, for its construction in Python: `Model(path=...)`, `Training(total_steps=100)`."""

from __future__ import annotations

from rlt_api.blocks.algorithm import (
    Algorithm,
    Critic,
    Distillation,
    Dpo,
    FilterGroups,
    KlControl,
    OverlongBuffer,
    RolloutCorrection,
)
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.cluster import Cluster, Head, WorkerGroup
from rlt_api.blocks.data import Curriculum, Data, DataFilter, DataShare, HubDataset, InlineExample
from rlt_api.blocks.evaluation import EvaluateOnly, Evaluation, EvaluationData, HubTestSet, PromoteIf
from rlt_api.blocks.framework import Framework, PrepareStep, RuntimeEnv
from rlt_api.blocks.functions import PythonFunction
from rlt_api.blocks.metric_rules import (
    EntropyCollapse,
    GenerationBound,
    GradientSpikes,
    IdleAccelerators,
    KlRunaway,
    MetricRules,
    NoLearningSignal,
    OffPolicyDrift,
    RewardHacking,
    TrainingBound,
    Truncation,
)
from rlt_api.blocks.model import Lora, Model, SeededModel
from rlt_api.blocks.network import Network
from rlt_api.blocks.operations import (
    FailurePolicy,
    Observability,
    Preflight,
    Profiler,
    Security,
    TensorBoard,
    Timeline,
    Wandb,
)
from rlt_api.blocks.publish import Publication
from rlt_api.blocks.resources import Accelerator, EnvVar, KeyReference, Resources, Toleration
from rlt_api.blocks.rewards import Judge, Reward, RewardFunction
from rlt_api.blocks.rollout import Agent, McpServer, MultiTurn, OpenEnv, Rollout, SpeculativeConfig, Staleness, Tool
from rlt_api.blocks.sandbox import Sandbox
from rlt_api.blocks.scheduling import Scheduling, Topology
from rlt_api.blocks.storage import ModelCache, Storage
from rlt_api.blocks.training import Fsdp, LearningRateSchedule, Reference, Training, Warmup
from rlt_api.spec.job_spec import RLTrainingJobSpec, RuntimeReference

__all__ = [
    "Accelerator",
    "Agent",
    "Algorithm",
    "Checkpoint",
    "Cluster",
    "Critic",
    "Curriculum",
    "Data",
    "DataFilter",
    "DataShare",
    "Distillation",
    "Dpo",
    "EntropyCollapse",
    "EnvVar",
    "EvaluateOnly",
    "Evaluation",
    "EvaluationData",
    "FailurePolicy",
    "FilterGroups",
    "Framework",
    "Fsdp",
    "GenerationBound",
    "GradientSpikes",
    "Head",
    "HubDataset",
    "HubTestSet",
    "IdleAccelerators",
    "InlineExample",
    "Judge",
    "KeyReference",
    "KlControl",
    "KlRunaway",
    "LearningRateSchedule",
    "Lora",
    "McpServer",
    "MetricRules",
    "Model",
    "ModelCache",
    "MultiTurn",
    "Network",
    "NoLearningSignal",
    "Observability",
    "OffPolicyDrift",
    "OpenEnv",
    "OverlongBuffer",
    "Preflight",
    "PrepareStep",
    "Profiler",
    "PromoteIf",
    "Publication",
    "PythonFunction",
    "RLTrainingJobSpec",
    "Reference",
    "Resources",
    "Reward",
    "RewardFunction",
    "RewardHacking",
    "Rollout",
    "RolloutCorrection",
    "RuntimeEnv",
    "RuntimeReference",
    "Sandbox",
    "Scheduling",
    "Security",
    "SeededModel",
    "SpeculativeConfig",
    "Staleness",
    "Storage",
    "TensorBoard",
    "Timeline",
    "Toleration",
    "Tool",
    "Topology",
    "Training",
    "TrainingBound",
    "Truncation",
    "Wandb",
    "Warmup",
    "WorkerGroup",
]
