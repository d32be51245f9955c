"""How a job's driver tells how far it is: rlt's own trainer, and the program that follows any other command.

Python 3.8 and its standard library are all that it asks for: it is mounted into images that are not rlt's own.
"""

METRICS_PORT = 8090
"""The driver's HTTP port on the head: /metrics (Prometheus), /progress (ProgressReport), /healthz."""
PROGRESS_PREFIX = "rlt-progress "
"""The driver's last line on standard output is this and its last ProgressReport as JSON: it outlives the server."""
PREFLIGHT_PREFIX = "rlt-preflight "
"""The last line of the checks before a training is this and a list of PreflightCheck as JSON."""
TRAINER_ERROR = "rlt-trainer: error:"
"""What the trainer's last word on a failure begins with."""
LATEST_STEPS = 10
"""So many steps make the mean duration that the time left is estimated from."""
METRICS = {
    "reward": ("critic/rewards/mean", "critic/score/mean"),
    "kl": ("actor/kl_loss", "actor/reward_kl_penalty", "critic/kl"),
    "entropy": ("actor/entropy", "actor/entropy_loss"),
    "responseLength": ("response_length/mean",),
    "loss": ("actor/pg_loss",),
    "gradNorm": ("actor/grad_norm",),
    "clipFraction": ("actor/pg_clipfrac",),
}
"""Field of ProgressMetrics -> verl's names for it; the first that is there counts.

The KL divergence to the reference model is kl_loss where it is part of the loss, and reward_kl_penalty (critic/kl until
verl 0.2) where it is part of the reward. actor/ppo_kl is another thing: the divergence from the policy that sampled.
actor/entropy was called entropy_loss until verl 0.4.
"""
