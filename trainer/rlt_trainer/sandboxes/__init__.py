"""The sandbox pods of a job (rollout.multiTurn.sandbox): claim one, run programs in it, release it."""
