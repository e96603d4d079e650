"""What each kind of field reads and refuses; docs/parameters.md says which parameter is of which."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.formatters.common.kinds import (
    DEPTH,
    LARGEST,
    LARGEST_ID,
    SMALLEST,
    TEXTS,
    TEXTS_LENGTH,
    Boolean,
    Filled,
    Integer,
    Kind,
    Number,
    Object,
    Text,
    Texts,
    Tree,
)

from ...kit.api.conversation import Ids, Prompts
from ...kit.api.errors import ParameterError, PayloadError, RequestError
from ...kit.rows import each_row

SIZE, SHARE, OPEN = Integer(1, 5), Number(0, 1), Number(0, 1, above=True)
WORD, FLAGGED, PROMPTS, TEXT_PROMPTS = Text(("a", "b")), Texts(flag=True), Prompts(2), Prompts(2, may_be_empty=True)

READ: list[tuple[Kind, Any, Any]] = [
    (Boolean(), False, False),
    (Boolean(("never",)), "never", "never"),
    (SIZE, 1, 1),
    (SIZE, 5.0, 5),
    (Integer(SMALLEST), SMALLEST, SMALLEST),
    (Integer(0), LARGEST, LARGEST),
    (SHARE, 0, 0.0),
    (SHARE, 1, 1.0),
    (OPEN, 5e-324, 5e-324),
    (Text(), "", ""),
    (WORD, "b", "b"),
    (Filled(), " ", " "),
    (Texts(), "ab", ("ab",)),
    (Texts(), [], ()),
    (Texts(), ["x"] * TEXTS, ("x",) * TEXTS),
    (Texts(), ["x" * TEXTS_LENGTH], ("x" * TEXTS_LENGTH,)),
    (FLAGGED, True, ()),
    (FLAGGED, ["a"], ("a",)),
    (Tree(), {"a": [SMALLEST, LARGEST, {"b": None}]}, {"a": [SMALLEST, LARGEST, {"b": None}]}),
    (Ids(), [0, 2.0, LARGEST_ID], (0, 2, LARGEST_ID)),
    (Ids(), [0] * 1024, (0,) * 1024),
    (PROMPTS, "hi", ("hi",)),
    (PROMPTS, ["a", "b"], ("a", "b")),
    (PROMPTS, [1, 2, 3], ((1, 2, 3),)),
    (PROMPTS, [[1, 2], [3]], ((1, 2), (3,))),
    (TEXT_PROMPTS, "", ("",)),
]


@each_row(("kind", "given", "read"), READ)
def test_what_is_read(kind: Kind, given: Any, read: Any) -> None:
    found = kind.read("a", given)
    assert found == read
    assert type(found) is type(read)


DEEP: dict[str, Any] = {}
for _ in range(DEPTH):
    DEEP = {"a": DEEP}
WRONG: dict[str, tuple[list[Kind], list[Any], str]] = {
    "booleans": ([Boolean()], [0, 1, "true", [], {}], "true or false"),
    "words beside them": ([Boolean(("never",))], [5, "always", []], "true or false or 'never'"),
    "integers": ([SIZE], ["many", "5", True, 5.5, [], {}], "an integer >= 1"),
    "numbers": ([SHARE], ["many", "NaN", True, [], {}], "a number from 0 to 1"),
    "lists of texts": ([Texts()], [5, True, {}], "a list of non-empty strings"),
    "beside a flag": ([FLAGGED], [5, {}], "a list of non-empty strings"),
    "texts": ([Text()], [5, [], {}, True], "a string"),
    "words": ([WORD], [5, []], "one of a, b"),
    "texts that say something": ([Filled()], [5, [], None], "a non-empty string"),
    "objects": ([Object(), Tree()], [5, "{}", [], None, True], "an object"),
    "token ids": ([Ids()], [5, "5", {}, True], "a list of token ids"),
    "prompts": ([PROMPTS], [5, True, {}, None], "a non-empty string, a list of token ids, or a list of either"),
    "empty prompts": ([TEXT_PROMPTS], [5], "a string, a list of token ids, or a list of either"),
}


@each_row("name", WRONG)
def test_what_is_of_another_type(name: str) -> None:
    kinds, values, expected = WRONG[name]
    for kind, given in ((kind, given) for kind in kinds for given in values):
        with pytest.raises(PayloadError) as caught:
            kind.read("a", given)
        assert (caught.value.message, caught.value.param) == (f"a: expected {expected}, got {given!r}", "a")


OUT_OF_RANGE: list[tuple[Kind, Any, type[RequestError], str]] = [
    *((SIZE, given, ParameterError, "a: expected an integer >= 1, got") for given in (0, -(10**4000), -1e300)),
    *((SIZE, given, ParameterError, "a: expected an integer from 1 to 5, got") for given in (6, 10**4000, 1e300)),
    *(
        (SHARE, given, ParameterError, "a: expected a number from 0 to 1, got")
        for given in (-0.1, 1.1, float("nan"), float("inf"), 10**4000, -(10**4000))
    ),
    (OPEN, 0, ParameterError, "a: expected a number above 0 and up to 1, got 0"),
    (WORD, "c", ParameterError, "a: expected one of a, b, got 'c'"),
    (Filled(), "", ParameterError, "a: expected a non-empty string, got ''"),
    (Texts(), ["a", 5], PayloadError, "a[1]: expected a non-empty string, got 5"),
    (Texts(), ["a", ""], ParameterError, "a[1]: expected a non-empty string, got ''"),
    (Texts(), ["x"] * (TEXTS + 1), ParameterError, "a: expected at most 64 strings of 4096 characters in all"),
    (Texts(), ["x" * (TEXTS_LENGTH + 1)], ParameterError, "a: expected at most 64 strings of 4096 characters in all"),
    (Tree(), {"a": 2**63}, ParameterError, f"a: expected integers from {SMALLEST} to {LARGEST} in it, got"),
    (Tree(), DEEP, ParameterError, "a: expected at most 100 levels"),
    (Ids(), [1, "2"], PayloadError, "a[1]: expected an integer >= 0, got '2'"),
    (Ids(), [-1], ParameterError, "a[0]: expected an integer >= 0, got -1"),
    (Ids(), [0] * 1025, ParameterError, "a: expected at most 1024 token ids"),
    (PROMPTS, "", ParameterError, "a: expected a non-empty string, got ''"),
    (PROMPTS, [], ParameterError, "a: expected a non-empty string, a list of token ids, or a list of either, got []"),
    (PROMPTS, [[]], ParameterError, "a[0]: expected at least one token id, got []"),
    (PROMPTS, ["a", ""], ParameterError, "a[1]: expected a non-empty string, got ''"),
    # All are of the first one's kind.
    (PROMPTS, ["a", 5], PayloadError, "a[1]: expected a non-empty string, got 5"),
    (PROMPTS, [[1], "a"], PayloadError, "a[1]: expected a list of token ids, got 'a'"),
    (PROMPTS, [None], PayloadError, "a[0]: expected a list of token ids, got None"),
    (PROMPTS, [5, "a"], PayloadError, "a[1]: expected an integer >= 0, got 'a'"),
    (PROMPTS, [1, -1], ParameterError, "a[1]: expected an integer >= 0, got -1"),
    (PROMPTS, ["a"] * 3, ParameterError, "a: expected at most 2 of them, got 3"),
    (TEXT_PROMPTS, ["a", 5], PayloadError, "a[1]: expected a string, got 5"),
]


@each_row(("kind", "given", "error", "message"), OUT_OF_RANGE)
def test_what_is_refused(kind: Kind, given: Any, error: type[RequestError], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        kind.read("a", given)
    assert type(caught.value) is error
    assert caught.value.message.startswith(message)
    assert caught.value.param == message.partition(":")[0]
