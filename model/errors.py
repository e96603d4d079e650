"""What can go wrong with a request or with the engine, as one tree.

    LmiError
    ├── RequestError          the client's doing; the same body would fail again
    │   ├── PayloadError        the body cannot be read: not JSON, a field missing or of the wrong type
    │   ├── ParameterError      a parameter's value is out of range
    │   │   └── ContextError      the prompt does not fit the model's context
    │   ├── UnsupportedError    understood, but this model or engine cannot honour it
    │   ├── ContentFilterError  the user's content filter flagged the prompt
    │   ├── MediaTypeError      the body is not JSON by its Content-Type
    │   ├── TooLargeError       the body is longer than may be
    │   ├── UnauthorizedError   no key, or a wrong one
    │   ├── ForbiddenError      a web page's request that no page of ours makes
    │   ├── SessionError        a session that cannot be had: unknown, expired, one too many
    │   └── NotFoundError       no such route
    │       └── ModelNotFoundError  no such model or adapter
    ├── EngineError           our doing; the same body may succeed later
    │   ├── GenerationError     this request failed in the engine; others go on
    │   ├── UserCodeError       user code (a formatter, a dialect, a filter) failed on this request
    │   ├── OverloadedError     a limit on queued work was reached
    │   ├── TimeLimitError      the request took longer than may be
    │   ├── SlowReaderError     the client does not read its answer
    │   ├── RequestCancelledError   somebody has cancelled the request by its id
    │   ├── AdapterError        an adapter cannot be loaded
    │   │   ├── AdapterNotFoundError  none of that name is registered, or its folder is not there
    │   │   ├── AdapterExistsError    another one has its name
    │   │   ├── AdapterForbiddenError secure mode forbids what is in its folder
    │   │   └── NoSlotError           there is no room for it
    │   └── UnavailableError    the engine is starting, being rebuilt, or gone
    └── StartError            the model cannot be served at all
        ├── OptionError         an option is unknown or its value is wrong
        └── MemoryShortError    not enough memory for weights or KV cache

Each dialect renders an error in its own shape; a host only adds what its protocol demands. `status` is the HTTP status
that the error has where nothing else is laid down, `code` a stable word for programs, `param` the offending field,
`faults` what is wrong as data (Fault), `retry_after` in how many seconds the same request may succeed, for the header
Retry-After (RFC 9110, 10.2.3). Messages are one line: the Java front end turns a line break into a 500.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import msgspec

from .faults import OPTION, Fault, most_like, one_line, shown, text_of

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11

__all__ = [
    "OPTION",
    "AdapterError",
    "AdapterExistsError",
    "AdapterForbiddenError",
    "AdapterNotFoundError",
    "ContentFilterError",
    "ContextError",
    "EngineError",
    "ErrorMessage",
    "Fault",
    "ForbiddenError",
    "GenerationError",
    "LmiError",
    "MediaTypeError",
    "MemoryShortError",
    "ModelNotFoundError",
    "NoSlotError",
    "NotFoundError",
    "OptionError",
    "OverloadedError",
    "ParameterError",
    "PayloadError",
    "RequestCancelledError",
    "RequestError",
    "SessionError",
    "SlowReaderError",
    "StartError",
    "ThreadError",
    "TimeLimitError",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
    "UnsupportedError",
    "UserCodeError",
    "most_like",
    "one_line",
    "raised_by_us",
    "refuse",
    "shown",
]


def raised_by_us(error: BaseException) -> bool:
    """Whether a line of ours raised it, and not a library's that was called from there.

    Such as a call that a library does not take, or an attribute that it does not have: no fault of the request's.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(f"{OURS}.")


OURS = __name__.partition(".")[0]


class LmiError(Exception):
    """The root: a message of one line, and the field that it is about, if it is about one.

    `param` is the client's field, and where an engine raises it, the path of the field in a Generation, with which the
    message begins: `sampling.max_tokens: expected ...`. Of what a Failed carries to a client the dialect's own names
    are put in the places of paths (formatters/client_fields.py).
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    retry_after: ClassVar[int | None] = None

    def __init__(self, message: str, param: str | None = None, faults: Iterable[Fault] = ()) -> None:
        """`faults`: what the message says, where it was made of that."""
        self.message = one_line(message)
        self.param = param
        self.faults = tuple(faults)
        super().__init__(self.message)

    @property
    def kind(self) -> str:
        """The class's name, which ErrorMessage turns back into the class."""
        return type(self).__name__


class RequestError(LmiError):
    """The request cannot be served as it is."""

    status = 400
    code = "invalid_request_error"

    @classmethod
    def of(cls, param: str, given: object, expected: str) -> Self:
        """The error that names the field, what was given and what was expected."""
        return cls.because(Fault(param, expected=expected, given=shown(given)))

    @classmethod
    def because(cls, fault: Fault) -> Self:
        """The error that says so."""
        return cls(fault.sentence(""), fault.name, (fault,))


class PayloadError(RequestError):
    """The body cannot be read: not JSON, a required field missing, a field of the wrong type."""

    code = "invalid_payload"


class ParameterError(RequestError):
    """A parameter has the right type but a value that makes no sense."""

    code = "invalid_parameter"


class ContextError(ParameterError):
    """The prompt, or the prompt with the tokens asked for, is longer than the model's context."""

    code = "context_length_exceeded"


class UnsupportedError(RequestError):
    """Something that this model or engine cannot do."""

    code = "unsupported"


class PreviousResponseError(ParameterError):
    """There is no response that the request is to go on after; by this code OpenAI's clients send all items again."""

    code = "previous_response_not_found"


