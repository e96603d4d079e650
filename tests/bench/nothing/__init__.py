"""What a host by itself allows: a handler that does nothing but pass ready-made frames on, on the engine alone.

serve.py    `python -m tests.bench.nothing.serve MODEL_DIR MODE`: that handler behind DJL, as a layer of the bench
model.py    the handler: requests to engine.py, its frames to Java
engine.py   vLLM's AsyncLLM in a process of its own, whose answers are frames already
frames.py   the same bytes for the client as the handler's, made with the least work
"""
