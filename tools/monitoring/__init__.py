"""What is generated for monitoring: the list of metrics, alerts with their runbooks, and Grafana dashboards."""
