"""The command `lmi`: cli.py reads its arguments (arguments.py: what those of several commands mean). A file each:

serve.py        a model directory on this machine
chat/           a conversation in the terminal
check.py        what start-up would say; checks/: of adapters, parsers and workers
findings.py     how that is told
follow.py       this host's part of a model on several
package.py      model.tar.gz
migrate.py      other containers' configurations (migrate_source.py: what it reads, migrate_rules.py: what differs,
                migrate_entry.py: what it writes)
terminal.py     colours, and less of vLLM's lines, where a person reads them
"""
