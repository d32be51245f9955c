"""The protocol of a job's driver for its progress: rlt's trainer, and the program that runs any other command.

It needs only Python 3.8 and its standard library, because it is mounted into images that rlt does not build.
"""

METRICS_PORT = 8090
"""The driver's HTTP port on the head: /metrics (Prometheus), /progress (ProgressReport), /healthz."""
PROGRESS_PREFIX = "rlt-progress "
"""Prefix of the driver's last line on standard output, before its last ProgressReport as JSON. The log keeps it."""
PREFLIGHT_PREFIX = "rlt-preflight "
"""Start of the preflight checks' last line, before a list of PreflightCheck as JSON."""
STACK_FILE = "rlt-stacks"
"""The file in memory (memfd_create(2)) to which a process of the trainer writes its stacks on SIGUSR1."""
NO_PRELOAD = "RLT_NO_PRELOAD"
"""Environment variable of a process that does not need the trainer's modules (rlt_trainer.preload)."""
TRAINER_ERROR = "rlt-trainer: error:"
"""Start of the trainer's error message when it fails."""
LATEST_STEPS = 10
"""Number of steps in the mean duration that the ETA is based on, and in the mean reward of a run."""
METRICS = {
    "reward": ("critic/rewards/mean", "critic/score/mean", "rewards/margins"),
    "kl": ("actor/kl_loss", "actor/reward_kl_penalty", "critic/kl"),
    "entropy": ("actor/entropy", "actor/entropy_loss"),
    "responseLength": ("response_length/mean",),
    "loss": ("actor/pg_loss", "loss"),
    "gradNorm": ("actor/grad_norm",),
    "clipFraction": ("actor/pg_clipfrac",),
}
"""Field of ProgressMetrics -> verl's names for it, or TRL's for preferences; the first one that is present counts.

The KL divergence to the reference model is kl_loss if it is part of the loss, and reward_kl_penalty (critic/kl until
verl 0.2) if it is part of the reward. actor/ppo_kl is a different metric: the divergence from the policy that sampled.
actor/entropy was called entropy_loss until verl 0.4.
"""
