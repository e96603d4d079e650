"""What several dialects share, and none owns.

json_body.py, body_size.py     a body's bytes as values, and how large it may be
fields.py          one field of a request: its type, its range, what it means
schemas.py         the same as JSON schemas
images.py          the parts of messages that are images
finish.py          how the end of a sequence is called
embedding_reply.py vectors as answers
"""
