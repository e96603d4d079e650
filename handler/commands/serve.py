"""`lmi serve`: a model on this machine, from the port to the link."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from ...model.errors import LmiError
from .arguments import KEY_VARIABLE, assignments, given_options, required_key, served_place
from .terminal import quiet_engine

if TYPE_CHECKING:
    import socket

    from ...model.options import Settings
    from ...model.process.client import EngineClient
    from ..server.access import Access
    from ..service import Service

__all__ = ["next_steps", "serve", "service_for"]


def serve(arguments: argparse.Namespace) -> str | None:
    """Serves a model on this machine, until a signal comes: then None; or until its engine is lost for good: why."""
    from ...model.options import load_settings
    from ..secure_mode import refuse_secure_mode
    from ..server.access import Access, allowed_names, allowed_origins
    from ..server.sockets import bound_sockets, url_of

    refuse_secure_mode(os.environ)
    served = served_place(arguments, os.environ)
    options = served.options | assignments(arguments.set)
    api_key = required_key(arguments.api_key, os.environ, arguments.api_key_file)
    origins = allowed_origins(arguments.allowed_origin)
    with bound_sockets(served.host, served.port) as sockets:
        names = allowed_names([sock.getsockname()[0] for sock in sockets], arguments.allowed_host)
        settings = load_settings(served.model_dir, environment=os.environ, overrides=options)
        print(f"lmi: starting the engine for {settings.model_name}", flush=True)
        if not arguments.verbose:
            quiet_engine(sys.stdout)
        given = given_options(served.model_dir, options, os.environ)
        url = url_of(served.host, sockets)
        return _serve(settings, given, sockets, url, Access(api_key, names, origins), arguments)


def _serve(
    settings: Settings,
    given: Mapping[str, str],
    sockets: Sequence[socket.socket],
    url: str,
    access: Access,
    arguments: argparse.Namespace,
) -> str | None:
    from ...model.heap import freeze
    from ...model.process.client import EngineClient
    from ..model_code import has_hooks
    from ..server.shutdown import Shutdown

    engine = EngineClient(settings)
    ending = Shutdown(engine)
    engine.given_up = ending.lose
    with closing(engine):
        service = service_for(settings, engine, given)
        try:
            if has_hooks(Path(settings.model_dir), os.environ):
                from ..server.hooks import load

                load(Path(settings.model_dir))
            service.start()
            from ..server.run import http_server

            steps = next_steps(url, settings, key=access.needs_key, page=arguments.playground)
            said = [f"lmi: serving on {url}", *steps]
            server = http_server(
                service,
                sockets,
                access=access,
                grace=arguments.grace,
                keep_alive=arguments.keep_alive,
                on_ready=lambda: _ready(said, url if arguments.open else None),
                playground=arguments.playground,
            )
            freeze()
            ending.run(server, service.stop)
            return ending.lost
        except LmiError:
            # User code that was loading when a signal came is said to have failed.
            if not ending.asked:
                raise
            return None
        finally:
            service.close()


def _ready(said: Sequence[str], opened: str | None) -> None:
    print(*said, sep="\n", flush=True)
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
    """This command, as it was typed."""
    name = sys.argv[0]
    return shlex.quote(name) if Path(name).name == "lmi" else f"{shlex.quote(sys.executable)} -m {__package__}.cli"
