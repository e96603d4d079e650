"""What is generated and by what; knows no wire format and no host.

generation.py, events.py, errors.py    the values that everything speaks in; faults.py: what is wrong, as data
conversation.py                        messages, their parts and calls
engine.py                              the Engine protocol: what hosts see
backend.py                             the protocols of what runs in its process: vLLM, or an engine of a user's
adapters/                              LoRA adapters: their files, what an engine does with them
options/                               `option.*` as typed settings
process/                               an engine in a process of its own, its death and its rebuilding
nodes/                                 the hosts that run one model together
text/                                  from token ids to exact text, and the limits of both
search/                                best of n, beam search
media/                                 images: fetched, checked
vllm/                                  the backend on vLLM
log.py, log_filters.py                 what is logged, and what is not
vllm_messages.py                       what vLLM says, by which we know what has happened
heap.py                                what the garbage collector leaves alone
former_names.py                        names that user code still imports
former_fields.py                       what it may still say of its fields in a Generation
"""

VERSION = "0.3.0"
"""As in pyproject.toml: what `lmi package` unpacks into a model directory has no metadata of an installed package."""
