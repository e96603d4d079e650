"""The command `lmi`: serve, follow, check, package, migrate."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, redirect_stdout
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from ...model.errors import LmiError, OptionError, one_line
from ...model.log_filters import configure

if TYPE_CHECKING:
    import socket

    from ...model.options import Settings
    from ..server.access import Access

__all__ = ["assignments", "main"]

KEY_VARIABLE = "LMI_API_KEY"
MOVED = {"bench": 'make bench ARGS="--url ..."', "demo-model": "make demo-model DIRECTORY=..."}
"""By the name of a former command, what does it now."""


def assignments(pairs: Sequence[str]) -> dict[str, str]:
    """`--set NAME=VALUE`, with or without `option.` before the name."""
    options: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise SystemExit(f"lmi: --set {pair}: expected NAME=VALUE")
        options[name.strip().removeprefix("option.")] = value.strip()
    return options


def seconds(text: str) -> float:
    """A length of time, for argparse."""
    length = float(text)
    if not 0 <= length <= 86400:
        raise ValueError
    return length


def serve(arguments: argparse.Namespace) -> None:
    """Serves a model directory on this machine."""
    from ...model.options import load_settings
    from ..preflight import require_directory
    from ..secure_mode import secure_mode
    from ..server.access import Access, allowed_names
    from ..server.sockets import bound_sockets

    require_directory(arguments.model_dir)
    api_key = required_key(arguments.api_key, os.environ)
    with bound_sockets(arguments.host, arguments.port) as sockets:
        names = allowed_names([sock.getsockname()[0] for sock in sockets], arguments.allowed_host)
        settings = load_settings(arguments.model_dir, environment=os.environ, overrides=assignments(arguments.set))
        if secure := secure_mode(os.environ):
            secure.check_model(settings, os.environ)
        _serve(settings, sockets, Access(api_key, names), arguments)


def _given(arguments: argparse.Namespace) -> dict[str, str]:
    """The options as they were given, for user code."""
    from ...model.options.properties import gather

    over = {name.removeprefix("option."): text for name, text in assignments(arguments.set).items()}
    return gather(arguments.model_dir, os.environ) | over


def _serve(settings: Settings, sockets: Sequence[socket.socket], access: Access, arguments: argparse.Namespace) -> None:
    from ...model.heap import freeze
    from ...model.process.client import EngineClient
    from ..preflight import has_code
    from ..server.shutdown import Shutdown
    from ..server.sockets import url_of

    engine = EngineClient(settings)
    ending = Shutdown(engine)
    print(f"lmi: starting the engine for {settings.model_name}", flush=True)
    with closing(engine):
        if not has_code(settings) and not settings.adapters.enable_lora:
            # The rest is imported beside its start, which takes far longer. User code comes first: it may set
            # the environment that the engine starts with; and so do adapters, with which it starts.
            engine.launch()
        from ..service import Service

        service = Service(settings, engine, given=_given(arguments))
        Thread(target=import_module, args=("..server.run", __package__), daemon=True).start()
        try:
            service.start()
            from ..server.run import http_server

            server = http_server(
                service,
                sockets,
                access=access,
                grace=arguments.grace,
                on_ready=lambda: _ready(url_of(arguments.host, sockets), arguments),
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


def _ready(url: str, arguments: argparse.Namespace) -> None:
    print(f"lmi: serving on {url}", flush=True)
    if not arguments.playground:
        return
    print(f"lmi: to try it, open {url}/ in a browser", flush=True)
    if arguments.open:
        import webbrowser

        # A browser that runs in the terminal ends when its user ends it.
        Thread(target=webbrowser.open, args=(f"{url}/",), daemon=True).start()


def required_key(given: str | None, environment: Mapping[str, str]) -> str | None:
    """The API key that clients need, None for none. Raises OptionError for an empty one, which protects nothing."""
    name, key = ("--api-key", given) if given is not None else (KEY_VARIABLE, environment.get(KEY_VARIABLE))
    if key is not None and not key.strip():
        raise OptionError(f"{name}: expected a key, got an empty one")
    return key


def follow(arguments: argparse.Namespace) -> None:
    """Takes part in serving a model whose leader is another host."""
    from .follow import follow as follow_leader
    from .follow import follower_settings

    settings = follower_settings(arguments.model_dir, assignments(arguments.set), os.environ)
    cause = follow_leader(settings, once=arguments.once)
    if cause is not None:
        raise SystemExit(1)


def check(arguments: argparse.Namespace) -> None:
    """Says what start-up would say of a model directory, without starting an engine."""
    from .check import check as check_directory

    for line in check_directory(arguments.model_dir, assignments(arguments.set)):
        print(line)


def package(arguments: argparse.Namespace) -> None:
    """Writes a model directory with this handler inside."""
    from .package import package as package_directory

    package_directory(arguments.model_dir, arguments.output)


def migrate(arguments: argparse.Namespace) -> None:
    """Makes serving.properties of another container's configuration."""
    from .migrate import migrate as migrate_source
    from .migrate import write

    # vLLM writes to standard output while it is imported, where the file's text is to stand alone.
    with redirect_stdout(sys.stderr):
        migrated = migrate_source(arguments.source)
    if arguments.output is None:
        print(migrated.text, end="")
    else:
        print(f"lmi: wrote {write(migrated.text, arguments.output, force=arguments.force)}")
    for line in (*(f"check: {line}" for line in migrated.checked), *(f"refused: {line}" for line in migrated.refused)):
        print(f"lmi: {line}", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(
        prog="lmi", description="A model handler for DJL Serving and SageMaker's LMI container."
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("serve", help="serve a model directory on this machine")
    command.add_argument("model_dir", type=Path)
    command.add_argument("--host", default="127.0.0.1")
    command.add_argument("--port", type=int, default=8080)
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override an option.*")
    command.add_argument(
        "--grace",
        type=seconds,
        default=20.0,
        metavar="SECONDS",
        help="how long requests in flight may go on after SIGTERM before they are cut off with an error (default: 20)",
    )
    command.add_argument(
        "--api-key", help="require this API key of clients (or set LMI_API_KEY, which process lists do not show)"
    )
    command.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="answer requests to this name (header Host) and of its pages (header Origin); * for any. On a loopback "
        "address, loopback's own names are allowed without it, and on others any name is where none is given",
    )
    page = command.add_mutually_exclusive_group()
    page.add_argument("--open", action="store_true", help="open the playground in a browser once it serves")
    page.add_argument(
        "--no-playground", dest="playground", action="store_false", help="serve no page to try requests with at GET /"
    )
    command.set_defaults(run=serve)

    command = commands.add_parser("follow", help="take part in serving a model on several hosts, beside the leader")
    command.add_argument("model_dir", type=Path)
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override an option.*")
    command.add_argument(
        "--once", action="store_true", help="end with status 1 when the leader ends, instead of waiting for it again"
    )
    command.set_defaults(run=follow)

    command = commands.add_parser("check", help="check a model directory's configuration without starting an engine")
    command.add_argument("model_dir", type=Path)
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override an option.*")
    command.set_defaults(run=check)

    command = commands.add_parser("package", help="write a model directory with this handler inside, for the container")
    command.add_argument("model_dir", type=Path)
    command.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL.tar.gz")
    command.set_defaults(run=package)

    command = commands.add_parser(
        "migrate", help="make serving.properties of a configuration of LMI, TGI or vLLM's image"
    )
    command.add_argument("source", type=Path, metavar="DIR|ENV-FILE")
    command.add_argument("-o", "--output", type=Path, metavar="FILE|DIR", help="where to write it (default: print it)")
    command.add_argument("--force", action="store_true", help="write over a file that is there")
    command.set_defaults(run=migrate)

    return root


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; an error of ours is one line on standard error and exit status 1."""
    configure(own_process=True)
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in MOVED:
        raise SystemExit(f"lmi: {given[0]} is not in the package: in a clone of the repository, {MOVED[given[0]]}")
    parsed = parser().parse_args(given)
    try:
        parsed.run(parsed)
    except (LmiError, OSError) as error:
        print(f"lmi: {one_line(str(error))}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
