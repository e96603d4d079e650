"""Code of users: what is found in a model directory, and how it runs.

extensions.py      all that a model directory brings, found and checked at start
loading.py         model.py, names of objects, decorated functions
former_fields.py   what a dialect of the user's says of its fields in the former way
dialect.py         a dialect of the user's; content_filter.py: its filter of prompts and answers;
                   filtered_text.py: what it judges of an answer
formatters/        djl_python's input and output formatters, SageMaker's functions
custom_handler.py  model.py's handle, which is asked before this handler
adapter_code.py    formatters in an adapter's folder
safe_reply.py      what fails in it ends its own request only

It runs on the threads of handler/threads, for requests that handler/threads/deferred.py holds.
"""
