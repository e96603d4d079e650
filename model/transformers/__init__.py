"""The backend on transformers, for models that vLLM does not have. Imports nothing of vllm/.

engine.py                      a Backend (model/engine.py)
load.py, options.py            the model and its arguments
chat.py, requests.py           a request's conversation, prompt, sequences
sampling.py, structured.py     the next token, by the library's logits processors; a grammar, by xgrammar's
batching.py                    sequences run together, by the library's continuous batching
loops.py                       sequences run each in a loop of the library's `generate`, where that is not possible
"""
