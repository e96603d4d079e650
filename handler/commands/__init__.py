"""The command `lmi`: cli.py reads its arguments; check.py (check_adapters.py: of adapters, check_workers.py: of
workers), follow.py, package.py and migrate.py (migrate_source.py: what it reads, migrate_rules.py: what differs) are
commands of several steps."""
