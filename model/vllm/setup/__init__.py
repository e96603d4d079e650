"""What has to be done before vLLM's core is started, and what is told of its start.

heads.py        whether the attention heads can be shared out to all devices
hosts.py        other hosts that take part
plugins.py      files of the user's that register parsers with vLLM
lmcache.py      LMCache: whether it is there, and the sizes of its caches
cache_room.py   how many tokens the KV cache holds
steps.py        which step a start is at, and how long that has taken
"""
