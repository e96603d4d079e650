"""OpenAI's client and the paths beside its own: `python tokens_client.py URL path|route '{"questions": {...}}'`.

The server has the options of CHAT (tests/kit/hosts/pool.py). `questions`: what the model is asked, by kind
(tests/demo/answers.py, Question).
"""

from __future__ import annotations

from typing import Any

import httpx
from checks import check, main
from openai import BadRequestError, NotFoundError, OpenAI

Told = dict[str, Any]


def make(url: str, http: Any) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", http_client=http, max_retries=0)


def post(client: OpenAI, path: str, **body: Any) -> Any:
    """The answer's JSON; raises what the client makes of an error."""
    url = f"{str(client.base_url).removesuffix('v1/')}{path}"
    return client.post(url, cast_to=httpx.Response, body=body).json()


def messages(told: Told, kind: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": told["questions"][kind]["prompt"]}]


@check
def the_list_of_models_says_how_long_a_prompt_may_be(client: OpenAI, told: Told) -> None:
    (model,) = client.models.list().data
    tokenized = post(client, "tokenize", prompt="a")
    assert (model.model_extra or {})["max_model_len"] == tokenized["max_model_len"] > 0


@check
def a_model_by_its_name(client: OpenAI, told: Told) -> None:
    (listed,) = client.models.list().data
    assert client.models.retrieve(listed.id) == listed


@check
def a_model_that_there_is_not(client: OpenAI, told: Told) -> None:
    raised = ""
    try:
        client.models.retrieve("owner/name")
    except NotFoundError as error:
        raised = str(error)
    assert "'owner/name'" in raised


@check
def a_text_has_the_tokens_that_a_completion_counts(client: OpenAI, told: Told) -> None:
    text = told["questions"]["unicode"]["prompt"]
    tokenized = post(client, "tokenize", prompt=text)
    assert tokenized["count"] == len(tokenized["tokens"])
    assert tokenized["token_strs"] is None
    usage = client.completions.create(model="any", prompt=text, max_tokens=1).usage
    assert usage is not None
    assert usage.prompt_tokens == tokenized["count"]


@check
def a_chat_has_the_tokens_that_it_counts(client: OpenAI, told: Told) -> None:
    asked: Any = messages(told, "plain")
    tokenized = post(client, "tokenize", messages=asked)
    usage = client.chat.completions.create(model="any", messages=asked, max_tokens=1).usage
    assert usage is not None
    assert usage.prompt_tokens == tokenized["count"] > len(told["questions"]["plain"]["prompt"].split())


@check
def a_chat_with_tools_has_the_tokens_that_it_counts(client: OpenAI, told: Told) -> None:
    asked: Any = messages(told, "tool_call")
    tools: Any = told["questions"]["tool_call"]["tools"]
    tokenized = post(client, "tokenize", model="any", messages=asked, tools=tools)
    usage = client.chat.completions.create(model="any", messages=asked, tools=tools, max_tokens=1).usage
    assert usage is not None
    assert usage.prompt_tokens == tokenized["count"] > post(client, "tokenize", messages=asked)["count"]


@check
def a_chat_goes_on_without_a_new_turn(client: OpenAI, told: Told) -> None:
    asked: Any = [*messages(told, "plain"), {"role": "assistant", "content": "A"}]
    whole = post(client, "tokenize", messages=asked, add_generation_prompt=False)["tokens"]
    goes_on = post(client, "tokenize", messages=asked, continue_final_message=True)["tokens"]
    assert goes_on == whole[: len(goes_on)]
    assert len(goes_on) < len(whole) < post(client, "tokenize", messages=asked)["count"]


@check
def tokens_become_the_text_again(client: OpenAI, told: Told) -> None:
    for kind in ("plain", "unicode"):
        text = told["questions"][kind]["answer"]
        tokens = post(client, "tokenize", prompt=text, add_special_tokens=False)["tokens"]
        assert post(client, "detokenize", tokens=tokens) == {"prompt": text}
    assert post(client, "detokenize", tokens=[]) == {"prompt": ""}


@check
def a_chats_tokens_become_what_its_template_made(client: OpenAI, told: Told) -> None:
    tokens = post(client, "tokenize", messages=messages(told, "plain"))["tokens"]
    text = post(client, "detokenize", tokens=tokens)["prompt"]
    assert told["questions"]["plain"]["prompt"] in text
    # As one text it has the same tokens.
    assert post(client, "tokenize", prompt=text, add_special_tokens=False)["tokens"] == tokens


@check
def each_token_has_its_name(client: OpenAI, told: Told) -> None:
    tokenized = post(client, "tokenize", prompt="Hello there", return_token_strs=True)
    assert len(tokenized["token_strs"]) == tokenized["count"]
    assert "Hello" in "".join(tokenized["token_strs"])


@check
def a_prompt_that_is_longer_than_the_context_is_counted(client: OpenAI, told: Told) -> None:
    longest = post(client, "tokenize", prompt="a")["max_model_len"]
    assert post(client, "tokenize", prompt="a " * longest)["count"] > longest


@check
def an_error_names_what_is_wrong(client: OpenAI, told: Told) -> None:
    raised = ""
    try:
        post(client, "detokenize", tokens=[1, -1])
    except BadRequestError as error:
        raised = str(error)
    assert "tokens[1]: " in raised


if __name__ == "__main__":
    main(make)
