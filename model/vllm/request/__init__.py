"""A generation, made into vLLM's own requests, beside the event loop.

requests.py              the whole: a request for each sequence; repeated.py: of a sampling that came before
prepared.py              what it is then
prompts/                 its prompt; chat.py: a conversation's; repeated_forms.py: of tools that came before
transcription.py         audio that is to be written down, by the model's class
harmony/                 gpt-oss, which has no template, and answers of its own form
answer_parsers.py        what takes its answers apart; cohere.py: Cohere's; marks.py: reasoning's marks
results.py               media in results
sampling.py, bounds.py   its parameters; what vLLM's model runners have room for
beams.py, budget.py      what a beam search, and an end of the reasoning, need of the engine
"""
