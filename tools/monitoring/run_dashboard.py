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

# fmt: off
NOW = Row(
    "Now",
    (
        Panel("Step", "Completed steps.",
              (query_driver("rlt_trainer_step"),), type="stat", width=4, unit="none"),
        Panel("Progress", "Share of the steps that are complete.",
              (Query(f"rlt_trainer_step{JOB} / rlt_trainer_total_steps{JOB}"),), type="stat", width=4,
              unit="percentunit"),
        Panel("Time left", "Remaining steps times the duration of the latest step.",
              (Query(f"(rlt_trainer_total_steps{JOB} - rlt_trainer_step{JOB}) "
                     f"* rlt_trainer_step_duration_seconds{JOB}"),),
              type="stat", width=4, unit="s"),
        Panel("Reward", "Mean reward of the latest step.",
              (query_driver("rlt_trainer_reward_mean"),), type="stat", width=4),
        Panel("Accelerators", "Accelerators that the job requests.",
              (Query(f"rlt_job_gpus{NAME}", OF_JOB),), type="stat", width=4, unit="none"),
        Panel("New attempts", "New attempts after failures and disruptions.",
              (Query(f"rlt_job_restarts{NAME} + rlt_job_disruptions{NAME}", OF_JOB),), type="stat", width=4,
              unit="none"),
    ),
)
LEARNING = Row(
    "Learning",
    (
        Panel("Reward",
              "Mean reward of each step's responses. Constant 0: the task is too hard or the reward never matches. "
              "Constant 1: the task is too easy, and the advantages are 0.",
              (query_driver("rlt_trainer_reward_mean"),), width=16),
        Panel("Evaluation", "Metrics over each suite of spec.evaluation.",
              (query_driver("rlt_trainer_validation_overall", "{{job}} {{metric}}"),), requires="evaluation"),
        Panel("KL to the reference",
              "Mean KL divergence to the reference model. A fast increase: the policy diverges from it.",
              (Query(f"rlt_trainer_kl{JOB} or rlt_trainer_reward_kl{JOB}"),), requires="a reference model",
              unit="none"),
        Panel("Entropy", "Mean entropy of the next-token distribution, in nats. Near 0, all responses are equal.",
              (query_driver("rlt_trainer_entropy"),), minimum=0),
        Panel("Response length", "Length of the responses in tokens.",
              tuple(map(query_statistic, ("response_length_mean", "response_length_max"))), minimum=0),
        Panel("Truncated responses", "Share of responses truncated at maxResponseLength.",
              (query_driver("rlt_trainer_response_length_clip_ratio"),), unit="percentunit", minimum=0),
        Panel("Failed rewards", "Share of responses whose reward failed. They are left out of the update.",
              (Query(f"rlt_trainer_reward_failures{JOB} / rlt_trainer_responses{JOB}"),), unit="percentunit",
              minimum=0),
        Panel("Rewards by name", "Mean of each reward.",
              (query_driver("rlt_trainer_reward_detail", "{{job}} {{metric}}"),), requires="several rewards"),
    ),
)
STABILITY = Row(
    "Stability",
    (
        Panel("Gradient norm", "Norm of the gradient before clipping. Peaks precede a divergence.",
              (query_driver("rlt_trainer_grad_norm"),), minimum=0),
        Panel("Clip fraction", "Share of tokens that PPO clipped.",
              (query_driver("rlt_trainer_clip_fraction"),), unit="percentunit", minimum=0),
        Panel("Difference between rollout and training probabilities",
              "Mean difference of token probabilities between rollout engine and trainer. Below 0.005 is healthy, "
              "above 0.01 bad.",
              (query_driver("rlt_trainer_rollout_probs_diff_mean"),), minimum=0),
        Panel("Skipped updates", "Optimizer steps that were skipped because the gradient was not finite.",
              (query_driver("rlt_trainer_skipped_updates"),), minimum=0),
        Panel("Staleness", "Optimizer steps since the weights that began a response.",
              tuple(map(query_statistic, ("staleness_steps_mean", "staleness_steps_max"))),
              requires="rollout.staleness", minimum=0),
        Panel("Value loss", "Value loss of the critic.",
              (query_driver("rlt_trainer_value_loss"),), requires="a critic"),
        Panel("Spread of the reward", "80 % of the responses have a reward between the two lines.",
              tuple(map(query_statistic, ("reward_p10", "reward_p90"))), requires="framework.type builtin"),
    ),
)
STEP_TIME = Row(
    "Step time",
    (
        Panel("Time of each phase",
              "Time that the driver spent in each phase. The phases and unaccounted add up to the step.",
              (Query(f"sum by (phase) (rlt_trainer_step_seconds{JOB})", "{{phase}}"),), unit="s", width=12,
              stacked=True),
        Panel("Step duration", "Duration of the whole step.",
              (query_driver("rlt_trainer_step_duration_seconds"),), unit="s", width=6, minimum=0),
        Panel("Time since", "Time since the latest progress, and since the latest checkpoint.",
              (Query(f"time() - rlt_trainer_last_step_timestamp_seconds{JOB}", "{{job}} progress"),
               Query(f"time() - rlt_trainer_latest_checkpoint_timestamp_seconds{JOB}", "{{job}} checkpoint")),
              unit="s", width=6, minimum=0),
    ),
)
THROUGHPUT = Row(
    "Throughput and memory",
    (
        Panel("Tokens per second", "Prompt and response tokens of the latest step per second, over all workers.",
              (query_driver("rlt_trainer_tokens_per_second"),), minimum=0),
        Panel("Use of accelerators",
              "Accelerator hours since the start of the job, by role and phase. Idle: held and unused. Lost: repeated "
              "after an attempt that ended early.",
              (Query(f"max by (role, phase) (rlt_job_accelerator_seconds{NAME}) / 3600", "{{role}} {{phase}}"),),
              stacked=True, minimum=0, requires="accelerators"),
        Panel("MFU", "Share of the peak FLOPS of the devices in the update of the actor.",
              (query_driver("rlt_trainer_model_flops_utilization"),), unit="percentunit",
              requires="accelerators with a known peak", minimum=0),
        Panel("Node memory", "Used memory, maximum of all nodes.",
              (query_driver("rlt_trainer_node_memory_used_bytes"),), unit="bytes", minimum=0),
        Panel("Device memory", "Peak memory of torch's allocator, maximum of all devices.",
              (query_driver("rlt_trainer_device_memory_reserved_bytes"),), unit="bytes", requires="accelerators",
              minimum=0),
        Panel("Requests of the engines", "Requests in the rollout engines, and those that wait for one.",
              (query_driver("rlt_trainer_engine_requests", "{{job}} {{state}}"),), minimum=0, stacked=True),
        Panel("KV cache", "Used share of the KV cache of each engine.",
              (query_driver("vllm:kv_cache_usage_perc", "{{job}} {{engine}}"),), unit="percentunit", minimum=0,
              maximum=1, requires="the engine vllm"),
        Panel("Preemptions", "Requests per second whose KV cache an engine dropped, because it was full.",
              (Query(f"rate(vllm:num_preemptions_total{JOB}[$__rate_interval])", "{{job}} {{engine}}"),), minimum=0,
              requires="the engine vllm"),
    ),
)
SANDBOXES = Row(
    "Sandboxes",
    (
        Panel("Sandbox pods",
              "Pods that are ready, that conversations use, and that are missing from poolSize. None ready and many "
              "missing: pods do not start.",
              (Query(f"rlt_job_sandboxes{NAME}", OF_JOB + " {{state}}"),), minimum=0, stacked=True,
              requires="rollout.multiTurn.sandbox"),
        Panel("Time of a claim", "Time until a claim had its pod, without the time in which all of poolSize is in use.",
              (query_driver("rlt_trainer_sandbox_claim_seconds_p50", "{{job}} p50"),
               query_driver("rlt_trainer_sandbox_claim_seconds_p99", "{{job}} p99")),
              unit="s", minimum=0, requires="rollout.multiTurn.sandbox"),
        Panel("Failed sandboxes",
              "Pods that were lost, and claims without a pod, since the last step. Their conversations are left out.",
              (query_driver("rlt_trainer_sandbox_failures"),), minimum=0, requires="rollout.multiTurn.sandbox"),
    ),
)
GPUS = Row(
    "GPUs",
    (
        Panel("GPU utilization", "Share of the time in which a kernel ran.",
              (query_pods("DCGM_FI_DEV_GPU_UTIL"),), unit="percent", minimum=0, maximum=100,
              requires="NVIDIA's dcgm-exporter"),
        Panel("GPU memory", "Used framebuffer memory in MiB.",
              (query_pods("DCGM_FI_DEV_FB_USED"),), unit="mbytes", minimum=0, requires="NVIDIA's dcgm-exporter"),
        Panel("GPU power", "Power draw.",
              (query_pods("DCGM_FI_DEV_POWER_USAGE"),), unit="watt", minimum=0, requires="NVIDIA's dcgm-exporter"),
    ),
)
RAY = Row(
    "Ray",
    (
        Panel("CPU of the pods", "Used share of each pod's CPUs.",
              (Query(f"ray_node_cpu_utilization{JOB}", "{{pod}}"),), unit="percent", minimum=0,
              requires="the metrics of Ray"),
        Panel("Memory of the pods", "Used memory of each pod.",
              (Query(f"ray_node_mem_used{JOB}", "{{pod}}"),), unit="bytes", minimum=0, requires="the metrics of Ray"),
        Panel("Network of the pods", "Sent and received bytes per second of each pod. RDMA is not included.",
              (Query(f"ray_node_network_send_speed{JOB}", "{{pod}} sent"),
               Query(f"ray_node_network_receive_speed{JOB}", "{{pod}} received")),
              unit="Bps", minimum=0, requires="the metrics of Ray"),
    ),
)
RUN = Dashboard(
    uid="rlt-run",
    title="rlt / Run",
    variables=VARIABLES,
    annotations=ANNOTATIONS,
    rows=(NOW, LEARNING, STABILITY, STEP_TIME, THROUGHPUT, SANDBOXES, GPUS, RAY),
)
