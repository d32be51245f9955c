"""Small sources for `rlt convert`, and those that it cannot read."""

from __future__ import annotations

from conversions_frameworks import FRAMEWORKS
from conversions_manifests import MANIFESTS
from conversions_scripts import SCRIPTS

CONVERSIONS = (*SCRIPTS, *FRAMEWORKS, *MANIFESTS)

UNREADABLE = {
    'A="x\npython3 train.py': 'line 1: the quote " is not closed',
    "x=1\npython3 train.py $(date": "line 2: ( is not closed",
    "A=1\necho hello": "line 2: the script ends without a training program. Understood: 1 variables, and "
    "the commands echo",
    "": "line 1: source is empty",
    "a: 1\nb: 2": "line 1: source is YAML with the keys a, b, and none of the formats",
    "apiVersion: ray.io/v1\nkind: [": "line 2: it is not YAML",
}
"""Source -> beginning of the error."""
