"""The chat template that the options give instead of the model's own."""

from __future__ import annotations

from pathlib import Path

from ..errors import OptionError
from ..options import Settings

__all__ = ["chat_template"]


def chat_template(settings: Settings) -> str | None:
    """The text of option.chat_template; raises OptionError where it cannot be read or is no template."""
    given = settings.chat_template
    if given is None:
        return None
    if "{" in given:
        text, place = given, ""
    else:
        path = Path(settings.model_dir, given)
        place = f"{path}: "
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise OptionError.of("chat_template", f"{place}{reason}") from None
    from jinja2 import TemplateSyntaxError
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        render_jinja_template([[]], chat_template=text)
    except TemplateSyntaxError as error:
        line = f"line {error.lineno}: {error.message}"
        raise OptionError.of("chat_template", f"{place}{line}") from None
    except Exception:  # noqa: BLE001 - not every template takes a conversation without messages
        pass
    return text
