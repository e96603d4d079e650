"""What `lmi check` says of parts of a model directory.

adapters.py     of its adapters
container.py    what is in the container alone
families.py     of the parsers that its model needs
media.py        of images, audio and videos that it takes
secure_mode.py  of what SageMaker's secure mode forbids
workers.py      of DJL Serving's workers
"""
