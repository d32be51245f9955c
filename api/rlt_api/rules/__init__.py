"""The rules of a spec. Each function is named after its rule."""
