"""Conversations on vLLM: the model's chat template, and the parsers that its answers are split by.

Conversation --request--> vLLM's ChatCompletionRequest --render--> prompt;  --splitter--> Splitter
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from ...errors import Fault, ParameterError, UnsupportedError, one_line, raised_by_us
from ...generation import Conversation, Sampling, StructuredOutput
from ...media.parts import MediaFile
from ...options import Settings
from ...text.answers.splitting import AnswerSplitter
from ...text.chat_template import chat_template
from ...text.efforts import EFFORT, Efforts
from ...text.template_messages import template_messages
from ..core import Core
from ..guides.backends import GuideBackends
from ..guides.beginning import Beginning
from ..library.internals import tokenize_params
from ..library.parts import part
from ..media.connector import decoded
from ..media.decoder import MediaDecoder, processor_faults, with_pictures
from ..mistral.conversations import mistral_conversations
from ..mistral.media import render_media
from .answer_parsers import AnswerParsers
from .harmony.harmony import harmony_of
from .prompts.encoding import TextEncoder, text_encoder
from .prompts.plain_chat import PlainChat, plain_chat
from .prompts.prompt import path_of
from .prompts.roles import TemplateRoles
from .repeated_forms import RepeatedForms
from .results import holds_media, shows_images

__all__ = ["TEMPLATE", "ChatRenderer"]

TRUNCATE, TOOLS = "sampling.truncate", "prompt.tools"
TOOL_CHOICE, TEMPLATE = "prompt.tool_choice", "prompt.chat_template"
"""Paths of what is refused."""

SOUND = "use_audio_in_video"
"""The processors' argument by which a video is heard, too."""
WHOLE = Sampling()
"""Nothing is cut."""
THINKING = {"enable_thinking": True, "thinking": True}
"""Variables by which a template is told that the model thinks, by the names that templates have."""
TRIED = 1 << 16
"""Characters of a trial's prompt that are looked at: a template may write any number."""
TRIED_WITH = {"role": "user", "content": "a"}
TRIAL = {"type": "function", "function": {"name": "a", "parameters": {"type": "object", "properties": {}}}}
"""A tool, to try parsers with."""


