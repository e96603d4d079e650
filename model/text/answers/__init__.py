"""From the text of an answer to reasoning, text and tool calls.

parsers.py            the whole: vLLM's parsers, asked about streams and whole answers
answer_ids.py         an answer's ids, as they take them
reasoning.py          whether an answer begins with reasoning
marked_reasoning.py   reasoning between words of plain text
call_reader.py        calls that are held back until they are whole; text_marks.py: where in a text such begin
forced_calls.py       calls that are JSON, as guided decoding makes them; call_ids.py: the ids of calls
"""