class ThreadError(UnsupportedError):
    """The server keeps no conversations; by this code Anthropic's clients send all messages again."""

    code = "thread_unsupported_request"


class ContentFilterError(RequestError):
    """`option.content_filter` flagged the prompt (docs/decisions.md: Content filter); `param` is the prompt's field."""

    code = "content_filter"


class MediaTypeError(RequestError):
    """The body is of another kind than JSON, by its Content-Type."""

    status = 415
    code = "unsupported_media_type"


class TooLargeError(RequestError):
    """The body is longer than `option.max_body_bytes`."""

    status = 413
    code = "request_too_large"


class UnauthorizedError(RequestError):
    """The key is missing or wrong."""

    status = 401
    code = "unauthorized"


class ForbiddenError(RequestError):
    """A web page's request that the local server does not serve; `param` is the header that shows it."""

    status = 403
    code = "forbidden"


class SessionError(RequestError):
    """A session is unknown, has expired or cannot be made; the status is djl_python's (session_utils)."""

    status = 424
    code = "session_error"


class NotFoundError(RequestError):
    """No such route, or nothing of that id."""

    status = 404
    code = "not_found"


class ModelNotFoundError(NotFoundError):
    """No such model or adapter."""

    code = "model_not_found"


class EngineError(LmiError):
    """The request was fine; the engine failed it."""

    code = "engine_error"


class GenerationError(EngineError):
    """The engine failed this request alone."""

    code = "generation_failed"


class UserCodeError(EngineError):
    """User code raised, or returned what it may not; the message names the function."""

    code = "user_code_failed"


class OverloadedError(EngineError):
    """Too much is queued already."""

    status = 429
    code = "rate_limit_exceeded"
    retry_after = 1


class TimeLimitError(EngineError):
    """The request has taken longer than it may: `option.request_timeout`, or less where the host waits for less
    (handler/djl/modes/call_limit.py).
    """

    status = 504
    code = "time_limit_exceeded"


class SlowReaderError(EngineError):
    """`option.max_unsent_bytes` of the answer wait for the client to read them."""

    code = "slow_reader"


class RequestCancelledError(EngineError):
    """A CANCEL has named the request's id. 499 is nginx' status for a client that has gone: nobody tries it again."""

    status = 499
    code = "request_cancelled"


class AdapterError(EngineError):
    """An adapter cannot be loaded, or not be used as it is; the status is djl_python's (adapter_manager_mixin)."""

    status = 424
    code = "adapter_failed"


class AdapterForbiddenError(AdapterError):
    """Secure mode forbids what is in its folder; the status is DJL Serving's (SecureModePlugin)."""

    status = 400
    code = "adapter_forbidden"


class AdapterNotFoundError(AdapterError):
    """None of that name is registered (`param` is name), or no folder is where it is said to be (src)."""

    status = 404
    code = "adapter_not_found"


class AdapterExistsError(AdapterError):
    """Another one has its name; 409 is DJL Serving's status for that."""

    status = 409
    code = "adapter_exists"


class NoSlotError(AdapterError):
    """There is no room for the adapter; 507 is DJL's code for too little memory."""

    status = 507
    code = "no_adapter_slot"


class UnavailableError(EngineError):
    """There is no engine just now: it is starting, being rebuilt, or could not be rebuilt."""

    status = 503
    code = "engine_unavailable"
    retry_after = 10


class StartError(LmiError):
    """The engine cannot be brought up."""

    code = "start_failed"


class OptionError(StartError):
    """Options are unknown or have values that cannot be used; `param` is the first one's name.

    There is always a fault at least: one by itself, of `message`, where nothing else is known.
    """

    code = "invalid_option"

    def __init__(self, message: str, param: str | None = None, faults: Iterable[Fault] = ()) -> None:
        super().__init__(message, param, tuple(faults) or (Fault(param, one_line(message), source=""),))

    @classmethod
    def of(cls, name: str, why: str = "", *, expected: str = "", given: object = None, instead: str = "") -> Self:
        """For one option; without `given` the message does not say what was."""
        return cls.of_all([Fault(name, why, expected, "" if given is None else shown(given), instead)])

    @classmethod
    def of_all(cls, faults: Iterable[Fault]) -> Self:
        """For one option or for several, one fault at least."""
        found = tuple(faults)
        return cls(text_of(found), found[0].name, found)

    def come_from(self, sources: Mapping[str, str]) -> None:
        """Options, by whose names `sources` has the variables that they came from, are named by these from now on."""
        self.faults = tuple(fault.come_from(sources.get(fault.name or "")) for fault in self.faults)
        self.message = text_of(self.faults)
        self.args = (self.message,)


class MemoryShortError(StartError):
    """There is not enough memory; hosts report it as 507 (DJL's out-of-memory code)."""

    status = 507
    code = "out_of_memory"


def _with_subclasses(kind: type[LmiError]) -> Iterator[type[LmiError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _with_subclasses(below)


_KINDS = {kind.__name__: kind for kind in _with_subclasses(LmiError)}


class ErrorMessage(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """An error, for another process."""

    kind: str
    message: str
    param: str | None = None
    faults: tuple[Fault, ...] = ()

    @classmethod
    def of(cls, error: LmiError) -> Self:
        """What carries `error`."""
        return cls(error.kind, error.message, error.param, error.faults)

    @property
    def error(self) -> LmiError:
        """The error again, of its class; an unknown kind becomes the root class."""
        return _KINDS.get(self.kind, LmiError)(self.message, self.param, self.faults)


def refuse(faults: Iterable[Fault]) -> None:
    """Raises one OptionError for all `faults`, if there are any."""
    if found := tuple(faults):
        raise OptionError.of_all(found)
