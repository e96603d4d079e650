"""What the environments of other containers mean here: Hugging Face's names, TGI's, those of AWS's vLLM images.

variable.py     what can be declared of a variable, and how texts become others
tgi.py          Hugging Face's names and TGI's; vllm_image.py: SM_VLLM_*, and AWS's own
cluster.py      LeaderWorkerSet's and DJL Serving's, of several hosts
reading.py      all of them beside serving.properties and OPTION_*: who goes first, which variable a value came from
document.py     the tables for docs/migrating.md

A variable becomes one option or several, has no effect, or is refused with what to write instead. Options do not know
of this: a fault of one gets the variable as its source (OptionReader, `naming`).
"""
