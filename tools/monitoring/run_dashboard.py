"""The dashboard Run: the learning and the speed of selected jobs."""

from __future__ import annotations

from monitoring.dashboard_queries import (
    ANNOTATIONS,
    JOB,
    NAME,
    OF_JOB,
    VARIABLES,
    query_driver,
    query_pods,
    query_statistic,
)
from monitoring.grafana import Dashboard, Panel, Query, Row

NOW = Row(
    "Now",
    (
        Panel(
            title="Step",
            description="Completed steps.",
            queries=(query_driver("rlt_trainer_step"),),
            type="stat",
            width=4,
            unit="none",
        ),
        Panel(
            title="Progress",
            description="Share of the steps that are complete.",
            queries=(Query(f"rlt_trainer_step{JOB} / rlt_trainer_total_steps{JOB}"),),
            type="stat",
            width=4,
            unit="percentunit",
        ),
        Panel(
            title="Time left",
            description="Remaining steps times the duration of the latest step.",
            queries=(
                Query(
                    f"(rlt_trainer_total_steps{JOB} - rlt_trainer_step{JOB}) * rlt_trainer_step_duration_seconds{JOB}"
                ),
            ),
            type="stat",
            width=4,
            unit="s",
        ),
        Panel(
            title="Reward",
            description="Mean reward of the latest step.",
            queries=(query_driver("rlt_trainer_reward_mean"),),
            type="stat",
            width=4,
        ),
        Panel(
            title="Accelerators",
            description="Accelerators that the job requests.",
            queries=(Query(f"rlt_job_gpus{NAME}", OF_JOB),),
            type="stat",
            width=4,
            unit="none",
        ),
        Panel(
            title="New attempts",
            description="New attempts after failures and disruptions.",
            queries=(Query(f"rlt_job_restarts{NAME} + rlt_job_disruptions{NAME}", OF_JOB),),
            type="stat",
            width=4,
            unit="none",
        ),
    ),
)
LEARNING = Row(
    "Learning",
    (
        Panel(
            title="Reward",
            description="Reward of each step's responses. Constant 0: the task is too hard or the reward never "
            "matches. Constant 1: the task is too easy, and the advantages are 0.",
            queries=tuple(map(query_statistic, ("reward_mean", "reward_min", "reward_max"))),
            width=16,
        ),
        Panel(
            title="Validation",
            description="Metrics over the validation set.",
            queries=(query_driver("rlt_trainer_validation_overall", "{{job}} {{metric}}"),),
            requires="training.validation",
        ),
        Panel(
            title="KL to the reference",
            description="Mean KL divergence to the reference model. A fast increase: the policy diverges from it.",
            queries=(Query(f"rlt_trainer_kl{JOB} or rlt_trainer_reward_kl{JOB}"),),
            requires="a reference model",
            unit="none",
        ),
        Panel(
            title="Entropy",
            description="Mean entropy of the next-token distribution, in nats. Near 0, all responses are equal.",
            queries=(query_driver("rlt_trainer_entropy"),),
            minimum=0,
        ),
        Panel(
            title="Response length",
            description="Length of the responses in tokens.",
            queries=tuple(map(query_statistic, ("response_length_mean", "response_length_max"))),
            minimum=0,
        ),
        Panel(
            title="Truncated responses",
            description="Share of responses truncated at maxResponseLength.",
            queries=(query_driver("rlt_trainer_response_length_clip_ratio"),),
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            title="Failed rewards",
            description="Share of responses whose reward failed. They are left out of the update.",
            queries=(Query(f"rlt_trainer_reward_failures{JOB} / rlt_trainer_responses{JOB}"),),
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            title="Rewards by name",
            description="Mean of each reward.",
            queries=(query_driver("rlt_trainer_reward_detail", "{{job}} {{metric}}"),),
            requires="several rewards",
        ),
    ),
)
STABILITY = Row(
    "Stability",
    (
        Panel(
            title="Gradient norm",
            description="Norm of the gradient before clipping. Peaks precede a divergence.",
            queries=(query_driver("rlt_trainer_grad_norm"),),
            minimum=0,
        ),
        Panel(
            title="Clip fraction",
            description="Share of tokens that PPO clipped.",
            queries=(query_driver("rlt_trainer_clip_fraction"),),
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            title="Difference between rollout and training probabilities",
            description="Mean difference of token probabilities between rollout engine and trainer. Below 0.005 is "
            "healthy, above 0.01 bad.",
            queries=(query_driver("rlt_trainer_rollout_probs_diff_mean"),),
            minimum=0,
        ),
        Panel(
            title="Skipped updates",
            description="Optimizer steps that were skipped because the gradient was not finite.",
            queries=(query_driver("rlt_trainer_skipped_updates"),),
            minimum=0,
        ),
        Panel(
            title="Staleness",
            description="Steps between the request of a response and its training.",
            queries=tuple(map(query_statistic, ("staleness_steps_mean", "staleness_steps_max"))),
            requires="rollout.staleness",
            minimum=0,
        ),
        Panel(
            title="Value loss",
            description="Value loss of the critic.",
            queries=(query_driver("rlt_trainer_value_loss"),),
            requires="a critic",
        ),
    ),
)
STEP_TIME = Row(
    "Step time",
    (
        Panel(
            title="Time of each phase",
            description="Time that the driver spent in each phase. The phases and unaccounted add up to the step.",
            queries=(Query(f"sum by (phase) (rlt_trainer_step_seconds{JOB})", "{{phase}}"),),
            unit="s",
            width=12,
            stacked=True,
        ),
        Panel(
            title="Step duration",
            description="Duration of the whole step.",
            queries=(query_driver("rlt_trainer_step_duration_seconds"),),
            unit="s",
            width=6,
            minimum=0,
        ),
        Panel(
            title="Time since",
            description="Time since the latest progress, and since the latest checkpoint.",
            queries=(
                Query(f"time() - rlt_trainer_last_step_timestamp_seconds{JOB}", "{{job}} progress"),
                Query(f"time() - rlt_trainer_latest_checkpoint_timestamp_seconds{JOB}", "{{job}} checkpoint"),
            ),
            unit="s",
            width=6,
            minimum=0,
        ),
    ),
)
THROUGHPUT = Row(
    "Throughput and memory",
    (
        Panel(
            title="Tokens per second",
            description="Prompt and response tokens of the latest step per second, over all workers.",
            queries=(query_driver("rlt_trainer_tokens_per_second"),),
            minimum=0,
        ),
        Panel(
            title="MFU",
            description="Share of the peak FLOPS of the devices in the update of the actor.",
            queries=(query_driver("rlt_trainer_model_flops_utilization"),),
            unit="percentunit",
            requires="accelerators with a known peak",
            minimum=0,
        ),
        Panel(
            title="Node memory",
            description="Used memory, maximum of all nodes.",
            queries=(query_driver("rlt_trainer_node_memory_used_bytes"),),
            unit="bytes",
            minimum=0,
        ),
        Panel(
            title="Device memory",
            description="Peak memory of torch's allocator, maximum of all devices.",
            queries=(query_driver("rlt_trainer_device_memory_reserved_bytes"),),
            unit="bytes",
            requires="accelerators",
            minimum=0,
        ),
        Panel(
            title="Requests of the engines",
            description="Requests in the rollout engines, and those that wait for one.",
            queries=(query_driver("rlt_trainer_engine_requests", "{{job}} {{state}}"),),
            minimum=0,
            stacked=True,
        ),
        Panel(
            title="KV cache",
            description="Used share of the KV cache of each engine.",
            queries=(query_driver("vllm:kv_cache_usage_perc", "{{job}} {{engine}}"),),
            unit="percentunit",
            minimum=0,
            maximum=1,
            requires="the engine vllm",
        ),
        Panel(
            title="Preemptions",
            description="Requests per second whose KV cache an engine dropped, because it was full.",
            queries=(Query(f"rate(vllm:num_preemptions_total{JOB}[$__rate_interval])", "{{job}} {{engine}}"),),
            minimum=0,
            requires="the engine vllm",
        ),
    ),
)
GPUS = Row(
    "GPUs",
    (
        Panel(
            title="GPU utilization",
            description="Share of the time in which a kernel ran.",
            queries=(query_pods("DCGM_FI_DEV_GPU_UTIL"),),
            unit="percent",
            minimum=0,
            maximum=100,
            requires="NVIDIA's dcgm-exporter",
        ),
        Panel(
            title="GPU memory",
            description="Used framebuffer memory in MiB.",
            queries=(query_pods("DCGM_FI_DEV_FB_USED"),),
            unit="mbytes",
            minimum=0,
            requires="NVIDIA's dcgm-exporter",
        ),
        Panel(
            title="GPU power",
            description="Power draw.",
            queries=(query_pods("DCGM_FI_DEV_POWER_USAGE"),),
            unit="watt",
            minimum=0,
            requires="NVIDIA's dcgm-exporter",
        ),
    ),
)
RAY = Row(
    "Ray",
    (
        Panel(
            title="CPU of the pods",
            description="Used share of the CPUs of each pod.",
            queries=(Query(f"ray_node_cpu_utilization{JOB}", "{{pod}}"),),
            unit="percent",
            minimum=0,
            requires="the metrics of Ray",
        ),
        Panel(
            title="Memory of the pods",
            description="Used memory of each pod.",
            queries=(Query(f"ray_node_mem_used{JOB}", "{{pod}}"),),
            unit="bytes",
            minimum=0,
            requires="the metrics of Ray",
        ),
        Panel(
            title="Network of the pods",
            description="Sent and received bytes per second of each pod. RDMA is not included.",
            queries=(
                Query(f"ray_node_network_send_speed{JOB}", "{{pod}} sent"),
                Query(f"ray_node_network_receive_speed{JOB}", "{{pod}} received"),
            ),
            unit="Bps",
            minimum=0,
            requires="the metrics of Ray",
        ),
    ),
)
RUN = Dashboard(
    uid="rlt-run",
    title="rlt / Run",
    variables=VARIABLES,
    annotations=ANNOTATIONS,
    rows=(NOW, LEARNING, STABILITY, STEP_TIME, THROUGHPUT, GPUS, RAY),
)
