"""Prompts as vLLM takes them.

prompt.py        of a text or of token ids; what vLLM says where it refuses one
encoding.py      a text's token ids; known_parts.py: those of parts that come again
plain_chat.py    the text of a conversation of texts alone
roles.py         what becomes of roles that a chat template does not know
"""
