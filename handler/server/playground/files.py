"""The page's files, which are open to whoever may know that the server is there: they are the same for every model.

    GET /                    index.html
    GET /playground/NAME     any other of FILES

The model's facts and all requests need the key. A link from another site may lead here, which is why `page_refusal`
judges; no other site may show the page in a frame, or load a part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse

from ..access import Access
from ..paths import HttpRoute

__all__ = ["FILES", "FOLDER", "HEADERS", "file_routes"]

FOLDER = Path(__file__).with_name("page")
SCRIPT, STYLE, PAGE, ICON = "text/javascript", "text/css", "text/html", "image/svg+xml"
FILES: Mapping[str, str] = MappingProxyType(
    {
        "index.html": PAGE,
        "style.css": STYLE,
        "answer.css": STYLE,
        "conversation.css": STYLE,
        "icon.svg": ICON,
        "main.js": SCRIPT,
        "answer.js": SCRIPT,
        "attached.js": SCRIPT,
        "code.js": SCRIPT,
        "conversation.js": SCRIPT,
        "editor.js": SCRIPT,
        "extras.js": SCRIPT,
        "form.js": SCRIPT,
        "key.js": SCRIPT,
        "literals.js": SCRIPT,
        "media.js": SCRIPT,
        "page.js": SCRIPT,
        "reading.js": SCRIPT,
        "records.js": SCRIPT,
        "run.js": SCRIPT,
        "said.js": SCRIPT,
        "tokens.js": SCRIPT,
        "turn.js": SCRIPT,
        "wire.js": SCRIPT,
    }
)
"""By name, the media type. What is not named here is not sent."""
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data: blob:; media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        # Asked for again each time, and sent only if it has changed: names say nothing of versions.
        "Cache-Control": "no-cache",
    }
)


def file_routes(access: Access) -> list[HttpRoute]:
    """The routes of the files; none where they are not installed, as in a model.tar.gz."""
    if not (FOLDER / "index.html").is_file():
        return []
    contents = {name: (FOLDER / name).read_bytes() for name in FILES}

    async def send(http: HttpRequest) -> HttpResponse:
        """A file of the playground."""
        if refused := access.page_refusal(http.headers):
            return HttpResponse(refused.message, refused.status, media_type="text/plain")
        name = http.path_params.get("name", "index.html")
        if name not in contents:
            return HttpResponse("Not Found", 404, media_type="text/plain")
        tag = f'"{hashlib.sha256(contents[name]).hexdigest()[:32]}"'
        headers = {**HEADERS, "ETag": tag}
        if tag in http.headers.get("if-none-match", ""):
            return HttpResponse(status_code=304, headers=headers)
        return HttpResponse(contents[name], headers=headers, media_type=FILES[name])

    return [HttpRoute(path, send, methods=["GET"], include_in_schema=False) for path in ("/", "/playground/{name}")]
