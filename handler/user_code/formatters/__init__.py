"""Formatters of users, as the container's own handler takes them.

djl_formatters.py       djl_python's input and output formatters, by the form that a function has
response_formatter.py   those that get a response; token_formatter.py: those that get tokens
sagemaker_functions.py  SageMaker's functions in their place; what of a model.py is refused
tokenizer.py            the tokenizer that such a function is given
"""
