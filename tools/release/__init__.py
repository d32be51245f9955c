"""Build a release: `make release VERSION=0.1.0`. docs/release.md describes its files and how to verify them."""
