"""A generation, made into vLLM's own requests, beside the event loop.

requests.py              the whole: a request for each sequence
prompt.py, chat.py, images.py     its prompt: text, conversation, pictures
structured.py            its grammar
sampling.py, bounds.py   its parameters; what vLLM's model runners have room for
"""
