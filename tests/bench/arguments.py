"""The command line of the bench. Every command of `lmi` reads it, so that it imports little."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["OURS", "add_arguments"]

OURS = ("engine", "server")
"""Layers that need no command and no URL."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The command line of the bench."""
    command.add_argument("model_dir", type=Path, nargs="?", help="what the engine and server layers serve")
    command.add_argument("--layers", default=",".join(OURS), help="of engine, server; default: both")
    command.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a further layer: a command that starts a server, prints its http:// URL and ends with its standard input",
    )
    command.add_argument("--url", action="append", default=[], metavar="[NAME=]URL", help="a server that runs already")
    command.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help="sent to every --url")
    command.add_argument("--model", help="the field `model` of chat requests to every --url, for servers that need it")
    command.add_argument("--dialect", choices=("lmi", "openai"), help="only the workloads of one dialect")
    command.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one, by its name in the tables; again for more",
    )
    command.add_argument(
        "--adapters",
        default="",
        metavar="NAME,NAME",
        help="adapters of the model directory that requests name in turn, with --set enable_lora=true; of the demo "
        "model they are made",
    )
    command.add_argument("--connections", default="1,16,64,256")
    command.add_argument("--tokens", type=int, default=100, help="tokens of every answer")
    command.add_argument("--rounds", type=int, default=3, help="requests of each connection")
    command.add_argument("--repeat", type=int, default=3, help="runs of everything; the tables show medians")
    command.add_argument("--together", action="store_true", help="start all layers at once and let them take turns")
    command.add_argument(
        "--idle", type=float, default=0.0, metavar="SECONDS", help="afterwards measure what idle processes cost"
    )
    command.add_argument("-o", "--output", type=Path, help="writes OUTPUT.json")
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override an option.*")
