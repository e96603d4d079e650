"""The prompt of a chat's body by our renderer, and by vLLM's own serving layer, of one model: as text and as tokens.

body --parse, ChatRenderer--> Prompts.ours        body --ChatCompletionRequest, OnlineRenderer--> Prompts.vllms
"""

from __future__ import annotations

import asyncio
import copy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from ..api.dialects import parse
from ..api.engine import ChatRenderer, renderer_of
from ..api.options import typed_settings
from ..api.types import Conversation

__all__ = ["Prompts"]

Body = dict[str, Any]


class Prompts:
    """Of the model in a folder."""

    def __init__(self, folder: Path, model: Body, **options: Any) -> None:
        """`model`: arguments of vLLM's EngineArgs; `options`: fields of Settings, as vLLM's server calls them too."""
        self.config, self.vllm = _rendering(str(folder), **model)
        self._settings = typed_settings(model_name="served")
        self._folder = str(folder)
        self.use(**options)

    def use(self, **options: Any) -> None:
        """Renders with these options from now on."""
        from vllm.renderers.online_renderer import OnlineRenderer

        place = {"model_dir": self._folder, "model_id": self._folder}
        self.settings = msgspec.structs.replace(self._settings, **place, **options)
        core: Any = SimpleNamespace(
            get_tokenizer=self.vllm.get_tokenizer,
            model_config=self.config.model_config,
            renderer=self.vllm,
            images=None,
            end_ids=frozenset[int],
        )
        self.renderer = ChatRenderer(core, self.settings)
        given: Any = {"chat_template": None} | options
        if (parser := given.pop("tool_call_parser", None)) is not None:
            given |= {"tool_parser": parser, "enable_auto_tools": True}
        self._server: Any = OnlineRenderer(
            self.config.model_config, self.vllm, request_logger=None, chat_template_content_format="auto", **given
        )

    def conversation(self, body: Body, dialect: str = "openai") -> Conversation:
        """What our formatter makes of a body."""
        (generation,) = parse(dialect, copy.deepcopy(body), self.settings).generations
        assert isinstance(generation.prompt, Conversation)
        return generation.prompt

    def ours(self, body: Body, dialect: str = "openai") -> list[int]:
        """By us."""
        request = self.renderer.request(self.conversation(body, dialect))
        return [*self.renderer.render(request)["prompt_token_ids"]]

    def vllms(self, body: Body) -> list[int]:
        """By vLLM's server, which raises what templates raise."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        made = asyncio.run(self._server.render_chat(ChatCompletionRequest(**copy.deepcopy(body))))
        assert isinstance(made, tuple), made
        (prompt,) = made[1]
        return [*prompt["prompt_token_ids"]]

    def text(self, tokens: list[int]) -> str:
        """Tokens as text."""
        return str(self.vllm.get_tokenizer().decode(tokens))


@cache
def _rendering(folder: str, **model: Any) -> tuple[Any, Any]:
    """vLLM's configuration for a model, and its renderer, which tests share."""
    from vllm import EngineArgs

    # The class of the model is nothing to prompts, and takes vLLM ten seconds to look at: one for all.
    one: Any = {"architectures": ["LlamaForCausalLM"]}
    made: Any = EngineArgs(model=folder, enforce_eager=True, load_format="dummy", hf_overrides=one, **model)
    config = made.create_engine_config()
    return config, renderer_of(config)
