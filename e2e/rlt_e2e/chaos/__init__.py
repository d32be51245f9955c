"""`make chaos`: faults in the cluster of a learning job, and what each of them costs it."""
