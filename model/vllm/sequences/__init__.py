"""From the core's outputs to events.

group.py       what the sequences of one generation share
sequence.py    one of them: its text, tokens and end
pace.py        how often a stream's text is made and sent
likeliest.py   log-probabilities as events have them
"""
