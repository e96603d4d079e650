"""LoRA adapters as they are registered: by the folder `adapters`, by the management API, by name on first use.

registry.py     all of them: which one a name means, the management API
entries.py      a registration, and the table of them
start.py        those that are there at the start
loading.py      a registration on its way: files, code, engine
sources.py      what a registration may be: names, paths; what those of A.4 of DJL's API say
store.py        the file that keeps them for the next start

What loads them in the engine is model/adapters/residents.py; which one a request names, formatters/adapters.py.
"""
