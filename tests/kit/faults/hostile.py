"""Requests that try to end or stall the engine: those that must be refused, and those that must do no harm."""

from __future__ import annotations

import json
from typing import Any

ASK = [{"role": "user", "content": "Hello"}]
Case = tuple[str, dict[str, Any]]


def chat(**fields: Any) -> Case:
    return "/v1/chat/completions", {"messages": ASK, "max_tokens": 20, **fields}


def text(**fields: Any) -> Case:
    return "/v1/completions", {"prompt": "Hello", "max_tokens": 20, **fields}


def lmi(**parameters: Any) -> Case:
    return "/invocations", {"inputs": "Hello", "parameters": {"details": True, **parameters}}


def tool(parameters: Any, name: str = "a") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def schema(given: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": given}}}


def forced(parameters: Any) -> Case:
    return chat(tools=[tool({"type": "object"}), tool(parameters, "b")], tool_choice="required")


def kwargs(**arguments: Any) -> Case:
    return chat(chat_template_kwargs=arguments)


LARGEST = 2**31 - 1


def nested(depth: int) -> Any:
    """A schema of objects in objects, each of which is two levels of JSON."""
    made: Any = {"type": "integer"}
    for _ in range(depth):
        made = {"type": "object", "properties": {"a": made}}
    return made


def deep_tag(depth: int) -> Any:
    """A structural tag of formats in formats."""
    made: Any = {"type": "const_string", "value": "a"}
    for _ in range(depth):
        made = {"type": "sequence", "elements": [made]}
    return made


LOOP = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}

INTERSECTED = json.dumps(
    {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{count}}}"} for count in range(10, 40)]}
)

