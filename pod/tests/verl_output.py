"""Output of verl, OpenRLHF and ROLL, for tests that parse it."""

# Output of verl: the first part of a step line (verl-project/verl#7412) and of the progress bar (#2566).
VERL_LINE = (
    "(TaskRunner pid=222265) step:34 - global_seqlen/min:419336 - global_seqlen/max:497506 - "
    "global_seqlen/minmax_diff:78170 - global_seqlen/balanced_min:458960 - global_seqlen/balanced_max:458975 - "
    "global_seqlen/mean:458966.5 - actor/entropy:0.22266578674316406 - perf/mfu/actor_infer:0.0 - "
    "actor/pg_clipfrac:0.0007935191160472839 - actor/ppo_kl:-8.163164312320433e-06 - "
    "actor/pg_clipfrac_lower:6.1140820869933e-07 - actor/pg_loss:0.042396901015308686 - "
    "actor/kl_loss:0.0013280365410537343 - actor/kl_coef:0.0010000000000000002 - actor/loss:0.042398229241371155 - "
    "actor/grad_norm:0.129638671875 - actor/perf/max_memory_allocated_gb:24.52155876159668 - "
    "actor/perf/max_memory_reserved_gb:27.626953125 - actor/perf/cpu_memory_used_gb:148.17413711547852 - "
    "actor/lr:2e-06 - perf/mfu/actor:0.0 - training/global_step:34 - training/epoch:0 - "
    "critic/score/mean:-0.0182796623557806 - critic/score/max:1.0 - critic/score/min:-1.0 - "
    "critic/rewards/mean:-0.0182796623557806 - critic/rewards/max:1.0 - critic/rewards/min:-1.0 - "
    "critic/advantages/mean:-0.0423407182097435 - critic/advantages/max:1.7888524532318115 - "
    "critic/advantages/min:-1.7888524532318115 - critic/returns/mean:-0.0423407182097435 - "
    "critic/returns/max:1.7888524532318115 - critic/returns/min:-1.7888524532318115 - "
    "response_length/mean:1267.024169921875 - response_length/max:3072.0 - response_length/min:38.0"
)
VERL_BAR = "Training Progress:   0%|          | 1/624 [10:00<103:53:21, 600.32s/it]"

# In the forms of OpenRLHF 0.11.2 (openrlhf/trainer/ppo_trainer.py, fit) and of ROLL at 8eb27cc (roll/utils/logging.py,
# roll/utils/tracking.py, roll/pipeline): no recorded lines are published.
OPENRLHF_LINE = (
    "\x1b[36m(PPOTrainer pid=4711)\x1b[0m [2026-08-21 09:14:02] INFO ppo_trainer.py:551: ✨ Global step 12: "
    "{'policy_loss': -0.013671875, 'actor_lr': 5e-07, 'kl': 0.00021, 'reward': 0.4296875, 'entropy_loss': 0.31, "
    "'actor_grad_norm': 0.84375, 'ppo_clip_ratio': 0.0019, 'response_length': 611.2, 'total_length': 724.9, "
    "'timing/generation': 41.5, 'timing/step_total': 96.25, 'rollout/reward_mean': 0.4375, 'rollout/reward_std': nan, "
    "'rollout/response_length_mean': 612.5}"
)
ROLL_PREFIX = "[2026-08-20 11:02:33] [agentic_pipeline.py (612)] [INFO] [DRIVER 0 / 1][PID 912] "
ROLL_METRICS = (
    '"actor/kl_loss@sum": 0.0031, "actor/pg_loss@sum": -0.0125, "actor_train/grad_norm": 0.5, '
    '"actor/clipfrac@sum": 0.25, '
    '"critic/rewards/mean": 0.375, "critic/score/mean": 0.4, "tokens/response_length/mean": 512.0, '
    '"time/step_total": 80.5, "critic/kl": 0.002, "system/step": 7'
)
ROLL_LINE = f"{ROLL_PREFIX}{{{ROLL_METRICS}}}"
ROLL_TRACKER_LINE = f'{ROLL_PREFIX}metrics_tag: {{"step": 7, "metrics": {{{ROLL_METRICS}}}}}'
ROLL_END = f"{ROLL_PREFIX}pipeline step 7 finished"
