"""The manifests of a job's children, one file for each kind. All functions are pure."""
