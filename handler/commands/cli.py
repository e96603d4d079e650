"""The command `lmi`: reads its arguments, and hands them to the command that is meant."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from ...model import VERSION
from ...model.errors import LmiError, one_line
from ...model.log_filters import configure
from ..server.sockets import KEEP_ALIVE_S
from .arguments import assignment, assignments, seconds, whole_seconds

__all__ = ["assignments", "main"]

MOVED = {"bench": 'make bench ARGS="--url ..."', "demo-model": "make demo-model DIRECTORY=..."}
"""By the name of a former command, what does it now."""
MODEL = "a model directory, a directory of a model's files, or a hub id as ORG/NAME"
"""What is served, for the help of commands."""
FAILED, LOST, INTERRUPTED = 1, 3, 130
"""Exit statuses, beside 0 and argparse's 2 (docs/cli.md)."""


def serve(arguments: argparse.Namespace) -> None:
    """Serves a model on this machine."""
    from .serve import serve as serve_directory

    if (lost := serve_directory(arguments)) is not None:
        print(f"lmi: {one_line(lost)}", file=sys.stderr)
        raise SystemExit(LOST)


def chat(arguments: argparse.Namespace) -> None:
    """Talks with a model."""
    from .chat.command import chat as chat_with

    raise SystemExit(chat_with(arguments))


def follow(arguments: argparse.Namespace) -> None:
    """Takes part in serving a model whose leader is another host."""
    from .follow import follow as follow_leader
    from .follow import follower_settings

    settings = follower_settings(arguments.model_dir, assignments(arguments.set), os.environ)
    cause = follow_leader(settings, once=arguments.once)
    if cause is not None:
        raise SystemExit(FAILED)


def check(arguments: argparse.Namespace) -> None:
    """Says what start-up would say of a model directory, without starting an engine."""
    from .findings import as_json, findings, report

    # vLLM writes to standard output while it is imported, where the findings are to stand alone.
    with redirect_stdout(sys.stderr):
        found = findings(arguments.model_dir, assignments(arguments.set))
    if arguments.json:
        print(as_json(arguments.model_dir, found))
    else:
        report(found)
    if any(finding.level == "error" for finding in found):
        raise SystemExit(FAILED)


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


def _parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(
        prog="lmi", description="A model handler for DJL Serving and SageMaker's LMI container."
    )
    root.add_argument("--version", action="version", version=f"lmi {VERSION}")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="serve a model on this machine"))
    _add_chat(commands.add_parser("chat", help="talk with a model, of this machine, the hub or a server"))

    command = commands.add_parser("follow", help="take part in serving a model on several hosts, beside the leader")
    _add_model_dir(command)
    command.add_argument(
        "--once", action="store_true", help="end with status 1 when the leader ends, instead of waiting for it again"
    )
    command.set_defaults(run=follow)

    command = commands.add_parser("check", help="check a model directory's configuration without starting an engine")
    _add_model_dir(command)
    command.add_argument("--json", action="store_true", help="print the findings as JSON, for programs")
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


def _add_model_dir(command: argparse.ArgumentParser) -> None:
    command.add_argument("model_dir", type=Path)
    _add_set(command)


def _add_set(command: argparse.ArgumentParser, of: str = "") -> None:
    command.add_argument(
        "--set", action="append", default=[], type=assignment, metavar="NAME=VALUE", help=f"override an option.*{of}"
    )


def _add_serve(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model_dir",
        type=Path,
        nargs="?",
        metavar="MODEL",
        help=f"{MODEL}; without it, /opt/ml/model on all addresses, as a container of SageMaker's",
    )
    _add_set(command)
    command.add_argument("--host", help="an address to listen on (default: 127.0.0.1; without MODEL 0.0.0.0)")
    command.add_argument("--port", type=int, help="default: 8080; without MODEL what SAGEMAKER_BIND_TO_PORT says")
    command.add_argument(
        "--grace",
        type=seconds,
        default=20.0,
        metavar="SECONDS",
        help="how long requests in flight may go on after SIGTERM before they are cut off with an error (default: 20)",
    )
    command.add_argument(
        "--keep-alive",
        type=whole_seconds,
        default=KEEP_ALIVE_S,
        metavar="SECONDS",
        help="how long an idle connection is kept: longer than by a load balancer before it (default: %(default)s)",
    )
    key = command.add_mutually_exclusive_group()
    key.add_argument(
        "--api-key", help="require this API key of clients (or set LMI_API_KEY, which process lists do not show)"
    )
    key.add_argument("--api-key-file", type=Path, metavar="FILE", help="require the API key that FILE holds")
    command.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="answer requests to this name (header Host) and of its pages (header Origin); * for any. On a loopback "
        "address, loopback's own names are allowed without it, and on others any name is where none is given",
    )
    command.add_argument(
        "--allowed-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this origin of another site (https://app.example) ask and read the answer (CORS); * for any",
    )
    page = command.add_mutually_exclusive_group()
    page.add_argument("--open", action="store_true", help="open the playground in a browser once it serves")
    page.add_argument(
        "--no-playground", dest="playground", action="store_false", help="serve no page to try requests with at GET /"
    )
    command.add_argument("--verbose", action="store_true", help="show all that vLLM logs, on a terminal too")
    command.set_defaults(run=serve)


def _add_chat(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL|URL", help=f"{MODEL}; or a server as http://HOST:PORT")
    command.add_argument("question", nargs="?", help="ask this, print the answer and end")
    command.add_argument("--system", metavar="TEXT", help="the system message")
    command.add_argument("--tools", type=Path, metavar="FILE", help="functions to call: a JSON list, a request's tools")
    command.add_argument("--model", dest="name", metavar="NAME", help="the model, or adapter, of the server")
    command.add_argument("--api-key", help="the server's (or set LMI_API_KEY)")
    _add_set(command, " of MODEL")
    command.set_defaults(run=chat)


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    root = _parser()
    parsed, left = root.parse_known_args(given)
    # argparse gives an argument that may be left out no place behind options (mended in Python 3.13).
    if len(left) == 1 and not left[0].startswith("-") and vars(parsed).get("question", "") is None:
        parsed.question = left.pop()
    if left:
        root.error(f"unrecognized arguments: {' '.join(left)}")
    return parsed


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; an error of ours is one line on standard error and exit status 1."""
    configure(own_process=True)
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in MOVED:
        raise SystemExit(f"lmi: {given[0]} is not in the package: in a clone of the repository, {MOVED[given[0]]}")
    parsed = _parsed(given)
    try:
        parsed.run(parsed)
    except (LmiError, OSError) as error:
        print(f"lmi: {one_line(str(error))}", file=sys.stderr)
        raise SystemExit(FAILED) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