REFUSED: dict[str, tuple[Case, str]] = {
    # vLLM notes, Safety: one such request could end the engine of 0.23.
    "empty json": (text(structured_outputs={"json": ""}), "structured_outputs.json"),
    "empty guided json": (text(guided_json=""), "guided_json"),
    "blank json": (text(guided_json=" \n"), "guided_json"),
    "no schema": (chat(**schema({})), "response_format.json_schema.schema"),
    "json_object false": (text(structured_outputs={"json_object": False}), "structured_outputs.json_object"),
    "broken grammar": (text(guided_grammar="root ::= ("), "guided_grammar"),
    "broken lark": (text(guided_grammar='start: "a'), "guided_grammar"),
    "empty grammar": (text(structured_outputs={"grammar": ""}), "structured_outputs.grammar"),
    "no root": (text(guided_grammar='a ::= "b"'), "guided_grammar"),
    "broken regex": (text(guided_regex="["), "guided_regex"),
    "empty regex": (text(guided_regex=""), "guided_regex"),
    "empty choice": (text(guided_choice=[]), "guided_choice"),
    "empty choices": (text(guided_choice=[""]), "guided_choice[0]"),
    "wrong type": (chat(**schema({"type": 5})), "response_format.json_schema.schema"),
    "no reference": (chat(**schema({"$ref": "#/nothing"})), "response_format.json_schema.schema"),
    "structural tag": (chat(response_format={"type": "structural_tag", "format": {}}), "response_format"),
    "tag of nothing": (text(structured_outputs={"structural_tag": {"format": {"type": "nothing"}}}),
                       "structured_outputs.structural_tag"),
    "counts in a tag": (text(structured_outputs={"structural_tag": {"format": {
        "type": "tag", "begin": "", "end": "", "content": {"type": "regex", "pattern": "((a{99}){99}){99}"}}}}),
        "structured_outputs.structural_tag"),
    "repeated repetitions in a tag": (text(structured_outputs={"structural_tag": {"format": {
        "type": "star", "content": {"type": "regex", "pattern": "(a*)*"}}}}), "structured_outputs.structural_tag"),
    "deep tag": (text(structured_outputs={"structural_tag": {"format": deep_tag(40)}}),
                 "structured_outputs.structural_tag"),
    "tool's schema": (forced({"type": "nonsense"}), "tools[1].function.parameters"),
    # What would never end, or take all the memory or the stack.
    "many items in a grammar": (text(guided_grammar='start: %json {"type": "array", "maxItems": 1000000000}'),
                                "guided_grammar"),
    "intersected patterns": (text(guided_grammar=f"start: %json {INTERSECTED}"), "guided_grammar"),
    "parentheses": (text(guided_regex="(" * 100_000 + "a" + ")" * 100_000), "guided_regex"),
    "parentheses in a grammar": (text(guided_grammar="root ::= " + "(" * 9_000 + '"a"' + ")" * 9_000),
                                 "guided_grammar"),
    "parentheses in a schema": (text(guided_json={"type": "string", "pattern": "(" * 30_000 + "a" + ")" * 30_000}),
                                "guided_json"),
    "counts in a tool": (forced({"properties": {"a": {"pattern": "((a{99}){99}){99}"}}}),
                         "tools[1].function.parameters"),
    "many properties": (text(guided_json={"properties": {f"p{number}": {} for number in range(5_000)}}), "guided_json"),
    "many values": (text(guided_json={"enum": [*range(20_000)]}), "guided_json"),
    "deep schema": (text(guided_json=nested(60)), "guided_json"),
    "huge number": (text(guided_json={"maximum": 2**70}), "guided_json"),
    # What can be compiled and allows no text.
    "left recursion": (text(guided_grammar='root ::= root "a"'), "guided_grammar"),
    "itself": (text(guided_grammar="root ::= root"), "guided_grammar"),
    "references in a loop": (text(guided_json=LOOP), "guided_json"),
    "impossible range": (text(guided_json={"type": "integer", "minimum": 5, "maximum": 1}), "guided_json"),
    "an argument of the engine's": (text(vllm_xargs={"kv_cache_report_mode": 5}), "vllm_xargs.kv_cache_report_mode"),
    # Token ids.
    "stop id": (text(min_tokens=5, stop_token_ids=[LARGEST]), "stop_token_ids"),
    "stop id of the vocabulary's size": (text(min_tokens=5, stop_token_ids=[640]), "stop_token_ids"),
    # Beyond what vLLM's model runners have room for (model/vllm/request/bounds.py).
    "stop ids": (text(min_tokens=5, stop_token_ids=[*range(129)]), "stop_token_ids"),
    "long bad words": (text(bad_words=["\x00", "a " * 1500]), "bad_words"),
    "blank bad word": (text(bad_words=[" "]), "bad_words"),
    "negative stop id": (text(stop_token_ids=[-1]), "stop_token_ids[0]"),
    "prompt id": (text(prompt=[LARGEST]), "prompt"),
    "negative prompt id": (text(prompt=[1, -5]), "prompt[1]"),
    "bias": (text(logit_bias={str(LARGEST): 5}), "logit_bias"),
    "negative bias": (text(logit_bias={"-1": 5}), "logit_bias.-1"),
    "allowed ids": (text(allowed_token_ids=[LARGEST]), "allowed_token_ids"),
    "allowed id of the vocabulary's size": (text(allowed_token_ids=[640]), "allowed_token_ids"),
    "many allowed ids": (text(allowed_token_ids=[5] * 1025), "allowed_token_ids"),
    "allowed ids that may not come": (text(allowed_token_ids=[5], stop_token_ids=[5], min_tokens=3),
                                      "allowed_token_ids"),
    "logprob ids": (text(logprob_token_ids=[LARGEST]), "logprob_token_ids"),
    # Sizes.
    "n": (text(n=10**9), "n"),
    "best_of": (text(best_of=10**9), "best_of"),
    "logprobs": (text(logprobs=10**9), "logprobs"),
    "max_tokens": (chat(max_tokens=2**63 - 1), "max_tokens"),
    "stop strings": (text(stop=["a"] * 100_000), "stop"),
    "long stop string": (text(stop=["a" * 100_000]), "stop"),
    "prompt": (text(prompt="a " * 50_000), "prompt"),
    # What is the engine's own, another tenant's, or the owner's.
    "connector's arguments": (text(vllm_xargs={"kv_transfer_params": "a"}), "vllm_xargs.kv_transfer_params"),
    "processor's argument": (text(vllm_xargs={"lmi_typical_p": "a"}), "vllm_xargs.lmi_typical_p"),
    "long arguments": (text(vllm_xargs={"a": ["b"] * 100_000}), "vllm_xargs"),
    "budget": (text(thinking_token_budget=2**40), "thinking_token_budget"),
    "long salt": (text(cache_salt="a" * 100_000), "cache_salt"),
    "logits processors": (text(logits_processors=["os.system"]), "logits_processors"),
    "embedded prompt": (text(prompt_embeds="AAAA"), "prompt_embeds"),
    "embedded image": (chat(messages=[{"role": "user", "content": [
        {"type": "image_embeds", "image_embeds": "AAAA"}]}]), "messages[0].content[0].type"),
    "processor of media": (chat(mm_processor_kwargs={"max_pixels": 10**12}), "mm_processor_kwargs"),
    "reader of media": (chat(media_io_kwargs={"video": {"num_frames": -1}}), "media_io_kwargs"),
    "adapter": (text(adapters="../../etc"), "adapters"),
    "template": (chat(chat_template="{% for i in range(10**9) %}{% endfor %}"), "chat_template"),
    "template in kwargs": (kwargs(chat_template="{{ 1 }}"), "chat_template_kwargs.chat_template"),
    # 10**9 tokens of padding are more memory than there is.
    "padding": (kwargs(padding="max_length", max_length=10**9), "chat_template_kwargs.padding"),
    "conversation": (kwargs(conversation=[]), "chat_template_kwargs.conversation"),
    "tokenizer": (kwargs(tokenizer=1), "chat_template_kwargs.tokenizer"),
    "image's file": (chat(messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]), "messages[0].content[0].type"),
}  # fmt: skip
"""What the answer must name."""

