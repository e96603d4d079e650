"""Lines of libraries and of users in the log: nothing of a client's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lmi.model import log_filters

from ..kit.api.engine import show_content
from ..kit.clients.scripts import OURS, run_python
from ..kit.logs import HOSTS_WORDS, MARK, Caught, fail

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def _shown() -> Iterator[None]:
    """As where nobody has said: a service says it for its process."""
    show_content(True)
    yield
    show_content(True)


def test_of_libraries() -> None:
    show_content(False)
    caught = Caught("vllm.tests.library", log_filters.Withheld())
    log = caught.logger
    log.warning("Failed to advance FSM for request %s for tokens %d at %.2f", MARK, 7, 0.5)
    log.warning("a fixed line")
    log.info("Loading took %d s", 5)
    log.warning(f"put together {MARK}")  # noqa: G004
    log.warning("%(name)s of %(count)d", {"name": MARK, "count": 3})
    log.warning("%d does not fit", MARK)
    try:
        fail()
    except KeyError:
        log.exception("it failed")
    lines = caught.text.splitlines()
    assert lines[:5] == [
        "Failed to advance FSM for request ... for tokens 7 at 0.50",
        "(test_of_libraries: message withheld: see option.log_requests)",
        "(test_of_libraries: message withheld: see option.log_requests)",
        "... of 3",
        "%d does not fit",
    ]
    assert lines[5] == "(test_of_libraries: message withheld: see option.log_requests)"
    assert "in fail" in caught.text
    assert MARK not in caught.text


def test_lines_of_libraries_stay_where_content_is_shown_and_where_nobody_asked() -> None:
    caught = Caught("vllm.tests.library", log_filters.Withheld())
    caught.logger.warning("said %s", MARK)
    show_content(False)
    users = Caught("user.module", log_filters.Withheld(("uvicorn",)))
    users.logger.warning("said %s", MARK)
    assert caught.text == users.text == f"said {MARK}\n"


FORKING = """
import logging, multiprocessing, sys
from lmi.model.log_filters import withhold_in_children
logging.basicConfig(stream=sys.stdout, format="%(message)s", level="INFO")
log = logging.getLogger("vllm.core")
withhold_in_children()

def core():
    log.info("Received request: %s", "zqxmark")
    log.warning("of a request: %s", "zqxmark")
    for message in ("EngineCore failed to start.", "a fatal error of %d"):
        try:
            raise ValueError("zqxmark" if "fatal" in message else "no memory")
        except ValueError:
            log.exception(message, *[5] * message.count("%"))

child = multiprocessing.get_context("fork").Process(target=core)
child.start()
child.join()
log.warning("in the parent: %s", "as it is")
"""


def test_forked_processes_withhold_what_they_log_but_why_they_did_not_start() -> None:
    lines = run_python(OURS, ["-c", FORKING]).splitlines()
    told = [line for line in lines if not line.startswith((" ", "Traceback"))]
    assert told == [
        "of a request: ...",
        "EngineCore failed to start.",
        "ValueError: no memory",
        "a fatal error of 5",
        "ValueError (message withheld: see option.log_requests)",
        "in the parent: as it is",
    ]


@pytest.mark.parametrize("word", HOSTS_WORDS)
def test_the_host_s_words_are_broken_up(word: str) -> None:
    caught = Caught("lmi.tests", log_filters.Tidy(everybody=False))
    caught.logger.warning("of a client: %s", word)
    assert word not in caught.text
    assert caught.text.startswith("of a client: ")
    other = Caught("user.module", log_filters.Tidy(everybody=False))
    other.logger.warning("of the user's own: %s", word)
    assert word in other.text
