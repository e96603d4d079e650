"""What `lmi check` says of parts of a model directory.

adapters.py     of its adapters
container.py    what is in the container alone
families.py     of the parsers that its model needs
workers.py      of DJL Serving's workers
"""
