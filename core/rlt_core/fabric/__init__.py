"""From nodes to what their network and accelerators want: facts, then a profile, then settings, each with its reason.

Everything here is pure: nodes as JSON and demands go in, frozen values come out. `explain.decide_fabric` is the way
in.
"""
