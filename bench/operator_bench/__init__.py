"""`make bench-operator`: the operator under load, on an embedded control plane with simulated nodes and Ray heads."""