HARMLESS: dict[str, Case] = {
    "counts": text(guided_regex="((a{1,100}){1,100}){1,100}", max_tokens=200),
    "repeated nothing": text(guided_regex="(a*){1,100}", max_tokens=200),
    "counts of rules": text(guided_grammar='root ::= x{1,99}\nx ::= y{1,99}\ny ::= "a"{1,99}', max_tokens=200),
    "counts in a schema": chat(**schema({"items": {"pattern": "((a{99}){99}){99}"}})),
    "many items": text(guided_json={"type": "array", "maxItems": 10**9, "items": {"multipleOf": 3}}),
    "recursion": text(guided_grammar='root ::= "a" root | "b"'),
    "ambiguous": text(guided_grammar='root ::= root root | "a"', max_tokens=200),
    "large count": text(guided_regex="a{1,1000000}"),
    "large size": text(guided_json={"type": "string", "maxLength": 10**9}),
    "repeated repetitions": text(guided_regex="(a*)*b", max_tokens=200),
    "states": text(guided_regex="(a|b)*a(a|b){20}"),
    "deep": text(guided_json=nested(30)),
    "recursive schema": text(
        guided_json={"$defs": {"n": {"properties": {"l": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
    ),
    "name of a tool": chat(tools=[tool({"type": "object"}, 'a"\n{}[]|*\\')], tool_choice="required"),
    "bad words": text(bad_words=["\x00", "😀" * 20, "a " * 200]),
    # Sequence i has seed + i.
    "far seed": text(seed=2**63 - 1, n=128, max_tokens=2, temperature=1),
    "farthest seed below": text(seed=1 - 2**63, n=2, max_tokens=2, temperature=1),
    "far seed of lmi's": lmi(seed=2**63 - 1, n=2, max_new_tokens=2, do_sample=True),
    "smallest numbers": text(top_p=5e-324, temperature=5e-324),
    "penalties": text(repetition_penalty=0.01, frequency_penalty=-2, temperature=2),
    "special tokens": text(prompt="<|im_end|></s>\x00" * 5),
    "odd template variables": kwargs(bos_token=5, raise_exception=1, strftime_now=2, tools_in_user_message=[]),
    "kv transfer": text(kv_transfer_params={"do_remote_prefill": True, "remote_host": "169.254.169.254"}),
    "private fields": text(
        temperature=0, extra_args={"a": 1}, _all_stop_token_ids=[LARGEST], output_kind=0, detokenize=True
    ),
    "priority": text(priority=-(2**31)),
    "salt": text(cache_salt="a\x00é"),
    "arguments": text(vllm_xargs={"a": [1, "b", 0.5], "ngram_size": "x"}),
    "one allowed id": text(allowed_token_ids=[5] * 1024, logprobs=3),
    "allowed and biased": text(allowed_token_ids=[5], logit_bias={"5": -100}, temperature=2),
    "allowed and barred": text(allowed_token_ids=[64], bad_words=["a"], temperature=1),
    "tag": text(
        structured_outputs={
            "structural_tag": {
                "format": {
                    "type": "triggered_tags",
                    "triggers": ["<"],
                    "tags": [{"begin": "<a>", "content": {"type": "regex", "pattern": "a*"}, "end": "</a>"}],
                }
            }
        }
    ),
    "path as the model": text(model="../../../etc/passwd"),
}
