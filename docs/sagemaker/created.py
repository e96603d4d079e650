"""What a script has made on AWS, in a file beside it, and how it is deleted: newest first, and nothing else.

    python created.py NAME.created.json     deletes what the file names, and then the file

The other scripts here import it. The file is there from the first thing made, and so is what a killed script left.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

POLL_S = 15
GONE_WITHIN_S = 1800

DESCRIBED = {"delete_endpoint": "describe_endpoint", "delete_inference_component": "describe_inference_component"}
"""What takes minutes to be deleted, and may not lose before what it is made of."""
NOT_THERE = ("Could not find", "ObjectNotFoundException")


class Created:
    """What has been made, oldest first."""

    def __init__(self, file: Path, session: boto3.Session) -> None:
        self.file = file
        self._session = session
        self._deletions: list[tuple[str, str, dict[str, Any]]] = []

    @classmethod
    def noted(cls, file: Path) -> Created:
        """What a file says."""
        noted = json.loads(file.read_text())
        created = cls(file, boto3.Session(region_name=noted["region"]))
        created._deletions = noted["deletions"]
        return created

    def add(self, service: str, operation: str, **arguments: Any) -> None:
        """Something has been made; this deletes it."""
        self._deletions.append((service, operation, arguments))
        self._write()

    def delete_all(self) -> None:
        """Newest first.

        Raises the service's error for one that cannot be deleted: that and older ones stay, in the file too.
        """
        while self._deletions:
            service, operation, arguments = self._deletions[-1]
            print(f"{operation}: {', '.join(map(str, arguments.values()))}")
            client = self._session.client(service)
            try:
                getattr(client, operation)(**arguments)
                if operation in DESCRIBED:
                    self._wait(getattr(client, DESCRIBED[operation]), arguments)
            except ClientError as error:
                if not any(words in str(error) for words in NOT_THERE):
                    raise
            self._deletions.pop()
            self._write()

    def _wait(self, describe: Any, arguments: dict[str, Any]) -> None:
        """Until it is not there, which describing it says by an error."""
        for _ in range(GONE_WITHIN_S // POLL_S):
            describe(**arguments)
            time.sleep(POLL_S)
        raise TimeoutError(f"it is still there after {GONE_WITHIN_S} seconds")

    def _write(self) -> None:
        if self._deletions:
            noted = {"region": self._session.region_name, "deletions": self._deletions}
            self.file.write_text(json.dumps(noted, indent=1) + "\n")
        else:
            self.file.unlink(missing_ok=True)


@contextmanager
def created_in(file: Path, session: boto3.Session) -> Iterator[Created]:
    """What is made inside is deleted when anything fails there, Ctrl-C too."""
    if file.exists():
        sys.exit(f"{file}: something of that name is there already; to delete it: python {Path(__file__).name} {file}")
    created = Created(file, session)
    try:
        yield created
    except BaseException as error:
        print(f"failed: {type(error).__name__}: {error}")
        try:
            created.delete_all()
        except (BotoCoreError, ClientError, TimeoutError) as left:
            print(f"not deleted: {left}\nlater: python {Path(__file__).name} {file}")
        raise


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    Created.noted(parser.parse_args().file).delete_all()
