"""`lmi serve`: a model on this machine, from the port to the link."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from ...model.errors import LmiError
from .arguments import KEY_VARIABLE, assignments, given_options, options_of_model, required_key
from .terminal.loading import StartView, showing

if TYPE_CHECKING:
    import socket

    from ...model.options import Settings
    from ...model.process.client import EngineClient
    from ..server.access import Access
    from ..service import Service

__all__ = ["next_steps", "serve", "service_for"]


def serve(arguments: argparse.Namespace) -> None:
    """Serves a model on this machine."""
    from ...model.options import load_settings
    from ..secure_mode import secure_mode
    from ..server.access import Access, allowed_names, allowed_origins
    from ..server.sockets import bound_sockets

    options = options_of_model(arguments.model_dir) | assignments(arguments.set)
    api_key = required_key(arguments.api_key, os.environ)
    origins = allowed_origins(arguments.allowed_origin)
    with bound_sockets(arguments.host, arguments.port) as sockets:
        names = allowed_names([sock.getsockname()[0] for sock in sockets], arguments.allowed_host)
        settings = load_settings(arguments.model_dir, environment=os.environ, overrides=options)
        if secure := secure_mode(os.environ):
            secure.check_model(settings, os.environ)
        with showing(settings.model_name, verbose=arguments.verbose) as view:
            given = given_options(arguments.model_dir, options, os.environ)
            _serve(settings, given, sockets, Access(api_key, names, origins), arguments, view)


def _serve(
    settings: Settings,
    given: Mapping[str, str],
    sockets: Sequence[socket.socket],
    access: Access,
    arguments: argparse.Namespace,
    view: StartView,
) -> None:
    from ...model.heap import freeze
    from ...model.process.client import EngineClient
    from ..server.shutdown import Shutdown
    from ..server.sockets import url_of

    engine = EngineClient(settings)
    ending = Shutdown(engine)
    with closing(engine):
        service = service_for(settings, engine, given)
        try:
            service.start()
            from ..server.run import http_server

            url = url_of(arguments.host, sockets)
            steps = next_steps(url, settings, key=access.needs_key, page=arguments.playground)
            said = [f"lmi: serving on {url}", *steps]
            server = http_server(
                service,
                sockets,
                access=access,
                grace=arguments.grace,
                keep_alive=arguments.keep_alive,
                on_ready=lambda: _ready(view, engine.process_id, said, url if arguments.open else None),
                playground=arguments.playground,
            )
            freeze()
            ending.run(server, service.stop)
        except LmiError:
            # User code that was loading when a signal came is said to have failed.
            if not ending.asked:
                raise
        finally:
            service.close()


def _ready(view: StartView, process_id: int | None, said: Sequence[str], opened: str | None) -> None:
    view.ready(process_id, said)
    if opened is not None:
        import webbrowser

        # A browser that runs in the terminal ends when its user ends it.
        Thread(target=webbrowser.open, args=(f"{opened}/",), daemon=True).start()


def service_for(settings: Settings, engine: EngineClient, given: Mapping[str, str]) -> Service:
    """The service, whose engine is being started where nothing has to come before; `given` as Service has it.

    The rest is imported beside its start, which takes far longer. User code comes first: it may set the environment
    that the engine starts with; and so do adapters, with which it starts.
    """
    from ..model_code import has_code

    if not has_code(settings) and not settings.adapters.enable_lora:
        engine.launch()
    from ..service import Service

    Thread(target=import_module, args=("..server.run", __package__), daemon=True).start()
    return Service(settings, engine, given=given)


CHAT = ("/v1/chat/completions", '{"messages": [{"role": "user", "content": "Hello"}], "stream": true}')
POOLED = {
    "embed": ("/v1/embeddings", '{"input": "Hello"}'),
    "rank": ("/v1/rerank", '{"query": "Hello", "documents": ["Hi", "A chair"]}'),
    "classify": ("/classify", '{"input": "Hello"}'),
}
"""A first request, by Settings.task where that generates no text: path and body."""


def next_steps(url: str, settings: Settings, *, key: bool, page: bool) -> list[str]:
    """Lines that say what may be done now with the server at `url`.

    key: it needs one; page: it has the playground.
    """
    header = f' -H "Authorization: Bearer ${KEY_VARIABLE}"' if key else ""
    path, body = POOLED.get(settings.task, CHAT)
    steps = {"with curl": f"curl {url}{path}{header} -H 'Content-Type: application/json' -d '{body}'"}
    if not settings.pools:
        steps = {"in a terminal": f"{_command()} chat {url}", **steps}
    if page:
        steps = {"in a browser": f"{url}/", **steps}
    if key:
        steps = {f"set {KEY_VARIABLE} to the key": "", **steps}
    width = max(map(len, steps))
    return [f"  {name:{width}}  {how}".rstrip() for name, how in {**steps, "Ctrl-C ends it": ""}.items()]


def _command() -> str:
    """This command, as it can be typed."""
    name = sys.argv[0]
    if Path(name).name != "lmi":
        return f"{shlex.quote(sys.executable)} -m {__package__}.cli"
    found = shutil.which("lmi")
    return "lmi" if found is not None and Path(found).samefile(name) else shlex.quote(_short(name))


def _short(name: str) -> str:
    """A path as it is from here, where that is shorter."""
    near = os.path.relpath(name)
    return near if len(near) < len(name) else name
