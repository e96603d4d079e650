# mypy: ignore-errors
from lmi.handler import handle  # noqa: F401
