"""The command line `rlt`, which is also `kubectl rlt`."""
