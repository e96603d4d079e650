"""serving.properties and the environment, read as DJL Serving reads them.

    text --natural lines--> logical lines (continued by a backslash at the end) --> key, separator, value --> unescape

The rules of the file are those of `java.util.Properties.load`; those of the environment are DJL Serving's in ModelInfo
(`OPTION_*`, `ARGS_*`) and LmiConfigRecommender (the degrees). What else the environment says: environment/.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import Fault, OptionError

__all__ = ["gather", "natural_lines", "option_of_variable", "read_properties", "sources_of", "unprefixed_names"]

FILE = "serving.properties"
_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_ENTRY = re.compile(r"((?:\\.|[^\\ \t\f=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{0,4})|(.?))", re.DOTALL)
_JAVAS = {"entrypoint": "entryPoint"}
"""Java's own name of an option, by that in lower case."""
_DEGREES = ("TENSOR_PARALLEL_DEGREE", "PIPELINE_PARALLEL_DEGREE")
_MARK = codecs.BOM_UTF8.decode("latin-1")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    r"""The entries of a .properties file; of equal keys the last one counts.

    Comments begin with # or !, a key ends at =, : or blank, a backslash at the end of a line continues it, and \t \n \r
    \f \uXXXX are escapes. Raises OptionError for a \u without its four hexadecimal digits (Java fails on it too), and
    for a byte order mark, which Java takes for a part of the first name.
    """
    if text.startswith(_MARK):
        line = next(_logical_lines(text)).removeprefix(_MARK)
        if line and line[0] not in "#!":
            name = _entry(line)[0]
            why = f"begins with a byte order mark, which DJL Serving takes for a part of the first name, {name}"
            raise OptionError.of_all([Fault(None, f"{why}: save it as UTF-8 without one", source=FILE)])
        text = text.removeprefix(_MARK)
    return dict(map(_entry, _logical_lines(text)))


def _entry(line: str) -> tuple[str, str]:
    match = _ENTRY.match(line)
    assert match is not None, "it matches anything"
    return _unescape(match[1]), _unescape(match[2])


def natural_lines(text: str) -> list[str]:
    """As Java ends them; `splitlines` knows more ends, one of them a part of UTF-8's letters."""
    return _LINE_END.split(text)


def _logical_lines(text: str) -> Iterator[str]:
    held = ""
    continued = False
    for natural in natural_lines(text):
        line = natural.lstrip(_BLANK)
        if not continued and (not line or line[0] in "#!"):
            continue
        # An even number of backslashes is that many halves of escaped ones.
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        held += line[:-1] if continued else line
        if not continued:
            yield held
            held = ""
    if held:
        yield held


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        digits, other = match[1], match[2]
        if digits is None:
            return _CONTROL.get(other, other)
        if len(digits) != 4:
            why = f"{match[0]!r} is not \\u and four hexadecimal digits"
            raise OptionError.of_all([Fault(None, why, source=FILE)])
        return chr(int(digits, 16))

    if "\\" not in text:
        return text
    # Java's characters are units of UTF-16: what is beyond them is written as two.
    return _ESCAPE.sub(plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _entries(model_dir: Path) -> dict[str, str]:
    """serving.properties, if there is one. Java reads such files as Latin-1, whatever was meant."""
    path = model_dir / "serving.properties"
    return read_properties(path.read_bytes().decode("latin-1")) if path.is_file() else {}


def unprefixed_names(model_dir: Path, environment: Mapping[str, str]) -> set[str]:
    """The names that are given without `option.` only: in serving.properties, or as `ARGS_*` in the environment."""
    entries = _entries(model_dir)
    names = {name for name in entries if not name.startswith("option.")} | _variables("ARGS_", environment).keys()
    options = {name.removeprefix("option.") for name in entries if name.startswith("option.")}
    return names - options - _variables("OPTION_", environment).keys()


def _variables(prefix: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of that prefix by the names that they mean (ModelInfo.loadServingProperties, 0.36)."""
    return {
        option_of_variable(variable, prefix): text
        for variable, text in environment.items()
        if variable.startswith(prefix) and text
    }


def option_of_variable(variable: str, prefix: str) -> str:
    """The option that a variable of that prefix means; names in mixed case are taken as they are: OPTION_entryPoint."""
    name = variable.removeprefix(prefix)
    return name.lower() if re.fullmatch(r"[A-Z_\d]+", name) else name


def gather(model_dir: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What DJL's init call would deliver: names without `option.`; the file takes precedence over the environment."""
    entries = _entries(model_dir)
    properties = _variables("ARGS_", environment)
    properties |= {name: text for name, text in entries.items() if not name.startswith("option.")}
    for name, text in _variables("OPTION_", environment).items():
        properties[_JAVAS.get(name, name)] = text
    properties |= {name.removeprefix("option."): text for name, text in entries.items() if name.startswith("option.")}
    for variable in _DEGREES:
        if environment.get(variable):
            properties.setdefault(variable.lower(), environment[variable])
    return properties


def sources_of(model_dir: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """By the name of an option that `gather` takes from the environment, the variable; none for those of the file."""
    entries = _entries(model_dir)
    sources = {
        option_of_variable(variable, "ARGS_"): variable for variable in environment if variable.startswith("ARGS_")
    }
    sources = {name: variable for name, variable in sources.items() if name not in entries}
    for variable in environment:
        if variable.startswith("OPTION_"):
            name = option_of_variable(variable, "OPTION_")
            sources[_JAVAS.get(name, name)] = variable
    for variable in _DEGREES:
        if variable in environment:
            sources.setdefault(variable.lower(), variable)
    return {
        name: variable
        for name, variable in sources.items()
        if environment[variable] and f"option.{name}" not in entries
    }
