"""vLLM's private parts, put to use: everything that vLLM does not document and that we rely on, in this one module.

Which they are, and that they are there, parts.py says. What vLLM has a slower, documented way for is none of them: it
is taken with a line in the log (core_outputs.py too); whatever else touches vLLM goes by what it documents. Texts that
vLLM writes are in model/vllm_messages.py.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from ...conversation import MediaKind
from ...engine import MANY
from ...errors import StartError
from .answer_ids import AnswerIds
from .parts import RUN_V2_BUDGETS, RUN_V2_PROCESSORS, part

__all__ = [
    "argument_actions",
    "available_memory",
    "failed_output",
    "keep_linear",
    "keep_shapes",
    "keep_texts",
    "media_limits",
    "no_outputs",
    "read_images_by",
    "rejected_transfer",
    "run_workers",
    "scales_by_module",
    "tokenize_params",
    "transcribes",
    "unshared",
    "v2_is_forced",
    "v2_takes_budgets",
    "v2_takes_processors",
    "video_processor",
]

log = logging.getLogger(__name__)

# The core, and which model runner there is.


def make_client(config: Any, renderer: Any, executor_of: Callable[[Any], Any]) -> Any:
    """vLLM's asynchronous client of a core, which it starts; raises what vLLM raises.

    The core makes its executor of what `executor_of` makes of vLLM's class.
    """
    make = part("vllm.v1.engine.core_client:EngineCoreClient.make_async_mp_client")
    executor = executor_of(part("vllm.v1.executor:Executor.get_class")(config))
    # Later versions prepare the processing of images beside the start.
    more = {"renderer": renderer} if "renderer" in inspect.signature(make).parameters else {}
    return make(vllm_config=config, executor_class=executor, log_stats=True, **more)


def failed_output(name: str) -> Any:
    """What the core sends where one request has failed, and nothing else has come."""
    output = part("vllm.v1.engine:EngineCoreOutput")
    failed = output(request_id=name, new_token_ids=[], finish_reason=part("vllm.v1.engine:FinishReason").ERROR)
    return part("vllm.v1.engine:EngineCoreOutputs")(outputs=[failed])


def no_outputs() -> Any:
    """What the core sends where nothing has come."""
    return part("vllm.v1.engine:EngineCoreOutputs")()


def run_workers(config: Any) -> None:
    """Starts the workers of a VllmConfig whose core is on another host, and waits until they are up (`vllm serve
    --headless`, entrypoints/cli/serve.py, run_headless). They end with this process.
    """
    _workers.append(part("vllm.v1.executor.multiproc_executor:MultiprocExecutor")(config, monitor_workers=False))


_workers: list[Any] = []
"""What owns them, and would end them if nobody held it."""


def v2_is_forced() -> bool:
    """Whether vLLM's environment insists on model runner V2."""
    import vllm.envs

    return bool(getattr(vllm.envs, "VLLM_USE_V2_MODEL_RUNNER", False))


def v2_takes_processors() -> bool:
    """Whether model runner V2 takes logits processors in this version."""
    return importlib.util.find_spec(RUN_V2_PROCESSORS) is not None


def v2_takes_budgets() -> bool:
    """Whether model runner V2 ends reasoning after a number of tokens in this version."""
    return importlib.util.find_spec(RUN_V2_BUDGETS) is not None


def scales_by_module() -> bool:
    """Whether adapters may scale each module in its own way in this version; 0.28 takes no notice of it.

    Not before the core has started, and no one of PARTS: this imports the layers of models, parts of which
    the CPU platform replaces when the core starts.
    """
    return hasattr(part("vllm.lora.peft_helper:PEFTHelper"), "get_rank_and_scaling")


# Options.


@cache
def argument_actions() -> dict[str, argparse.Action]:
    """What vLLM's command line makes of each argument for the engine, by its name."""
    from vllm import EngineArgs

    parser = EngineArgs.add_cli_args(part("vllm.utils.argparse_utils:FlexibleArgumentParser")())
    return {action.dest: action for action in parser._actions}


def available_memory() -> int:
    """Bytes that are free on a machine without a GPU, as vLLM counts them."""
    return int(part("vllm.utils.cpu_resource_utils:get_memory_node_info")().available_memory)


# Prompts.


def tokenize_params(shortened: Callable[[str], str] | None = None, **arguments: Any) -> Any:
    """vLLM's TokenizeParams; what is tokenized of a text is what `shortened` makes of it."""
    params = _params_class()(max_total_tokens=None, **arguments)
    object.__setattr__(params, "shortened", shortened)
    return params


@cache
def _params_class() -> Any:
    params: Any = part("vllm.renderers.params:TokenizeParams")

    class Shortening(params):  # type: ignore[misc]
        """Made once a prompt, and changed by nobody."""

        shortened: Callable[[str], str] | None

        def apply_pre_tokenization(self, tokenizer: Any, prompt: Any) -> Any:
            if self.shortened is not None:
                prompt = {**prompt, "prompt": self.shortened(prompt["prompt"])}
            return super().apply_pre_tokenization(tokenizer, prompt)

    return Shortening


def keep_linear(parser: Any) -> None:
    """Lets one of vLLM's parsers take the same time for each token of an answer (see
    answer_ids.py), if it keeps its tokens as is known here.
    """
    try:
        parser._stream_state = _state_class()(**vars(parser._stream_state))
    except (AttributeError, TypeError, StartError) as error:
        _tell_slower("parsers take longer for each token of a long answer", str(error))


