"""A conversation as mistral-common takes it: what vLLM's server sees to, and what it refuses and need not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from ...errors import Fault, ParameterError
from ...generation import Conversation, StructuredOutput
from ...options import Settings
from ...text.efforts import EFFORT
from ..library.parts import part
from .grammars import mistral_misfit, writes_by_grammars
from .messages import fitted

__all__ = ["MistralConversations", "mistral_conversations"]


NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Of a tool (mistral-common, protocol/instruct/validator.py)."""
TRIED = "a"
ASKED = {"role": "user", "content": "a"}
TRIAL = {"type": "function", "function": {"name": TRIED, "parameters": {"type": "object", "properties": {}}}}
"""A tool, to try grammars with."""
CONTINUE = "prompt.continue_final_message"


class MistralConversations:
    """What the conversations of one model need."""

    def __init__(self, tokenizer: Any, settings: Settings) -> None:
        """`tokenizer` is vLLM's MistralTokenizer."""
        self.grammars = writes_by_grammars(tokenizer, settings)
        """Whether vLLM guides its calls by mistral-common's grammars."""
        self._version: int = tokenizer.version
        self._thinks = getattr(tokenizer.instruct, "BEGIN_THINK", None) is not None
        efforts = getattr(getattr(tokenizer.tokenizer, "model_settings_builder", None), EFFORT, None)
        self.efforts: tuple[str, ...] = (
            () if efforts is None else tuple(str(getattr(one, "value", one)) for one in efforts.values)
        )
        """Those that the model's settings know; none where it has no settings."""

    def try_out(self, request: Callable[[Conversation], Any]) -> None:
        """Raises OptionError where mistral-common makes no grammars of calls, or not as this vLLM asks for them;
        `request` gives vLLM's form of a conversation."""
        if not self.grammars:
            return
        tried = Conversation(messages=(ASKED,), tools=(TRIAL,))
        try:
            for choice in ("auto", "none", "required"):
                request(replace(tried, tool_choice=choice))
            request(replace(tried, function=TRIED))
        except Exception as error:
            raise mistral_misfit(error.__cause__ or error) from error

    def messages(self, conversation: Conversation, messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of a conversation, in OpenAI's form, as it takes them; raises ParameterError for what it would refuse
        without saying where it stands."""
        for index, tool in enumerate(conversation.tools):
            if NAME.fullmatch(name := tool["function"]["name"]) is None:
                path = f"prompt.tools[{index}].name"
                raise ParameterError.of(path, name, "up to 64 letters, digits, '_' and '-', as this model's tools have")
        last = conversation.messages[-1]
        answered = (last["role"] if isinstance(last, dict) else last.role) == "assistant"
        if answered is not conversation.continue_final_message:
            expected = "expected true where the last message is the assistant's, and only there"
            raise ParameterError.because(Fault(CONTINUE, f"{expected}, got {'false' if answered else 'true'}"))
        return fitted(messages, version=self._version, thinks=self._thinks)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Of a template's arguments, with an effort that it knows, those that it has: chat templates pass over the
        others, too."""
        return {EFFORT: given[EFFORT]} if self.efforts and EFFORT in given else {}

    def adjusts(self, request: Any, conversation: Conversation, guide: StructuredOutput | None) -> bool:
        """Whether vLLM's parser is to adjust `request`, its form of the conversation. With tools it guides every answer
        then: to calls, to none, or to either a call or what `guide` asks for, where that is JSON. Other guides have no
        place in its grammars: they hold alone, where no call is forced.
        """
        forced = conversation.function is not None or conversation.tool_choice == "required"
        if guide is None or forced or not (self.grammars and conversation.tools):
            return True
        if conversation.tool_choice == "none" or not (guide.json_object or guide.json_schema):
            return False
        asked = {"json_object": True} if guide.json_object else {"json": guide.json_schema}
        request.structured_outputs = part("vllm.sampling_params:StructuredOutputsParams")(**asked)
        return True


def mistral_conversations(tokenizer: Any, settings: Settings) -> MistralConversations | None:
    """What a model's conversations need where its tokenizer is Mistral's, else None."""
    is_mistral = part("vllm.utils.mistral:is_mistral_tokenizer")(tokenizer)
    return MistralConversations(tokenizer, settings) if is_mistral else None
