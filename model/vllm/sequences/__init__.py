"""From the core's outputs to events.

group.py       what the sequences of one generation share
sequence.py    one of them: its text, tokens and end
likeliest.py   log-probabilities as events have them
"""
