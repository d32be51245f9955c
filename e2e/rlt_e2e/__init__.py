"""The embedded Kubernetes cluster, the test suites, the demo and the faults of `make chaos`."""
