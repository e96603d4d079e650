"""What a request's session is to those who handle the request; what it is made of is in handler/sessions/."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["SESSION_HEADER", "Session"]

SESSION_HEADER = "X-Amzn-SageMaker-Session-Id"
"""What `invoke_endpoint(SessionId=...)` sends: a session's id, or NEW_SESSION."""


class Session(Protocol):
    """A session: values by key, which are there for its later requests, until it is closed or has expired.

    Its methods read and write files: they are for the threads of user code. All raise SessionError: the session has
    been closed meanwhile, there is no room, the value or the key is one that cannot be kept.
    """

    @property
    def id(self) -> str:
        """A UUID."""
        ...

    @property
    def expires(self) -> float:
        """When it does, by time.time()."""
        ...

    def put(self, key: str, value: Any) -> None:
        """Keeps bytes, a NumPy array (without objects), or what is JSON: a tuple comes back as a list, and keys of
        dicts as strings. In a key `/` is the same as `-`.
        """
        ...

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or `default` where there is none."""
        ...

    def get_as_numpy(
        self, key: str, shape: tuple[int, ...] | None = None, dtype: Any = None, create: bool = False
    ) -> Any:
        """The array as a memory map: what is written to it is kept at once. With `create` a new one, of zeros.

        `shape` and `dtype` (float32 where one is created) are what it must have, if they are given.
        """
        ...

    @property
    def session_id(self) -> str:
        """`id`, as djl_python calls it."""
        ...

    @property
    def expiration_ts(self) -> float:
        """`expires`, as djl_python calls it."""
        ...

    def remove(self, key: str = ...) -> bool:
        """Forgets a value; whether there was one. Without a key ends the session, as djl_python's does."""
        ...
