# mypy: ignore-errors
from lmi.handler import handle as serve


def handle(inputs):
    return serve(inputs)
