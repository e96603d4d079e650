"""What `lmi check` says of parts of a model directory.

adapters.py     of its adapters
families.py     of the parsers that its model needs
workers.py      of DJL Serving's workers
"""
