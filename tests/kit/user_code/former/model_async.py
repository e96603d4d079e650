# mypy: ignore-errors
from lmi.handler import handle as serve


async def handle(inputs):
    return await serve(inputs)
