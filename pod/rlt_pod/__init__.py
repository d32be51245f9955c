"""The programs that run in pods, in images without rlt.

They need only Python 3.8, the standard library and, for some preflight checks, Ray and torch of the image."""
