"""The product's errors."""

from __future__ import annotations

from lmi.model.errors import (
    AdapterError,
    ContentFilterError,
    ContextError,
    EngineError,
    ForbiddenError,
    GenerationError,
    LmiError,
    MediaTypeError,
    MemoryShortError,
    ModelNotFoundError,
    NoSlotError,
    NotFoundError,
    OptionError,
    OverloadedError,
    ParameterError,
    PayloadError,
    PreviousResponseError,
    RequestCancelledError,
    RequestError,
    SessionError,
    SlowReaderError,
    StartError,
    TimeLimitError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedError,
    UserCodeError,
)

__all__ = [
    "AdapterError", "ContentFilterError", "ContextError", "EngineError", "ForbiddenError", "GenerationError",
    "LmiError", "MediaTypeError", "MemoryShortError", "ModelNotFoundError", "NoSlotError", "NotFoundError",
    "OptionError", "OverloadedError", "ParameterError", "PayloadError", "PreviousResponseError",
    "RequestCancelledError", "RequestError",
    "SessionError", "SlowReaderError", "StartError", "TimeLimitError", "TooLargeError", "UnauthorizedError",
    "UnavailableError", "UnsupportedError", "UserCodeError",
]  # fmt: skip
