"""Why a job waits or fails: evidence from pods, nodes and logs. Pure."""
