"""Several devices and several hosts: the options, and how vLLM's own sizes follow from them.

options.py          what is declared
rules.py            sizes, and what does not go together
"""
