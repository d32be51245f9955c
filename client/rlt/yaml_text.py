"""Objects as YAML."""

from __future__ import annotations


def to_yaml(data: object) -> str:
    """One YAML document, with multi-line strings as blocks and without aliases. kubectl reads strings as strings: 1e-6
    and y are in quotes."""
    import yaml  # few commands print YAML

    from rlt.manifest_files import is_text

    class Dumper(yaml.CSafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None if is_text(text) else "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120))
