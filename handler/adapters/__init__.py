"""LoRA adapters as they are registered: by the folder `adapters`, by the management API, by name on first use.

registry.py     all of them: names, what is loading, what failed
sources.py      what a registration may be: names, paths; what those of A.4 of DJL's API say
store.py        the file that keeps them for the next start

What loads them in the engine is model/process/residents.py; which one a request names, formatters/adapters.py.
"""
