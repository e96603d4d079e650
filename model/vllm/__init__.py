"""The backend on vLLM. Only this folder imports what is vLLM's, and only inside functions; but for text/tokenizer.py
(slow tokenizers, by vLLM's detokenizer) and process/crash_report.py (whose import sets a handler of its own).

engine.py                  generation: an AsyncBackend (model/engine.py); embedding.py: models that embed
core.py, core_outputs.py   vLLM's core, in processes of its own, and what its outputs hold
start.py, options.py       vLLM's arguments and its start
requests.py                a request, made ready: what the following files make of it
prompt.py, chat.py, images.py, structured.py     its prompt, conversation, pictures, grammar
sampling.py, typical.py    its parameters
trial.py                   a token at start, which shows that this vLLM's API is the one that we know
beam.py                    steps the beam search of model/search
internals.py               vLLM's private parts, all of them: each is checked when the engine starts
"""
