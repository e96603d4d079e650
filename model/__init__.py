"""What is generated and by what; knows no wire format and no host.

generation.py, events.py, errors.py    the values that everything speaks in
engine.py                              the Engine and Backend protocols, the table of backends
remote.py, wire.py, engine_process.py  an engine in a process of its own, and its rebuilding
vllm_engine.py ...                     one backend: vLLM
text.py, tokenizer.py                  from token ids to exact text
options.py, option_table.py ...        `option.*` as typed settings
demo_model.py ...                      a small model to try everything with
"""
