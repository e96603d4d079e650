"""Threads beside the host's and the engine's.

deferred.py   an exchange whose work they do; prepared.py: what it is prepared to
merging.py    what has waited for a thread, as fewer events
pool.py       threads for user code, large bodies and sessions; user_loop.py: the event loop of what is asynchronous
sweeper.py    the thread that ends what has taken too long
"""
