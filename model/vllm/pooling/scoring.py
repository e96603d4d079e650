"""Models with a head for classes: one score for a pair of texts, or the probabilities of a text's classes.

Whether these are what the head gives, or sigmoid or softmax of it, the model's config says (activation.py), and a
request may ask for the logits.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from ...errors import Fault, OptionError, ParameterError, RequestError, UnsupportedError, raised_by_us
from ...generation import Conversation, Generation, Scoring
from ...media.parts import MediaFile
from ...options import Settings
from ..library.parts import SECOND_TEXTS, check_second_texts
from ..request.prompts.prompt import template_errors
from .activation import activation_of
from .backend import PoolingBackend, Prepared
from .pairs import ARGUMENTS, PairTokenizer, Tokens

__all__ = ["VllmScoring"]

log = logging.getLogger(__name__)


class VllmScoring(PoolingBackend):
    """An AsyncBackend (model/backend.py) on vLLM's core."""

    task: ClassVar[Literal["embed", "classify"]] = "classify"
    makes = "scores"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        config: Any = self._model_config.hf_config
        tokenizer = self._core.get_tokenizer()
        self._ranks = settings.task == "rank"
        names: dict[int, str] = getattr(config, "id2label", None) or {}
        self._labels = tuple(str(names.get(index, f"LABEL_{index}")) for index in range(config.num_labels))
        self._activation = activation_of(config.to_dict())
        self._activated: bool = getattr(self._model_config.pooler_config, "use_activation", None) is not False
        self._texts = PairTokenizer(
            tokenizer,
            self._info.context,
            None if self._pairs is None else self._rendered,
            variables="" if self._pairs is None else self._pairs.source,
            separates=self._model_config.use_sep_token,
            lower_case=self._lower_case,
        )
        if self._texts.typed:
            check_second_texts()
        if self._ranks and self._texts.runs_together:
            log.warning(
                "this model's prompts are a query and a document with nothing between them: if it was trained with "
                "another prompt, its scores are wrong, and option.chat_template is to give it"
            )

    async def begin(self) -> None:
        """As `begin_with`; raises OptionError too for a model that ranks by several classes."""
        count = len(self._labels)
        if self._ranks and count != 1:
            expected = f"text-classification with this model, which has {count} classes"
            raise OptionError.of("task", "text-ranking needs one", expected=expected)
        scoring = Scoring(document="a", truncate=True) if self._ranks else Scoring(classes=True)
        await self.begin_with(Generation(request_id="start", prompt="a" if self._ranks else (0,), scoring=scoring))

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> Prepared:
        """Tokenizes, cuts and checks; raises RequestError. Texts have no images."""
        from vllm import PoolingParams

        scoring = generation.scoring
        if scoring is None:
            raise UnsupportedError("this model scores texts and generates none")
        if not scoring.classes and len(self._labels) != 1:
            raise UnsupportedError(f"this model has {len(self._labels)} classes: it classifies texts and ranks none")
        lora = self.adapter_of(generation)
        try:
            tokens = self._tokens(generation, scoring)
            self.check(tokens.ids)
            params = PoolingParams(task="classify", use_activation=True)
            if tokens.second is not None:
                params.extra_kwargs = {SECOND_TEXTS: tokens.second}
            request = self._core.request(self.render(tokens.ids), params, lora_request=lora)
        except self._client_errors as error:
            if raised_by_us(error) and not isinstance(error, RequestError):
                raise
            if isinstance(error, RequestError):
                raise
            raise ParameterError.because(Fault("prompt", f"{error}")) from error
        labels = self._labels if scoring.classes else ()
        activated = self._activated if scoring.activation is None else scoring.activation
        activation = self._activation if activated else None
        return Prepared(number, request, len(tokens.ids), generation.request_id, labels, activation)

    def _tokens(self, generation: Generation, scoring: Scoring) -> Tokens:
        prompt = generation.prompt
        if isinstance(prompt, Conversation):
            return self._texts.ids(self.conversation(prompt, scoring.truncate, scoring.cut), scoring)
        if not isinstance(prompt, str):
            return self._texts.ids([*prompt], scoring)
        if scoring.document is None:
            return self._texts.single(prompt, scoring, generation.add_special_tokens)
        return self._texts.pair(prompt, scoring.document, scoring)

    def _rendered(self, query: str, document: str, variables: Mapping[str, Any]) -> str:
        """The prompt of a pair."""
        assert self._pairs is not None
        from transformers.utils.chat_template_utils import render_jinja_template

        if taken := variables.keys() & inspect.signature(render_jinja_template).parameters.keys():
            raise ParameterError.because(Fault(ARGUMENTS, expected=f"none that is named {min(taken)}"))
        try:
            messages = self._pairs.messages(query, document)
            texts, _ = render_jinja_template([messages], chat_template=self._pairs.source, **variables)
        except template_errors() as error:
            if raised_by_us(error):
                raise
            raise ParameterError.because(Fault(ARGUMENTS, f"the template of pairs refuses it: {error}")) from error
        return str(texts[0])
