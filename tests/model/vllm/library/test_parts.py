"""What is used of vLLM is documented, or in a table of what is private, so that its absence is noticed at the start.

Types do not tell, as vLLM's objects are Any here. So all names are taken: of each attribute, keyword and text that
`getattr` gets in the sources that meet vLLM. What this project, Python, another library or vLLM's documented classes
define is known; the rest is vLLM's, and must be in PARTS or ATTRIBUTES, or below with what happens without.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.library.parts import ATTRIBUTES, PARTS, check_attributes, check_library, check_second_texts

from ....kit.api.errors import StartError
from ....kit.faults.vllm_parts import library
from ....kit.paths import ROOT

MODEL = ROOT / "model"
MEETING = [*(MODEL / "vllm").rglob("*.py"), MODEL / "text" / "tokenizer.py"]
"""The sources that hold objects of vLLM's."""

WITHOUT = {
    # Looked for with getattr or hasattr, and another way is taken where there is none.
    "VLLMClientError": "in 0.26 such an error is a ValueError",
    "VLLM_USE_V2_MODEL_RUNNER": "nobody insists on a model runner",
    "get_rank_and_scaling": "adapters scale all modules alike",
    "kv_cache_size_tokens": "there is no line on the cache's size",
    "max_token_id": "the tokenizer knows no more tokens than its model",
    "parameter": "the error names no parameter",
    "strict": "a tool is strict",
    "defer_loading": "a tool that the conversation describes is listed in front, too",
    "use_unified_vision_chunk": "images have a kind of their own",
    "chat_template": "the tokenizer has no template",
    "BEGIN_THINK": "the tokenizer has no tokens around reasoning",
    "grammar_factory": "the start ends (model/vllm/mistral/grammars.py), as with mistral-common's methods",
    "model_settings_builder": "the model has no settings",
    "melody_streaming": "vLLM's own parser of Cohere's answers reads all of them, as from 0.32 on",
    **dict.fromkeys(("start_token_id", "end_token_id"), "of Cohere's parsers where vLLM has no such parser"),
    "engine_based_streaming": "whole answers are parsed by the parser of whole answers",
    "set_prompt_token_ids": "before 0.32 parsers are not told of the prompt",
    "model_can_reason": "from 0.28 on the tokenizer says so",
    "_mm_processor_only_cache": "before 0.32 a processor of images has the cache",
    "warmup": "the first request with an image waits for imports and compilation",
    "_readonly_mm_processor": "the start ends where the model takes images",
    # Of the core's process, where it guides requests: the trial of the start runs one.
    "structured_output_request": "the trial fails",
    "is_tekken": "the start ends where the model has Mistral's tokenizer",
    # Tried at the start, and vLLM's own slower way is taken where that fails.
    **dict.fromkeys(("_build_drop_info", "_stream_state"), "parsers take longer"),
    **dict.fromkeys(("aux_buffers", "dec_hook", "ext_hook"), "vLLM's own decoder reads the core's outputs"),
    **dict.fromkeys(
        (
            "output_queue_task", "output_socket", "resources", "underlying", "utility_output", "utility_results",
            "validate_alive",
        ),
        "vLLM's client reads the core's outputs",
    ),
    **dict.fromkeys(("given_format", "raise_on_unexpected"), "vLLM's renderer makes all prompts"),
    # Statistics: where they cannot be kept, one line says so.
    "num_generation_tokens": "no metrics",
    "num_preempted_reqs": "no metrics",
    "prompt_token_stats": "no metrics",
    **dict.fromkeys(
        ("max_num_generation_tokens_iter", "max_tokens_param", "n_params_iter", "num_prompt_tokens", "req_stats"),
        "no metrics",
    ),
    "update_from_output": "no metrics",
    "engine_idx": "no metrics",
    # Of the check of a configuration before it is served.
    "is_unspecified": "lmi check ends in an error",
    # Of spans, which are asked for by an option.
    **dict.fromkeys(
        (
            "GEN_AI_LATENCY_E2E", "GEN_AI_REQUEST_ID", "GEN_AI_REQUEST_N", "GEN_AI_USAGE_COMPLETION_TOKENS",
            "GEN_AI_USAGE_PROMPT_TOKENS", "SERVER", "span_name", "start_time",
        ),
        "no spans",
    ),
    # Of the processes that run the model on a CPU with adapters: looked for there, before the first request.
    "_get_prompt_logprobs_dict": "the start ends (model/vllm/lora_patches.py)",
    "token_lora_indices": "the start ends (model/vllm/lora_patches.py)",
    # Of the workers of vLLM up to 0.31, whose names are fixed.
    **dict.fromkeys(
        ("allowed_token_ids_mask_cpu_tensor", "collective_rpc", "has_allowed_token_ids", "req_id", "uses_ray"),
        "the start ends",
    ),
    # Each class of models that hear has its own: the trial of the start asks for one.
    "supported_languages": "the start ends",
    # Of model runner V2's processors, which the trial of the start runs.
    "max_num_reqs": "the start ends",
    "idx_mapping_np": "the trial fails",
    "expanded_idx_mapping": "the trial fails",
}  # fmt: skip
"""Private names that are in no table, each with what happens in a vLLM that does not have it."""

