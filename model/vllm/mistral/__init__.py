"""Models with Mistral's own tokenizer (option.tokenizer_mode=mistral): mistral-common makes their prompts and the
grammars of their calls, and is stricter than chat templates are.

conversations.py   what a conversation needs: the next one, its efforts, and what is refused by name
messages.py        a conversation's messages, as it takes them
media.py           the prompt where it has images or audio
grammars.py        the grammars of its calls, whatever version of it is installed, and what runs them
tokens.py          the text of its tokens, by their bytes
"""
