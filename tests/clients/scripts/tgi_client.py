"""Tries TGI's old Python client (`text-generation`) against a local server: python tgi_client.py URL

It needs an interpreter of its own: that client asks for huggingface_hub below 1.0. The demo model must be served.
Prints what it did as JSON, and ends with an error where something is not as that client's own tests have it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from typing import Any

# The client says of itself that it is deprecated, as a warning at import.
warnings.simplefilter("ignore")

from text_generation import AsyncClient, Client  # noqa: E402 - after the filter
from text_generation.errors import ValidationError  # noqa: E402
from text_generation.types import FinishReason  # noqa: E402

PROMPT = "What is Deep Learning?"
ANSWER = "Deep Learning is machine learning with neural networks of many layers."


def generate(client: Client) -> dict[str, Any]:
    """A whole answer to its end, with the prompt's tokens and the likeliest ones."""
    made = client.generate(PROMPT, max_new_tokens=200, decoder_input_details=True, top_n_tokens=2)
    details = made.details
    assert made.generated_text == ANSWER
    assert details.finish_reason == FinishReason.EndOfSequenceToken
    assert details.generated_tokens == len(details.tokens)
    assert details.seed is None
    assert details.prefill[0].logprob is None
    assert all(token.logprob is not None for token in details.prefill[1:])
    assert "".join(token.text for token in details.tokens if not token.special) == ANSWER
    assert details.tokens[-1].special
    assert details.top_tokens is not None
    assert all(len(top) == 2 for top in details.top_tokens)
    return {"tokens": details.generated_tokens, "prefill": len(details.prefill)}


def sampled(client: Client) -> dict[str, Any]:
    """A seed is told, and gives the same answer again, though the client says do_sample false then."""
    first = client.generate("Tell me", temperature=1.5, max_new_tokens=20, do_sample=True)
    seed = first.details.seed
    assert seed is not None
    again = client.generate("Tell me", temperature=1.5, max_new_tokens=20, seed=seed)
    assert (again.generated_text, again.details.seed) == (first.generated_text, seed)
    return {"seed": seed}


def generate_stream(client: Client) -> dict[str, Any]:
    """A streamed answer."""
    made = list(client.generate_stream(PROMPT, max_new_tokens=200, top_n_tokens=1))
    assert "".join(one.token.text for one in made if not one.token.special) == ANSWER
    last = made[-1]
    assert last.generated_text == ANSWER
    assert last.details is not None
    assert last.details.finish_reason == FinishReason.EndOfSequenceToken
    assert last.details.generated_tokens == len(made)
    assert all(one.generated_text is None and one.details is None for one in made[:-1])
    return {"lines": len(made)}


def errors(client: Client) -> dict[str, Any]:
    """Each error is raised as the client's own class, from streams too."""

    def message(**parameters: Any) -> str:
        try:
            client.generate("test", **parameters)
        except ValidationError as error:
            return str(error)
        raise AssertionError("nothing was raised")

    def streamed(**parameters: Any) -> str:
        try:
            list(client.generate_stream("test", **parameters))
        except ValidationError as error:
            return str(error)
        raise AssertionError("nothing was raised")

    whole = message(max_new_tokens=10_000)
    assert whole == streamed(max_new_tokens=10_000)
    assert whole.startswith("Input validation error: parameters.max_new_tokens: ")
    return {"message": whole}


async def asynchronous(url: str) -> dict[str, Any]:
    """The same client on asyncio."""
    client = AsyncClient(url, timeout=60)
    made = await client.generate(PROMPT, max_new_tokens=200)
    assert made.generated_text == ANSWER
    streamed = [one async for one in client.generate_stream(PROMPT, max_new_tokens=200)]
    assert streamed[-1].generated_text == ANSWER
    try:
        await client.generate("test", max_new_tokens=10_000)
    except ValidationError:
        return {"lines": len(streamed)}
    raise AssertionError("nothing was raised")


def main(url: str) -> None:
    """Runs everything against the server at `url`."""
    client = Client(url, timeout=60)
    tried = (generate, sampled, generate_stream, errors)
    summary: dict[str, Any] = {one.__name__: one(client) for one in tried}
    summary["asynchronous"] = asyncio.run(asynchronous(url))
    print(json.dumps(summary))


if __name__ == "__main__":
    main(sys.argv[1])