LIBRARIES = (
    "argparse", "ast", "asyncio", "base64", "codecs", "contextlib", "copy", "copyreg", "dataclasses", "functools",
    "hashlib", "huggingface_hub", "importlib", "importlib.machinery", "importlib.util", "inspect", "io", "itertools",
    "json", "llguidance", "logging", "msgspec", "msgspec.json", "msgspec.msgpack", "msgspec.structs",
    "multiprocessing", "numpy", "openai_harmony", "os", "pathlib", "prometheus_client",
    "prometheus_client.openmetrics.exposition", "psutil", "pydantic", "re", "resource", "secrets", "signal", "struct",
    "sys", "tempfile", "threading", "time", "tokenizers", "tokenizers.decoders", "torch", "torch.cuda", "traceback",
    "transformers", "types", "typing", "uuid", "warnings", "xgrammar", "zmq",
)  # fmt: skip
CLASSES = (
    "argparse:Action", "argparse:ArgumentParser", "asyncio:AbstractEventLoop", "asyncio:Queue", "asyncio:Task",
    "builtins:BaseException", "builtins:OSError", "builtins:SyntaxError", "builtins:UnicodeError", "builtins:bytes",
    "builtins:dict", "builtins:frozenset", "builtins:function", "builtins:int", "builtins:list", "builtins:property",
    "builtins:set", "builtins:str", "builtins:tuple", "builtins:type", "codecs:IncrementalDecoder", "collections:deque",
    "cohere_melody:FilterAggregatedResult", "cohere_melody:PyFilter", "importlib.machinery:ModuleSpec",
    "importlib.machinery:SourceFileLoader", "inspect:Parameter", "inspect:Signature", "itertools:chain",
    "llguidance:LLMatcher", "logging:LogRecord", "logging:Logger", "multiprocessing:Process", "numpy:ndarray",
    "openai_harmony:HarmonyEncoding", "openai_harmony:StreamableParser",
    "opentelemetry.sdk.trace:TracerProvider", "pathlib:Path", "prometheus_client:CollectorRegistry",
    "pydantic:BaseModel", "pydantic:ValidationError", "re:Match", "re:Pattern", "struct:Struct", "threading:Event",
    "threading:Lock", "threading:Thread", "tokenizers:Encoding", "tokenizers:Tokenizer", "torch:Tensor",
    "transformers:PreTrainedTokenizerFast", "transformers:PretrainedConfig", "types:FrameType", "types:TracebackType",
    "xgrammar:GrammarMatcher", "xgrammar:VocabType", "zmq:Socket",
)  # fmt: skip
"""What objects of other libraries are, where names of theirs are used."""

DOCUMENTED = (
    "vllm:EngineArgs", "vllm:PoolingParams", "vllm:SamplingParams", "vllm.sampling_params:StructuredOutputsParams",
)  # fmt: skip
"""Classes of vLLM's that its documentation describes, beside all of vllm.config."""

