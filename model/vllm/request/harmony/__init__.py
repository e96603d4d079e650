"""gpt-oss's conversations and answers, which are in a format of their own (Harmony) and have no chat template.

harmony.py       what chat.py asks where the model is one of them
vocabulary.py    openai_harmony's vocabulary, made of the model's tokenizer
prompts.py       a conversation's token ids, by vLLM's own builder
answers.py       an answer's messages, token by token: reasoning, calls, content
guides.py        where in an answer a guide holds, or a call is forced
"""
