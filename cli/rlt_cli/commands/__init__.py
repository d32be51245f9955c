"""The commands, one module each. `rlt_cli.main` imports a module when its command is used."""
