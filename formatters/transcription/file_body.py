"""A body that holds a file: a form (multipart/form-data, RFC 7578), or the file itself, by its content type.

    form, with a part `file`              -->  its fields, as text, and the file's bytes
    audio/wav, video/mp4, ...             -->  the query's parameters and the body, as `file`

A host that has taken a form apart gives its parts (Request.form).
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from ...model.errors import MediaTypeError, PayloadError
from ..base import Payload, Request
from ..common.json_body import FORM

__all__ = ["FILE", "read_file_body"]

FILE = "file"
"""The field that holds the file."""
PARTS = 64
"""The most that a form may have."""
LIST = "[]"
"""What the name of a field ends with that is a list."""

Parts = Iterable[tuple[str, bytes]]


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "")


def _media_type(request: Request) -> str:
    return _content_type(request).partition(";")[0].strip().lower()


def read_file_body(request: Request) -> Payload:
    """The fields of such a body; raises PayloadError, and MediaTypeError for a form without a file."""
    if _media_type(request) != FORM:
        if not request.body:
            raise PayloadError(f"the body is empty, expected a file of type {_media_type(request)}")
        return {**request.query, FILE: request.body}
    parts = request.form if request.form is not None else _parts(request)
    fields: Payload = {}
    for name, value in parts:
        if name == FILE:
            fields[name] = value
        elif name.endswith(LIST):
            fields.setdefault(name, []).append(_text(name, value))
        else:
            fields[name] = _text(name, value)
    if FILE not in fields:
        raise MediaTypeError.of("Content-Type", FORM, f"application/json, or a form with a part {FILE}")
    return fields


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise PayloadError.of(name, value[:20], "text in UTF-8") from None


def _parts(request: Request) -> Parts:
    """A form's parts, by the library that vLLM's and most other servers in Python read forms with."""
    try:
        library: Any = import_module("python_multipart")
    except ImportError:
        raise MediaTypeError(
            f"Content-Type: {FORM} needs the package python-multipart, which is not installed"
        ) from None
    _, options = library.multipart.parse_options_header(_content_type(request))
    if not (boundary := options.get(b"boundary")):
        raise PayloadError(f"Content-Type: expected a boundary of {FORM}", "Content-Type")
    parts: list[tuple[str, bytes]] = []

    def add(name: bytes | None, value: bytes) -> None:
        if len(parts) == PARTS:
            raise PayloadError(f"the body: expected a form of at most {PARTS} parts")
        parts.append(((name or b"").decode(errors="replace"), value))

    def add_file(file: Any) -> None:
        file.file_object.seek(0)
        add(file.field_name, file.file_object.read())

    # In memory, however long it is: it is there already.
    config = {"MAX_MEMORY_FILE_SIZE": len(request.body) + 1}
    parser = library.FormParser(
        FORM, lambda field: add(field.field_name, field.value or b""), add_file, boundary=boundary, config=config
    )
    try:
        parser.write(request.body)
        parser.finalize()
    except (library.exceptions.FormParserError, ValueError) as error:
        raise PayloadError(f"the body is no form: {error}") from None
    return parts
