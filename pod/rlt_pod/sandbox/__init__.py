"""The pods of rollout.multiTurn.sandbox: the server in a pod, and its protocol."""
