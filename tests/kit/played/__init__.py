"""A model that has its answers from scripts, so that other people's agents can be led through whole loops.

scripts.py         What a test writes, and what the model says to a prompt
played_engine.py   vLLM on a core that says it, in the tokens of a real vocabulary
"""
