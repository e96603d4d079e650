"""The command `lmi`: cli.py reads its arguments; check.py (check_adapters.py: of adapters) and package.py are commands
of several steps."""
