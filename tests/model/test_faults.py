"""What is wrong as data: the sentence that is made of it, and the way through another process."""

from __future__ import annotations

import msgspec
import pytest

from lmi.model.faults import Fault, most_like, text_of

from ..kit.api.errors import ErrorMessage, OptionError, ParameterError, RequestError
from ..kit.rows import each_row

SENTENCES: list[tuple[Fault, str]] = [
    (Fault("x", expected="a number", given="'a'"), "option.x: expected a number, got 'a'"),
    (Fault("x", "there is no file f", "a file", "'f'"), "option.x: expected a file, got 'f': there is no file f"),
    (Fault("x", expected="y with it"), "option.x: expected y with it"),
    (Fault("x", "'a' contradicts option.y=b", given="'a'"), "option.x: 'a' contradicts option.y=b"),
    (Fault("x", "its former name", instead="option.y=a"), "option.x: write option.y=a (its former name)"),
    (Fault("x", given="'a'", instead="option.y=a"), "option.x: write option.y=a, got 'a'"),
    (
        Fault("x", "the comment is part of the value", given="'a # b'", instead="option.x=a"),
        "option.x: write option.x=a (the comment is part of the value), got 'a # b'",
    ),
    (
        Fault("x", expected="true or false", given="'on'", instead="option.x=true"),
        "option.x: expected true or false, got 'on': write option.x=true",
    ),
    (
        Fault("x", "there is no such option", similar="option.xy"),
        "option.x: there is no such option; did you mean option.xy?",
    ),
    (Fault("x", "two\nlines", source="OPTION_X"), "OPTION_X: two lines"),
    (Fault("x", "file is not JSON", source=""), "file is not JSON"),
]


@each_row(("fault", "sentence"), SENTENCES)
def test_the_sentence(fault: Fault, sentence: str) -> None:
    assert fault.sentence("option.") == text_of([fault]) == sentence


def test_several_are_numbered() -> None:
    error = OptionError.of_all([Fault("x", "a"), Fault("y", "b")])
    assert error.message == str(error) == "2 options are wrong: (1) option.x: a; (2) option.y: b"
    assert error.param == "x"


def test_a_source_takes_the_options_place() -> None:
    """And the name that may have been meant is that of a variable too."""
    error = OptionError.of_all(
        [
            Fault("dtype", "a"),
            Fault("dtipe", "b", similar="option.dtype"),
            Fault("y", "c"),
            Fault("dtype", "d", source=""),
        ]
    )
    error.come_from({"dtype": "SM_VLLM_DTYPE", "dtipe": "SM_VLLM_DTIPE"})
    told = [fault.sentence("option.") for fault in error.faults]
    assert told == ["SM_VLLM_DTYPE: a", "SM_VLLM_DTIPE: b; did you mean SM_VLLM_DTYPE?", "option.y: c", "d"]
    assert all(one in error.message for one in told)
    # One that came from elsewhere than a variable of its name.
    other = Fault("dtype", "a", similar="option.x").come_from("HF_TYPE")
    assert other.sentence("option.") == "HF_TYPE: a; did you mean option.x?"


def test_an_error_of_words_alone_has_a_fault_too() -> None:
    error = OptionError("path has no config.json", "model_id")
    error.come_from({"model_id": "HF_MODEL_ID"})
    assert [(fault.name, fault.why) for fault in error.faults] == [("model_id", "path has no config.json")]
    assert error.message == "path has no config.json"


@pytest.mark.parametrize(
    "error",
    [
        OptionError.of("x", "why", expected="a", given=5, instead="option.y=1"),
        OptionError.of_all([Fault("x", "a"), Fault("y", "b", source="Y")]),
        ParameterError.of("sampling.n", {"a": [1]}, "a number"),
        RequestError("words", "field"),
    ],
)
def test_through_another_process(error: OptionError | RequestError) -> None:
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(ErrorMessage.of(error)), type=ErrorMessage).error
    assert type(sent) is type(error)
    assert (sent.message, sent.param, sent.faults) == (error.message, error.param, error.faults)


def test_a_kind_that_nobody_knows() -> None:
    assert type(ErrorMessage("Mine", "words").error).__name__ == "LmiError"


def test_the_name_that_is_most_like_it() -> None:
    assert most_like("dtipe", ["dtype", "type"]) == "dtype"
    assert most_like("dtype", ["dtype"]) == most_like("x", ["dtype"]) == ""
