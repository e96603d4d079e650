"""The backend on vLLM. Only this folder imports what is vLLM's, and only inside functions; but for text/tokenizer.py
(slow tokenizers, by vLLM's detokenizer) and process/ending/crash_report.py (whose import sets a handler of its own).

engine.py, sequences/      generation: an AsyncBackend (model/backend.py), and its sequences, from outputs to text
pooling/                   models that embed
aside.py                   what takes too long for the event loop
core.py, core_outputs.py   vLLM's core, in processes of its own, and what its outputs hold
watch.py                   the engine's process ends with any of those
adapters.py                LoRA adapters in vLLM's core
lora_patches.py            what is put right of them where the model runs
stats/                     vLLM's own lines and metrics of what it computes
start.py, options.py       vLLM's arguments and its start
configured.py              what of a start needs no weights
setup/                     what is checked and done before the core starts; how much its KV cache holds
request/                   a generation, made into vLLM's own requests
media/                     images, audio and videos: decoded, and in vLLM's renderer
mistral/                   models with Mistral's own tokenizer
guides/                    what a text must match: compiled, begun, and guided in the core
typical.py                 typical_p, which vLLM does not have: a logits processor
trial.py                   some tokens at start, which show that this vLLM's API is the one that we know
languages.py               what language is spoken, of models that are asked for it first
beam.py                    runs the beam search of model/search
library/                   vLLM's versions, its private parts and their use
"""
