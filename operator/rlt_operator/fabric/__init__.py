"""From nodes to what their network and accelerators want: facts, then a profile, then settings, each with its reason.

Everything here is pure: nodes as JSON and a demand go in, frozen values come out. `explain.network` is the way in.
"""
