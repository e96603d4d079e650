"""What several dialects share, and none owns.

json_body.py, body_size.py     a body's bytes as values, and how large it may be
json_faults.py     what is wrong with one that is no JSON
kinds.py           what a field may be: reads it, and describes itself as a schema and in words
fields.py          a table's row of a field, unknown names, headers that no dialect serves
vllm_fields.py     the rows of the fields that vLLM adds to requests, for the tables of dialects; vllm_kinds.py: of what
                   kinds they are
schemas.py         JSON schemas, put together
guides.py          what an answer must conform to: response_format, guided decoding; guide_rows.py: as rows
custom_tools.py    tools whose input is a text, as functions
images.py          the parts of messages that are images
encoder.py         the state of an encoder that hosts read
finish.py          how the end of a sequence is called
embedding_reply.py vectors as answers
"""
