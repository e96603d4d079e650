"""The hosts that run one model together: how leader and followers find each other, and notice when one is gone.

    leader, the engine's process                              follower, `lmi follow`
    gather: listens ------------------------ Hello ---------> joins, again and again until somebody listens
    compares facts ------------------------- Refused, Go ---> starts vLLM's processes
    each watches the other ----------------- Beat, Ended ---> ends them, and joins again

facts.py          what must be the same on all hosts
messages.py       what they say to each other
connection.py     one connection: messages with a limit on time, and signs of life
leader.py         the leader's side
follower.py       the followers' side

It is beside vLLM's own connections, which start later, tell nothing of why, and notice a host's end after minutes.
"""
