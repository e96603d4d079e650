"""Guided decoding: what a text must match, and from where on.

structured.py     what a request is guided by; joined.py: its own guide or calls in the model's form
backends.py       which of vLLM's backends guides it, compiled there first
schema_places.py  where in a JSON schema something is at fault, or lost on xgrammar
beginning.py      with the first token, or behind the reasoning
in_core.py        what the core's process does for it
allowed_ids.py    what its workers do for requests that allow some tokens alone
faults.py         whose fault it is where the core gives a sequence up
"""
