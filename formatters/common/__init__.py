"""What several dialects share, and none owns.

json_body.py, body_size.py     a body's bytes as values, and how large it may be
json_faults.py     what is wrong with one that is no JSON
kinds.py           what a field may be: reads it, and describes itself as a schema and in words
fields.py          a table of fields, one row each; unknown names
prompts.py         token ids; prompts, which are texts or token ids, one or several
forms.py           objects and lists of fields: reads them, and describes them
vllm_fields.py     the rows of the fields that vLLM adds to requests, for the tables of dialects; vllm_kinds.py: of what
                   kinds they are
schemas.py         JSON schemas, put together
guides.py          what an answer must conform to: response_format, guided decoding, as rows of tables too
encoder.py         what every encoder is; how the end of a sequence is called
blocks.py          encoders of reasoning, texts and calls, one after the other
embedding_reply.py encoders of vectors
"""
