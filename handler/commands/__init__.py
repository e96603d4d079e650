"""The command `lmi`: cli.py reads its arguments; check.py and package.py are commands of several steps."""
