"""The commands, one file each; every file's `command` is loaded when somebody asks for it."""
