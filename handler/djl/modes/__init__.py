"""How Java calls: again and again with every open request, once for each of them, or with a batch.

rolling_batch.py   Java calls again and again with every open request
async_mode.py      Java awaits each request; what all have to say after a step goes to it in one message
gathering.py       text of streams gathers where Java is behind
dynamic_batch.py   Java calls with a batch and waits for all of it
call_limit.py      how long a dynamic batch may take, before Java kills the worker
last_chunk.py      the end of a dynamic batch's stream, so that Java's reader keeps its place
"""
