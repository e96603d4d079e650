"""The backend on transformers, for models that vLLM does not have. Imports nothing of vllm/.

engine.py                      a Backend (model/engine.py)
load.py, options.py            the model and its arguments
chat.py, requests.py, structured.py     a request's conversation, prompt, grammar
scheduler.py, batch.py         which sequences run in the next pass
forward.py, cache.py, solo.py  the pass
sampler.py, beam.py            the next token
"""
