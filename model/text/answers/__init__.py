"""From the text of an answer to reasoning, text and tool calls.

splitting.py          the engine's events, taken apart; part.py: what some tokens bring
text_splitter.py      answers of which nothing but the text is read as they come
parsers.py            vLLM's parsers, asked about streams and whole answers; told.py: what they have made of one so far
ahead.py              what is told of a stream before they have read it
reasoning.py          whether an answer begins with reasoning
marked_reasoning.py   reasoning between words of plain text
held_calls.py         calls that are held back until they are whole; call_reader.py: where they begin and end
text_marks.py         marks in a text that comes in pieces
forced_calls.py       calls that are JSON, as guided decoding makes them; call_ids.py: the ids of calls
shown_calls.py        calls as clients get them
"""
