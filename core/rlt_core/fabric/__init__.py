"""The fabric of some nodes: the facts of each node, then a profile, then settings with their reasons.

All functions are pure: nodes as JSON and demands in, frozen values out. `decision.decide_fabric` is the entry point.
"""
