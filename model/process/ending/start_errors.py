"""Why an engine could not start, in one line: the cause, without what surrounds it, and the option to look at."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ...errors import OPTION, MemoryShortError, StartError, one_line
from ...options import Settings
from ...options.combined import is_hub_id
from ...options.table import name_given, name_of_argument
from ...vllm_messages import ADVICE, MORE, NOISE, OUT_OF_MEMORY, says_nothing

__all__ = ["fetched", "start_error", "without_text"]

MAX_CAUSE_CHARACTERS = 600
"""Characters of a cause that are shown: the rest, as a list of all architectures, is in the log."""


def start_error(error: BaseException, settings: Settings | None = None) -> StartError:
    """What a backend's failure to start with these settings is reported as."""
    if isinstance(error, StartError):
        return error
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    told: list[str] = []
    for part in chain:
        text = _clear(part)
        # One that is about another often repeats it.
        if text and not any(text in other for other in told):
            told.append(text)
    said = " <- ".join([text for text in told if not says_nothing(text)] or told)
    short = isinstance(error, MemoryError) or OUT_OF_MEMORY.search(said) is not None
    option = next((option for pattern, option in ADVICE if re.search(pattern, said, re.IGNORECASE)), None)
    more = next((f"{words}: " for pattern, words in MORE if re.search(pattern, said, re.IGNORECASE)), "")
    of_hub = any(type(part).__module__.startswith("huggingface_hub.") for part in chain)
    if settings is not None:
        given = settings.engine_arguments
        option = _argument(said, given) or option or _object(" ".join(map(str, chain)), given)
        if of_hub and not Path(settings.model_id).is_absolute():
            option = "model_id"
            more = f"{settings.model_id} is no directory here, and could not be fetched from the hub: "
        elif of_hub:
            option = next(fetched(settings), option)
        option = settings.written.get(option or "", option)
    look = f", see {settings.called(option) if settings else OPTION + option}" if option else ""
    kind = MemoryShortError if short else StartError
    return kind(f"the engine could not start{look}: {more}{_cut(said)}", option)


FETCHED = ("tokenizer", "hf_config_path", "generation_config", "speculative_config")
"""Arguments that may name something else of the hub than the model."""
_WORDS = {"", "none", "null", "auto", "vllm", "ngram", "[ngram]", "ngram_gpu", "suffix"}
"""Their values that name no model (vLLM's ModelConfig, SpeculativeConfig)."""


def fetched(settings: Settings) -> Iterator[str]:
    """The options, of those given, that name something of the hub beside the model."""
    for argument in FETCHED:
        named = settings.engine_arguments.get(argument, "")
        if argument == "speculative_config":
            named = _draft_model(named)
        if named.lower() not in _WORDS and is_hub_id(named):
            yield name_given(settings, argument)


def _draft_model(config: str) -> str:
    """The model that a speculative_config names; empty: none, or it cannot be read, which vLLM's parser says."""
    try:
        return _decode_drafts(config).model or ""
    except msgspec.DecodeError:
        return ""


class _Drafts(msgspec.Struct):
    model: str | None = None


_decode_drafts = msgspec.json.Decoder(_Drafts).decode

_FIELD = re.compile(r"(\w+)[\w.,\[\]]* (Input should|Value error)")
"""How pydantic's words begin, without what is around them (NOISE)."""
_OBJECT = re.compile(r"validation errors? for (\w+)")
_QUOTED = re.compile(r"(['\"`])(?P<text>[^'\"`]+)\1")
_STRING = re.compile(r'"([^"]*)"(\s*:)?')
_COMMON = {"auto", "none", "true", "false"}
"""Values that a message may quote without being about the argument that has it."""


def _object(whole: str, given: Mapping[str, str]) -> str | None:
    """The option of the one argument, of those `given`, whose object a message is about, with what was around it."""
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", found[1]).lower() for found in _OBJECT.finditer(whole)]
    about = [name for name in names if name in given]
    return name_of_argument(about[0]) if len(about) == 1 else None


def _argument(said: str, given: Mapping[str, str]) -> str | None:
    """The option of the one argument, of those `given`, that a message names as a field, or whose value it quotes."""
    fields = [found[1] for found in (_FIELD.match(said),) if found]
    quoted = {found["text"].lower() for found in _QUOTED.finditer(said)} - _COMMON
    about = [name for name in fields if name in given] or [
        name for name, text in given.items() if quoted & {text.lower(), *_strings(text)}
    ]
    return name_of_argument(about[0]) if len(about) == 1 else None


def _strings(text: str) -> set[str]:
    """The values in an object or a list in JSON that are texts, in lower case."""
    return {found[1].lower() for found in _STRING.finditer(text) if not found[2]} if text[:1] in {"{", "["} else set()


def without_text(kind: str, statement: str, file: str, line: str, function: str) -> str:
    """What is said of an error that has no text of its own, such as that of a plain assert: what was to hold, and where
    that stands."""
    return f"{kind}: {one_line(statement)} ({Path(file).name}, line {line}, in {function.strip()})"


def _clear(error: BaseException) -> str:
    text = one_line(str(error)) or _place_of(error)
    for noise in NOISE:
        text = noise.sub("", text)
    # As of a decoder's StopIteration, the place where it stood.
    return "" if text.isdecimal() else text


def _place_of(error: BaseException) -> str:
    kind = type(error).__name__
    if not (frames := traceback.extract_tb(error.__traceback__)):
        return kind
    last = frames[-1]
    return without_text(kind, last.line or "", last.filename, str(last.lineno), last.name)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CAUSE_CHARACTERS else text[:MAX_CAUSE_CHARACTERS].rsplit(" ", 1)[0] + " ..."