def keep_texts(tokenizer: Any) -> Any:
    """A tokenizer for vLLM's parsers, which keeps what it decodes single tokens to: each parser asks for each token.

    As vLLM's own copies of tokenizers, of a class of its own; those that are not of transformers stay as they are.
    """
    from transformers import PreTrainedTokenizerBase

    kind = type(tokenizer)
    if not issubclass(kind, PreTrainedTokenizerBase):
        return tokenizer
    texts: dict[int, Any] = {}

    def decode(self: Any, token_ids: Any, *args: Any, **kwargs: Any) -> Any:
        token_id = token_ids[0] if type(token_ids) is list and len(token_ids) == 1 else None
        if type(token_id) is not int or args or kwargs:
            return kind.decode(self, token_ids, *args, **kwargs)
        text = texts.get(token_id)
        if text is None:
            text = texts[token_id] = kind.decode(self, token_ids)
        return text

    # vLLM's classes say how they are pickled, and so how `copy` would make another.
    try:
        kept: Any = object.__new__(type(kind.__name__, (kind,), {"decode": decode}))
        vars(kept).update(vars(tokenizer))
    except TypeError:
        # A class of a model's own may allow neither.
        return tokenizer
    return kept


@cache
def keep_shapes() -> None:
    """Lets vLLM's parsers have what they make of their format and the tokenizer's special tokens made once, and not for
    each answer: half of what a parser takes.
    """
    try:
        parsers: Any = importlib.import_module("vllm.parser.engine.streaming_parser_engine")
        make = parsers._build_drop_info
    except (ImportError, AttributeError) as error:
        _tell_slower("parsers take longer to make", str(error))
        return

    @lru_cache(maxsize=16)
    def made(config: _Same, tokenizer: _Same) -> Any:
        return make(config.one, tokenizer.one)

    parsers._build_drop_info = lambda config, tokenizer: made(_Same(config), _Same(tokenizer))


class _Same:
    """An object that equals itself alone: what has no hash as a key."""

    __slots__ = ("one",)

    def __init__(self, one: Any) -> None:
        self.one = one

    def __hash__(self) -> int:
        return id(self.one)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.one is self.one


@cache
def unshared() -> dict[str, bool]:
    """What tells SamplingParams that nobody else has them, so that vLLM need not copy all that they hold (a quarter of
    a short prompt's time).
    """
    from vllm import SamplingParams

    if "skip_clone" in SamplingParams.__struct_fields__:
        return {"skip_clone": True}
    _tell_slower("vLLM copies the parameters of each request", "SamplingParams has no skip_clone")
    return {}


@cache
def _tell_slower(what: str, why: str) -> None:
    log.warning("%s, as this vLLM differs from those that were tested: %s", what, why)


@cache
def _state_class() -> Any:
    state: Any = part("vllm.parser.abstract_parser:StreamState")

    class Linear(state):  # type: ignore[misc]
        """vLLM begins with a new list where reasoning ends."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "previous_token_ids" and type(value) is list:
                value = AnswerIds(value)
            super().__setattr__(name, value)

    return Linear


def media_limits(core: Any) -> dict[MediaKind, int]:
    """How many images, audio and videos a prompt may have; 0: the model takes none. Embeddings of images: as many as
    images; where the options allow no images, vLLM does not count them."""
    processor = core.renderer.mm_processor
    limits = {} if processor is None else processor.info.allowed_mm_limits
    # Some models have one kind for images and videos alike.
    unified = getattr(core.model_config.hf_config, "use_unified_vision_chunk", False)
    seen: dict[MediaKind, str] = {"image": "vision_chunk" if unified else "image", "audio": "audio", "video": "video"}
    found: dict[MediaKind, int] = {kind: int(limits.get(name, 0)) for kind, name in seen.items()}
    embeds = "image" in limits and core.model_config.multimodal_config.enable_mm_embeds
    found["image_embeds"] = (found["image"] or MANY) if embeds else 0
    return found


def transcribes(model_config: Any) -> bool:
    """Whether the model writes down what is said, by its class."""
    return bool(model_config._model_info.supports_transcription)


def video_processor(core: Any) -> str | None:
    """The class of the model's video processor, by which vLLM chooses how frames are picked."""
    name = part("vllm.transformers_utils.processor:get_video_processor_cls_name")(core.model_config)
    # Of models whose files do not say it, newer versions of transformers have no name at that place (vLLM 0.26).
    return name if isinstance(name, str) else None


def read_images_by(renderer: Any, cache: Any) -> None:
    """Has a renderer ask `cache` for images that it renders with `skip_mm_cache`, instead of one that keeps tensors."""
    if hasattr(renderer, "_mm_processor_only_cache"):
        renderer._mm_processor_only_cache = cache
    else:
        # Before 0.32 a processor has its cache.
        renderer._readonly_mm_processor.cache = cache


def rejected_transfer(name: str, transfer: Mapping[str, Any]) -> Any:
    """What tells the connector of a request that is refused, so that what is kept for it elsewhere is let go.

    A request that ends before it begins, as vLLM's server makes it (AsyncLLM.notify_kv_transfer_request_rejected).
    """
    from vllm import SamplingParams

    return part("vllm.v1.engine:EngineCoreRequest")(
        request_id=name, prompt_token_ids=[0], mm_features=None,
        sampling_params=SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": dict(transfer)}),
        pooling_params=None, arrival_time=time.time(), lora_request=None, cache_salt=None, data_parallel_rank=None,
        abort_immediately=True,
    )  # fmt: skip
