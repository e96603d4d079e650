"""From token ids to exact text.

tokenizer.py          a tokenizer, asked for pieces of text
detokenizer.py        ids to text as they come, stop strings held back
answers/              an answer split into reasoning, tool calls and content
response_limit.py     how long an answer may be
prompt_limits.py      how long a prompt may be, and what it leaves for the answer
prompt_pieces.py      those of a long prompt in pieces, and put together again
prompt_tokens.py      what is told of a prompt of which only the tokens are wanted
template_messages.py  the messages of a conversation as chat templates take them
efforts.py            how much a model is to think, of what it knows
chat_template.py      the template that the options give instead of the model's
grammar_limits.py     what takes a backend of grammars too long; structural_tags.py: the same of a guide of guides
repetitions.py        in how many ways a text can be divided among the repetitions of an expression
"""
