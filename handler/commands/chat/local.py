"""A server of one's own: a model on a free port of the loopback interface, for as long as it is talked to.

It runs on a thread of this process, so that its engine ends with it, however that ends.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ....model.errors import OptionError, StartError
from ..arguments import assignments, given_options, options_of_model
from ..serve import service_for
from ..terminal.loading import showing_apart

if TYPE_CHECKING:
    import socket

    from ....model.options import Settings
    from ...service import Service

__all__ = ["local_server"]

HOST = "127.0.0.1"
GRACE_S = 1.0
"""Seconds that an answer may go on that nobody reads any more."""
POLL_S = 0.1
"""Seconds after which it is looked whether the server's thread has failed."""


@contextmanager
def local_server(model: Path, pairs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Serves `model`, a directory or a hub id, with the options `pairs` (`NAME=VALUE`): its URL, and the key that it
    needs. Raises LmiError.

    Others on this machine do not have the key.
    """
    from ....model.options import load_settings
    from ....model.options.combined import TASK_NAMES
    from ....model.process.client import EngineClient
    from ...secure_mode import secure_mode
    from ...server.sockets import bound_sockets, url_of

    options = options_of_model(model) | assignments(pairs)
    settings = load_settings(model, environment=os.environ, overrides=options)
    if secure := secure_mode(os.environ):
        secure.check_model(settings, os.environ)
    if settings.pools:
        found = f"option.task={TASK_NAMES[settings.task]}"
        raise OptionError(f"{model}: expected a model that generates text, found {found}", "task")
    engine = EngineClient(settings)
    key = secrets.token_urlsafe()
    with bound_sockets(HOST, 0) as sockets, showing_apart(settings.model_name) as view, closing(engine):
        service = service_for(settings, engine, given_options(model, options, os.environ))
        try:
            service.start()
            with _served(settings, service, sockets, key):
                view.ready(engine.process_id, [])
                # What goes on from here is on the screen.
                logging.getLogger().setLevel(logging.WARNING)
                yield url_of(HOST, sockets), key
        finally:
            service.close()


@contextmanager
def _served(settings: Settings, service: Service, sockets: Sequence[socket.socket], key: str) -> Iterator[None]:
    """Answers requests meanwhile, on a thread."""
    from ...server.access import Access, allowed_names
    from ...server.run import http_server

    up = threading.Event()
    access = Access(key, allowed_names([HOST], []))
    server = http_server(service, sockets, access=access, grace=GRACE_S, on_ready=up.set)
    thread = threading.Thread(target=server.run, name="lmi-server", daemon=True)
    thread.start()
    while not up.wait(POLL_S):
        if not thread.is_alive():
            raise StartError(f"the server of {settings.model_name} could not start")
    try:
        yield
    finally:
        service.stop()
        server.should_exit = True
        thread.join()
