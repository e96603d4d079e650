"""`lmi chat`: a conversation with a model, in the terminal.

command.py  whom it talks with
talk.py     lines in, answers out, from the first to the last
client.py   one server, by OpenAI's chat completions
screen.py   how answers look: on a terminal, and elsewhere
local.py    a server of one's own, for a model directory
"""