OTHERS = {
    "argparse": ("_actions", "const", "dest", "nargs"),
    "ast": ("lineno",),
    "io": ("getvalue",),
    "itertools": ("initial",),
    "concurrent.futures": ("cancel_futures",),
    "dataclasses": ("frozen",),
    "hashlib": ("digest", "hexdigest"),
    "huggingface_hub": ("files_metadata", "rfilename", "siblings"),
    "llguidance": ("log_level",),
    "multiprocessing": ("duplex",),
    "warnings": ("category",),
    "mistral_common": (
        "audio_config",
        "audio_encoder",
        "get_lark_for_json_schema",
        "id_to_byte_piece",
        "id_to_piece",
        "image_config",
        "image_encoder",
        "max_image_size",
        "sampling_rate",
        "values",
    ),
    "msgspec": ("bases", "str_keys"),
    "openai_harmony": ("allowed_special",),
    "os": ("st_mtime_ns", "st_size"),
    "PIL": ("compress_level",),
    "prometheus_client": ("add_metric", "auto_describe", "escaping"),
    "psutil": ("available",),
    "tokenizers": ("direction", "normalized", "single_word"),
    "torch": ("keepdim",),
    "transformers": ("documents", "id2label", "num_labels"),
    "vLLM, documented": ("envs",),
    "xgrammar": ("cache_enabled", "from_lark", "max_threads", "vocab_type"),
}
"""Parameters of other libraries, and names of objects that have no class in the tables above."""


def used(path: Path) -> Iterator[str]:
    """The names that a source uses of objects: attributes, keywords, and what getattr and hasattr look for."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Call):
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name in {"getattr", "hasattr"} and isinstance(node.args[1], ast.Constant):
                yield str(node.args[1].value)


def ours() -> Iterator[str]:
    """What this package defines: classes, functions, their parameters, fields and attributes."""
    for path in MODEL.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name
                yield from (argument.arg for argument in (*node.args.args, *node.args.kwonlyargs))
            elif isinstance(node, ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                inner = [
                    one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name | ast.Attribute)
                ]
                yield from (one.id for one in inner if isinstance(one, ast.Name))
                yield from (one.attr for one in inner if isinstance(one, ast.Attribute) and _of_self(one))


def _of_self(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def _class(place: str) -> Any:
    module, _, name = place.partition(":")
    return type(_class) if name == "function" else getattr(importlib.import_module(module), name)


def libraries() -> set[str]:
    """The names that Python and other libraries define."""
    found = {*dir(builtins)}
    for name in LIBRARIES:
        found |= {*dir(importlib.import_module(name))}
    for place in CLASSES:
        found |= {*dir(_class(place))}
    return found


def documented() -> set[str]:
    """The names of vLLM's documented classes."""
    import vllm.config

    kinds = [kind for kind in vars(vllm.config).values() if isinstance(kind, type)]
    return {name for kind in (*kinds, *map(_class, DOCUMENTED)) for name in (*dir(kind), *_fields(kind))}


def _fields(kind: Any) -> Iterator[str]:
    if dataclasses.is_dataclass(kind):
        yield from (field.name for field in dataclasses.fields(kind))
    yield from getattr(kind, "__struct_fields__", ())


def in_tables() -> set[str]:
    """The names of PARTS and ATTRIBUTES: each of a place, and its parameter."""
    names = {name for place in PARTS for name in place.partition(":")[2].replace("(", ".").rstrip(")").split(".")}
    return names | {name for attributes in ATTRIBUTES.values() for name in attributes}


@pytest.mark.engine
def test_what_is_used_of_vllm_is_documented_or_in_a_table() -> None:
    known = {*ours(), *libraries(), *documented(), *in_tables(), *WITHOUT, *chain(*OTHERS.values())}
    unknown = {name: path.name for path in MEETING for name in used(path) if name not in known}
    assert unknown == {}