class ChatRenderer:
    """What a model's conversations need; raises OptionError where the options name what vLLM does not have."""

    def __init__(self, core: Core, settings: Settings) -> None:
        self._core = core
        self._settings = settings
        self.media = MediaDecoder(core, settings.media)
        self._template = chat_template(settings)
        self._form = part("vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest")
        self._mistral = mistral_conversations(core.get_tokenizer(), settings)
        """What mistral-common is to be given."""
        self._plain = self._form(messages=[{"role": "user", "content": ""}])
        self._harmony = harmony_of(core, settings)
        """What gpt-oss has in place of a chat template, and of vLLM's parsers."""
        self.by_tags = self._harmony is not None
        """Whether all guides of answers become structural tags of formats, which xgrammar alone takes."""
        self._plain_chats: dict[bool, PlainChat | None] = {}
        """What makes the texts of conversations of texts, without and with tools."""
        self._repeated = RepeatedForms()
        self._roles = self._roles_of(None)
        self._shows_images: bool | None = None
        """Whether the template shows images in results; None: it has not been tried."""
        self._parsers = None if self._harmony is not None else AnswerParsers(core, settings)
        """What takes other models' answers apart."""
        own = self._harmony or self._mistral
        self._repeats = own is None and (self._parsers is None or self._parsers.known)
        """Whether vLLM's forms of conversations depend on nothing but what is known here."""
        self._efforts = Efforts(None if own is None else own.efforts, self._try_effort)
        self._efforts.check(settings.default_chat_template_kwargs)
        if self._mistral is not None:
            self._mistral.try_out(self.request)
        for tools in ([], [TRIAL]) if own is None else ():
            variables = self._variables({}) or None
            asked = self._form(messages=[TRIED_WITH], tools=tools or None, chat_template_kwargs=variables)
            chat = self._chat_params(asked, tools=True)
            self._plain_chats[bool(tools)] = plain_chat(core.renderer, core.model_config, asked, chat)
        if settings.tool_call_parser and self._parsers is not None:
            asked = Conversation(messages=(TRIED_WITH,), tools=(TRIAL,), tool_choice="auto")
            self._parsers.feed_once(asked, self.request)

    @cached_property
    def _encoder(self) -> TextEncoder | None:
        """None: prompts are not made of text alone."""
        return text_encoder(self._core, self._template) if self._mistral is None else None

    @property
    def reasoning_end(self) -> int | None:
        """The token that ends reasoning; None: there is none, -1: it is not known."""
        return None if self._parsers is None else self._parsers.reasoning_end

    def knows(self, conversation: Conversation) -> bool:
        """Whether the form of one that differs in its messages alone has been kept."""
        return self._repeats and self._repeated.again(conversation) is not None

    def request(self, conversation: Conversation, guide: StructuredOutput | None = None) -> Any:
        """vLLM's own form of the request, as its parsers want it; raises ParameterError. `guide`: the client's."""
        template = conversation.chat_template
        if template is not None and (self._mistral is not None or self._harmony is not None):
            raise UnsupportedError.because(Fault(TEMPLATE, "not supported with this model, whose prompts need none"))
        roles = self._roles if template is None else self._roles_of(template)
        messages = template_messages(
            roles.fitted(conversation.messages),
            urls=False,
            media_in_results=self._media_in_results(conversation),
            join=self._mistral is None,
        )
        if self._mistral is not None:
            messages = self._mistral.messages(conversation, messages)
        plain = _is_plain(messages)
        # Of texts alone the form is a copy already where there are neither tools nor parsers.
        repeats = self._repeats and bool(conversation.tools or self._settings.reasoning_parser)
        if repeats and (kept := self._repeated.again(conversation)) is not None:
            given = kept.chat_template_kwargs
            checked = messages if plain else self._validated(messages=messages).messages
            return kept.model_copy(update={"messages": checked, "chat_template_kwargs": given and {**given}})
        fields: dict[str, Any] = {
            "messages": messages,
            "add_generation_prompt": conversation.add_generation_prompt,
            "continue_final_message": conversation.continue_final_message,
            "add_special_tokens": conversation.add_special_tokens,
            "chat_template_kwargs": self._variables(conversation.template_arguments, fit=template is None) or None,
            "chat_template": conversation.chat_template,
            "parallel_tool_calls": conversation.parallel_tool_calls,
            "mm_processor_kwargs": conversation.processor_arguments or None,
            "media_io_kwargs": conversation.reader_arguments or None,
        }
        if conversation.tools:
            fields["tools"] = [*conversation.tools]
            fields["tool_choice"] = conversation.tool_choice or "auto"
            if conversation.function:
                fields["tool_choice"] = {"type": "function", "function": {"name": conversation.function}}
        # Texts alone are nothing that vLLM could refuse: its validation is left out, 50 of 270 microseconds.
        plain = plain and not (conversation.tools or conversation.continue_final_message)
        request = self._plain.model_copy(update=fields) if plain else self._validated(**fields)
        if self._harmony is not None:
            request.structured_outputs = self._harmony.forced(conversation)
        if self._parsers is None:
            return request
        parser = self._parsers.of(conversation, request)
        if parser is None or (self._mistral is not None and not self._mistral.adjusts(request, conversation, guide)):
            return request
        shown = request.tools
        if conversation.forced:
            request.tools = [_guiding(tool) for tool in shown]
        try:
            request = parser.adjust_request(request)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if raised_by_us(error):
                raise
            # It reads the tools' schemas, which may hold anything.
            raise ParameterError.because(
                Fault(TOOLS, f"vLLM cannot read their schemas: {one_line(str(error))}")
            ) from error
        request.tools = shown
        if self._mistral is not None:
            # Its decoder leaves in what parsers look for, whatever vLLM asks for.
            request.skip_special_tokens = True
        if repeats:
            self._repeated.keep(conversation, request)
        return request

    def _validated(self, **fields: Any) -> Any:
        """vLLM's form of a request with these fields; raises ParameterError."""
        from pydantic import ValidationError

        try:
            return self._form(**fields)
        except ValidationError as error:
            first = error.errors()[0]
            raise ParameterError.because(Fault(_path(first["loc"]), f"{first['msg']}")) from None

    def render(
        self,
        request: Any,
        images: Sequence[MediaFile] = (),
        sampling: Sampling = WHOLE,
        shortened: Callable[[str], str] | None = None,
        *,
        whole: bool = False,
    ) -> Any:
        """The prompt, as vLLM takes it, or the tokens of it that `sampling` keeps; `shortened` makes of its text what
        has these. `whole`: with all images, whatever the core has.

        Raises what templates raise (see `template_errors`), and what `shortened` raises.

        A prompt with images is not cut: vLLM would do so before an image becomes its tokens (0.23), or refuse it where
        an image is touched (0.32).
        """
        pictures = self.media.decode(images, request.media_io_kwargs)
        hidden = self._settings.exclude_tools_when_tool_choice_none and request.tool_choice == "none"
        if self._harmony is not None:
            return self._harmony.render(request, sampling, shortened, tools=not hidden)
        encoder = None if pictures or sampling.truncate is not None else self._encoder
        if encoder is not None and (text := self._text(request, tools=not hidden)) is not None:
            return encoder.prompt(text if shortened is None else shortened(text), special=request.add_special_tokens)
        chat = self._chat_params(request, tools=not hidden)
        tokenize = tokenize_params(
            shortened,
            truncate_prompt_tokens=None if pictures else sampling.truncate,
            truncation_side=sampling.cut,
            add_special_tokens=request.add_special_tokens,
        )
        if not pictures:
            _, rendered = self._core.renderer.render_chat([request.messages], chat, tokenize)
        else:
            messages = with_pictures(request.messages, pictures)
            arguments = request.mm_processor_kwargs
            chat = chat.with_defaults(default_mm_processor_kwargs=arguments)
            extras = {"mm_processor_kwargs": arguments} if arguments else None
            sounds = self.media.sounds(images, request.media_io_kwargs) if arguments and arguments.get(SOUND) else {}
            # `skip_mm_cache`: image_cache.py is asked.
            with self.media.processing, processor_faults(images, arguments), decoded(pictures, sounds):
                if self._core.images is not None:
                    self._core.images.whole = whole
                if self._mistral is not None:
                    rendered = [render_media(self._core, messages, pictures, chat, tokenize, extras)]
                else:
                    render = self._core.renderer.render_chat
                    _, rendered = render([messages], chat, tokenize, prompt_extras=extras, skip_mm_cache=True)
        prompt: Any = rendered[0]
        truncate = sampling.truncate
        if pictures and truncate is not None and (tokens := len(prompt["prompt_token_ids"])) > truncate:
            message = f"{TRUNCATE}: a prompt with images is not cut, expected at least its {tokens} tokens"
            raise UnsupportedError(f"{message}, got {truncate}", TRUNCATE)
        return prompt

    def _text(self, request: Any, *, tools: bool) -> str | None:
        """The prompt's text; None: the model's tokenizer makes ids of conversations. Raises what templates raise.

        `tools`: whether the template is shown them.
        """
        shown = self._repeated.shown(request) if tools and request.tools else None
        plain = self._plain_chats.get(shown is not None)
        text = None if plain is None else plain.text(request, shown)
        if text is None:
            _, given = self._core.renderer.render_messages(request.messages, self._chat_params(request, tools=tools))
            text = given.get("prompt")
        return text

    def _chat_params(self, request: Any, *, tools: bool) -> Any:
        """vLLM's, as its server makes them: first the text is made, which can be judged before it is tokenized;
        mistral-common gives none.
        """
        chat = request.build_chat_params(self._template, self._settings.chat_template_content_format)
        if request.tools and tools:
            chat = chat.with_defaults({"tools": self._repeated.shown(request)})
        return chat.with_defaults({"tokenize": self._mistral is not None})

    def _variables(self, given: Mapping[str, Any], *, fit: bool = True) -> dict[str, Any]:
        """Those of the template: what a request says of them goes before the options' defaults, as in vLLM's server.

        fit: whether the effort becomes one that the model knows; raises ParameterError then.
        """
        defaults = self._settings.default_chat_template_kwargs
        merged = part("vllm.renderers.params:merge_kwargs")(defaults, given) if defaults else {**given}
        fitted = self._efforts.fitted(merged) if fit else merged
        return fitted if self._mistral is None else self._mistral.arguments(fitted)

    def _try_effort(self, effort: Any) -> None:
        """Raises what the model's template, or its reasoning parser, raises for an effort."""
        variables = {**self._settings.default_chat_template_kwargs, EFFORT: effort}
        self.render(self._form(messages=[TRIED_WITH], chat_template_kwargs=variables))
        if self._parsers is not None:
            self._parsers.reasoner(variables)

    def _roles_of(self, template: str | None) -> TemplateRoles:
        """Those of a request's template or of the model's. Some templates drop what was said before a model thought."""
        return TemplateRoles(*(partial(self._trial, template=template, variables=how) for how in (None, THINKING)))

    def _media_in_results(self, conversation: Conversation) -> bool:
        """Whether those of a conversation stay there."""
        if not (any(self.media.limits.values()) and holds_media(conversation.messages)):
            return False
        template = conversation.chat_template
        if template is None and self._shows_images is not None:
            return self._shows_images
        shown = shows_images(lambda messages, picture: self._trial(messages, [MediaFile(picture, "trial")], template))
        if template is None:
            self._shows_images = shown
        return shown

    def _trial(
        self,
        messages: list[dict[str, Any]],
        images: Sequence[MediaFile] = (),
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt of messages, as text, by a request's `template` or by the model's; raises what templates raise."""
        form = self._form(
            messages=messages,
            chat_template=template,
            chat_template_kwargs=self._variables(variables or {}, fit=template is None) or None,
        )
        prompt = self.render(form, images, shortened=lambda text: text[:TRIED], whole=True)
        text: str = self._core.get_tokenizer().decode(prompt["prompt_token_ids"])
        return text

    def splitter(
        self, conversation: Conversation, request: Any, prompt_ids: list[int], *, reasons: bool = True
    ) -> AnswerSplitter | None:
        """A splitter for one sequence; None where the answer is text as it is.

        `reasons`: whether reasoning may come.
        """
        if self._parsers is None:
            return None if self._harmony is None else self._harmony.splitter(conversation, request)
        return self._parsers.splitter(conversation, request, prompt_ids, reasons=reasons)

    def placed(
        self, conversation: Conversation, request: Any, guided: Any, path: str | None, backends: GuideBackends
    ) -> tuple[Any, str | None]:
        """A guide, compiled, and the path of what asked for it, once it holds where in an answer it is to hold; raises
        ParameterError.
        """
        if self._harmony is None:
            return guided, path
        return self._harmony.placed(conversation, request, guided, path, backends)

    def reasoner(self) -> Any:
        """vLLM's parser of the reasoning; None where there is none."""
        return None if self._parsers is None else self._parsers.reasoner({})

    def beginning(
        self, conversation: Conversation | None, request: Any, prompt_ids: list[int], *, waits: bool
    ) -> Beginning:
        """Where the guide of an answer begins; `request` is the conversation in vLLM's form, None for another prompt.

        `waits`: whether the core can wait for the end of reasoning that may come.
        """
        if self._parsers is None:
            return Beginning(at_once=True)
        return self._parsers.beginning(conversation, request, prompt_ids, waits=waits)

    def tool_format(self, conversation: Conversation, request: Any) -> Any:
        """The form of calls that may be made beside a guide (guides/joined.py); None where there is none."""
        return None if self._parsers is None else self._parsers.tool_format(conversation, request)


def _is_plain(messages: Iterable[dict[str, Any]]) -> bool:
    """Whether they are nothing but texts."""
    return all(message.keys() == TEXT and all(type(value) is str for value in message.values()) for message in messages)


TEXT = {"role", "content"}


def _path(steps: Sequence[int | str]) -> str:
    """Where in a Generation it is what vLLM names in its own form of a conversation."""
    name, index = (*steps, "", "")[:2]
    return (path_of(str(name)) or "prompt") + (f"[{index}]" if isinstance(index, int) else "")


def _guiding(tool: Any) -> Any:
    """A tool of vLLM's form as guided decoding is to take it; vLLM takes `$defs` out of the schemas that it is given.

    The arguments fit the tool's schema unless the client says otherwise (newer vLLM takes any JSON by default), and are
    an object where it has none.
    """
    function = tool.function
    schema = dict(function.parameters or {"type": "object", "properties": {}})
    strict = getattr(function, "strict", None) is not False
    return tool.model_copy(update={"function": function.model_copy(update={"parameters": schema, "strict": strict})})
