"""Bodies of a given size, good ones and faulty ones, each as large as its kind may be."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping

import msgspec

from lmi.formatters.common.body_size import CONTAINERS, STRINGS, VALUES

__all__ = ["FAULTY", "GOOD", "longest_pause"]

SPARE = 16
"""Values that a body has besides those that fill it."""


def _filled(head: str, unit: str, tail: str | bytes, most: int | None = None) -> Callable[[int], bytes]:
    """As many units as fit, or as there may be; the rest of the size is white space."""
    first, one = head.encode(), unit.encode()
    last = tail if isinstance(tail, bytes) else tail.encode()

    def made(size: int) -> bytes:
        count = (size - len(first) - len(last)) // len(one)
        if most is not None:
            count = min(count, most - SPARE)
        return (first + one * count).ljust(size - len(last)) + last

    return made


TEXT, TEXT_END = '{"inputs":"', '","parameters":{"max_new_tokens":1}}'
IDS, IDS_END = '{"prompt":[', "1]}"
OBJECTS, OBJECTS_END = '{"inputs":"a","other":[', "{}]}"
STRING_LIST, STRING_LIST_END = '{"inputs":"a","other":[', '""]}'
IMAGE = '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,'
MESSAGE = '{"role":"user","content":"%s"},' % ("a" * 4000)
LINE = "It was the best of times, it was the worst of times, it was so.\\n"

GOOD: Mapping[str, Callable[[int], bytes]] = {
    "text": _filled(TEXT, "a", TEXT_END),
    "text with line ends": _filled(TEXT, LINE, TEXT_END),
    "text of escapes": _filled(TEXT, "\\u00e9\\n", TEXT_END),
    "Chinese text": _filled(TEXT, "日", TEXT_END),
    "brackets in a text": _filled(TEXT, "[{,", TEXT_END),
    "image": _filled(IMAGE, "iVBO", '"}}]}]}'),
    "messages": _filled('{"messages":[', MESSAGE, MESSAGE[:-1] + "]}", 1 << 14),
    "token ids": _filled(IDS, "50000,", IDS_END, VALUES),
    "objects": _filled(OBJECTS, '{"a":1},', OBJECTS_END, CONTAINERS),
    "strings": _filled(STRING_LIST, '"a",', STRING_LIST_END, STRINGS),
    "the same key again and again": _filled('{"inputs":"a"', ',"a":1', "}", STRINGS),
    "white space": _filled(" ", " ", '{"inputs":"a"}'),
}
FAULTY: Mapping[str, tuple[Callable[[int], bytes], str]] = {
    "NaN, NaN, ...": (_filled(IDS, "NaN,", "1]}", VALUES), "token ids"),
    "NaN after numbers": (_filled(IDS, "50000,", "NaN]}", VALUES), "token ids"),
    "NaN after strings": (_filled(STRING_LIST, '"a",', "NaN]}", STRINGS), "strings"),
    "NaN after objects": (_filled(OBJECTS, '{"a":1},', "NaN]}", CONTAINERS), "objects"),
    "NaN after a text": (_filled(TEXT, "a", '","parameters":{"temperature":NaN}}'), "text"),
    "NaN after escapes": (_filled(TEXT, "\\u00e9\\n", '","parameters":{"temperature":NaN}}'), "text of escapes"),
    "a number beyond a double after a text": (_filled(TEXT, "a", '","parameters":{"top_p":1e999}}'), "text"),
    "a number beyond a double after numbers": (_filled(IDS, "50000,", "1e999]}", VALUES), "token ids"),
    "an integer as long as the body": (_filled('{"seed":', "9", "}"), "text"),
    "cut off within a text": (_filled(TEXT, "a", ""), "text"),
    "cut off after numbers": (_filled(IDS, "50000,", "1", VALUES), "token ids"),
    "something behind it": (_filled(TEXT, "a", TEXT_END + "{}"), "text"),
    "not UTF-8 at the end of a text": (_filled(TEXT, "a", b'\xff"}'), "text"),
    "not UTF-8 at the end of Chinese text": (_filled(TEXT, "日", b'\xff"}'), "Chinese text"),
    "half a surrogate pair": (_filled(TEXT, "a", '\\ud800"}'), "text"),
    "deep": (_filled('{"inputs":', "[", "", CONTAINERS), "objects"),
    "too many objects": (_filled(OBJECTS, "{},", OBJECTS_END), "objects"),
    "too many strings": (_filled(STRING_LIST, '"",', STRING_LIST_END), "strings"),
    "too many numbers": (_filled(IDS, "1,", IDS_END), "token ids"),
    "a text that is a number": (_filled('{"parameters":{"max_new_tokens":"', "9", '"}}'), "text"),
    "strings in place of ids": (_filled('{"prompt":[[1],', '"a",', '"a"]}', STRINGS), "strings"),
}
"""Each with the kind of good one that it is compared with."""


@functools.cache
def longest_pause(size: int) -> float:
    """Seconds that other threads may be kept waiting while a body of `size` bytes is read: 0.1, or on a slow machine
    twice what msgspec takes for the slowest of them, since it does not let others run until it is done."""
    body = GOOD["objects"](size)
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        msgspec.json.decode(body)
        best = min(best, time.perf_counter() - begun)
    return max(0.1, 2 * best)
