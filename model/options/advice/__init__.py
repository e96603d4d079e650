"""Names and values of other servers and of other versions of vLLM, with what to write instead.

row.py          what can be declared of a name or a value
lmi.py          LMI's former back ends: TensorRT-LLM, lmi-dist, transformers-NeuronX, DeepSpeed, the scheduler
vllm.py         vLLM's arguments that are gone, and those that only the newer of the two tested versions has
values.py       values of options that are there
find.py         all of them, and TGI's and the server's names of the environment's tables; likeness of names beyond them
families.py     which of vLLM's parsers a model's answers need
parsers.py      vLLM's parsers, for where vLLM is not installed, and those that are not served
meant.py        quotes and comments that have become part of a value
document.py     the table for docs/migrating.md

The start, `lmi check` and `lmi migrate` all read these tables. A row is consulted for a name that is no option and no
argument of the engine, and for a value before the option judges it.
"""
