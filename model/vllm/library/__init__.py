"""What of vLLM the backend touches that vLLM does not document, and which versions have it.

version.py      which versions of vLLM are supported
parts.py        the private names, each looked for when the engine starts
internals.py    what is done with some of them
answer_ids.py   an answer's ids, as vLLM's parsers take them
output_reader.py    what the core sends, read from the socket of vLLM's client
"""