@pytest.mark.engine
def test_the_tables_have_nothing_that_is_not_used() -> None:
    names = {name for path in MEETING for name in used(path)}
    assert {*WITHOUT, *chain(*OTHERS.values())} - names == set()


@pytest.mark.engine
def test_every_attribute_is_one_that_vllms_class_sets() -> None:
    for place, names in ATTRIBUTES.items():
        kinds = [kind for kind in _class(place).__mro__ if kind.__module__.startswith("vllm.")]
        source = "".join(inspect.getsource(kind) for kind in kinds)
        assert [name for name in names if f"self.{name}" not in source] == [], place


def test_a_name_that_is_in_no_table_is_found(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("def f(core):\n    core.nowhere(new_parameter=getattr(core, 'found'))\n")
    assert {*used(source)} == {"nowhere", "new_parameter", "found"}


@pytest.mark.engine
def test_an_object_without_its_attribute_ends_the_start() -> None:
    check_attributes("vllm.config:ModelConfig", SimpleNamespace(encoder_config=None, _model_info=None))
    with pytest.raises(StartError, match=r"has no vllm\.config\.ModelConfig\.encoder_config, which the handler needs"):
        check_attributes("vllm.config:ModelConfig", SimpleNamespace())


@pytest.mark.engine
def test_a_vllm_that_reads_second_texts_by_another_name_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    check_second_texts()
    monkeypatch.setattr("lmi.model.vllm.library.parts.SECOND_TEXTS", "another_name")
    with pytest.raises(StartError, match=r"gpu_model_runner \(another_name\), which the handler needs"):
        check_second_texts()


def told(error: StartError, name: str) -> bool:
    return error.message == f"vLLM 0.28.0 has no {name}, which the handler needs: 0.26.0 to 0.32 is supported"


TOO_OLD = "vLLM {} is too old: 0.26.0 to 0.32 is supported; lmi-handler 0.2.0 is the last release for older ones"
UNTESTED = "vLLM {} was not tested: 0.26.0 to 0.32 is supported"


def test_a_vllm_that_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch)
    check_library()


# Installed, the error that ends the start, the line in the log.
INSTALLED = [
    ("0.23.0", TOO_OLD, ""),
    # As LMI's containers name theirs.
    ("0.23.1.dev4+gcd87ce883", TOO_OLD, ""),
    ("0.25.1", TOO_OLD, ""),
    ("0.26.0", "", ""),
    ("0.26.0rc2", "", ""),
    ("0.28.1.dev3+cpu", "", ""),
    ("0.32.9", "", ""),
    ("0.33.0", "", UNTESTED),
    ("1.0.0", "", UNTESTED),
    ("dev", "", UNTESTED),
]


@pytest.mark.parametrize(("version", "fault", "line"), INSTALLED)
def test_versions(
    version: str, fault: str, line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # One that is too old is told by its version, whatever else it lacks.
    library(monkeypatch, () if fault else PARTS)
    monkeypatch.setattr(sys.modules["vllm"], "__version__", version)
    with pytest.raises(StartError) if fault else nullcontext() as caught:
        check_library()
    if caught is not None:
        assert caught.value.message == fault.format(version)
    assert [record.getMessage() for record in caplog.records] == ([line.format(version)] if line else [])


MISSING = [
    # A module, a method, a parameter, and the last of the table.
    "vllm.v1.executor:Executor.get_class",
    "vllm.v1.engine.core_client:AsyncMPClient.get_output_async",
    "vllm.v1.executor.multiproc_executor:MultiprocExecutor(monitor_workers)",
    PARTS[-1],
]


@pytest.mark.parametrize("missing", MISSING)
def test_a_part_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    function, _, parameter = missing.partition("(")
    others = [place for place in PARTS if place != missing]
    assert len(others) == len(PARTS) - 1
    library(monkeypatch, [*others, function] if parameter else others)
    with pytest.raises(StartError) as caught:
        check_library()
    assert told(caught.value, missing.replace(":", "."))


@pytest.mark.engine
def test_the_installed_vllm_has_all_of_them() -> None:
    check_library()
