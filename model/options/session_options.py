"""Stateful sessions and responses that are kept: whether there are any, where, for how long and how many."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from .option import Option

__all__ = ["ResponseStoreOptions", "SessionOptions"]

_S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?")
"""Names of buckets: Amazon S3's rules for general purpose buckets."""


def _s3_url(text: str) -> str:
    if not _S3.fullmatch(text) or not text.isprintable():
        raise ValueError("s3://BUCKET or s3://BUCKET/PREFIX")
    return text.rstrip("/")


# fmt: off
class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say of sessions."""

    enable_stateful_sessions: Annotated[bool, Option("Serve stateful sessions.")] = True
    sessions_path: Annotated[str | None, Option(
        "The folder that sessions are kept in; workers with the same one share them. A relative path counts from the "
        "model directory.", default="`/dev/shm/djl_sessions`, or `djl_sessions` in the temporary directory",
    )] = None
    sessions_expiration: Annotated[float, Option(
        "Seconds that a session lives; to use it does not prolong it.", ge=1,
    )] = 1200.0
    sessions_serve_expired: Annotated[bool, Option(
        "Serve requests of expired sessions, without the session; else they are refused (424).",
    )] = False
    sessions_max_number: Annotated[int, Option(
        "How many sessions there may be; further ones are refused.", ge=1,
    )] = 10_000
    sessions_max_bytes: Annotated[int, Option(
        "Bytes that your own code may keep in all sessions together.", ge=0,
    )] = 1 << 30
    sessions_s3url: Annotated[str | None, Option(
        "Where sessions are copied to every minute and at the stop, and restored from at the start: "
        "`s3://BUCKET/PREFIX`. Needs s5cmd or boto3.", convert=_s3_url,
    )] = None


class ResponseStoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say of responses that are kept to be continued."""

    response_store: Annotated[bool, Option(
        "Keep responses of /v1/responses in memory, for `previous_response_id` and GET /v1/responses/ID; each worker "
        "has its own.",
    )] = False
    response_store_expiration: Annotated[float, Option("Seconds that a response is kept.", ge=1)] = 3600.0
    response_store_max_number: Annotated[int, Option(
        "How many responses are kept; the oldest make room for new ones.", ge=1,
    )] = 10_000
    response_store_max_bytes: Annotated[int, Option(
        "Bytes of all responses that are kept, with what they answered; the oldest make room for new ones.", ge=1,
    )] = 256 << 20
# fmt: on
