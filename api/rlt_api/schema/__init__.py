"""The CRDs and the schemas of editors, generated from the types."""
