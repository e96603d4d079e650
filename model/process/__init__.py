"""The engine in a process of its own: nothing that it does can end the host's.

    host's process                            engine's process
    client.py -- messages.py over child.py --> engine_loop.py --> an AsyncBackend (model/backend.py)

client.py            the Engine that hosts know; starts the process again when it dies
dispatch.py          hands its events to the requests that wait for them
child.py, group.py   the process itself, and all that it has started
channel.py           how the two send; messages.py: what they say to each other
engine_main.py       the engine's process, from its start to its end
engine_loop.py       what runs in it: takes requests in, hands the backend's events out
stepper.py           a user's own engine, which is driven step by step (a Backend), for that loop
prepare.py           a request before the engine sees it: its images, its prompt
adapter_calls.py     what the host asks of it about LoRA adapters
scrapes.py           its metrics, when somebody asks
token_budget.py      how many tokens may be waiting
ending/              how the process ends, and what it says then

The backend on vLLM uses what is here; nothing here imports it: model/backend.py finds it by name.
"""
