"""Text and tokens that a stop string ends: a token's bytes are those of the text that it shows."""

from __future__ import annotations

from lmi.model.text.detokenizer import StopFinder

PIECES = {1: "so ", 2: "", 3: "är b", 4: "ad"}
RAW = {1: b"so ", 2: b"\xc3", 3: b"\xa4r b", 4: b"ad"}


def test_a_token_that_a_stop_string_clips_has_no_bytes_of_what_is_cut_off() -> None:
    stream = StopFinder(lambda token: PIECES[token] if isinstance(token, int) else "", True, stops=("r bad",))
    for number, raw in RAW.items():
        stream.push(number, -0.5, False, (), raw)
    text, tokens = stream.finish()
    assert text == "so ä"
    assert [(token.text, token.raw) for token in tokens] == [("so ", b"so "), ("", b"\xc3"), ("ä", b"\xa4"), ("", b"")]
