"""vLLM by itself, as the bench's floor: `python -m tests.bench.vllm_floor FD`, a job a line on standard input.

    {"prompts": [...], "connections": 64, "tokens": 100, "stream": true, "logprobs": true, "chat": false}
      -->  {"seconds": ..., "times": [[when each output of a request came, ...], ...], "texts": [its text, ...]}

The first line of input is the Settings, as msgpack in base64; an empty object comes once the engine is up. AsyncLLM has
its engine core in a process of its own, as in vLLM's own server; answers that are streamed come as deltas, others at
once when they are complete. With `chat` a prompt is a user's message, for which the model's template makes the prompt.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from typing import Any

import msgspec

from lmi.model.options import Settings

__all__ = ["Floor", "main"]


class Floor:
    """An AsyncLLM with the engine arguments that the handler would use."""

    def __init__(self, settings: Settings) -> None:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from lmi.model.vllm.options import engine_arguments

        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**engine_arguments(settings)))
        self._tokenizer: Any = self._llm.get_tokenizer()

    async def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Generates for every prompt, so many at once; each next one when one has ended."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=job["tokens"],
            ignore_eos=True,
            logprobs=0 if job["logprobs"] else None,
            output_kind=RequestOutputKind.DELTA if job["stream"] else RequestOutputKind.FINAL_ONLY,
        )
        waiting = enumerate(job["prompts"])
        times: list[list[float]] = [[] for _ in job["prompts"]]
        pieces: list[list[str]] = [[] for _ in job["prompts"]]
        start = time.perf_counter()

        async def connection() -> None:
            for number, prompt in waiting:
                await self._answer((number, prompt, job["chat"]), params, times[number], pieces[number])

        await asyncio.gather(*(connection() for _ in range(job["connections"])))
        return {"seconds": time.perf_counter() - start, "times": times, "texts": ["".join(made) for made in pieces]}

    def _rendered(self, text: str) -> Any:
        """The prompt that a chat with one message becomes; the message itself where the model has no template."""
        if not getattr(self._tokenizer, "chat_template", None):
            return text
        messages = [{"role": "user", "content": text}]
        rendered = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return {"prompt_token_ids": self._tokenizer.encode(rendered, add_special_tokens=False)}

    async def _answer(self, asked: tuple[int, str, bool], params: Any, came: list[float], made: list[str]) -> None:
        """Notes when the request's outputs came, in seconds from its start, and their texts."""
        start = time.perf_counter()
        number, text, chat = asked
        prompt = self._rendered(text) if chat else text
        count = 0
        async for output in self._llm.generate(prompt, params, f"{number}-{start}"):
            came.append(time.perf_counter() - start)
            (sequence,) = output.outputs
            count += len(sequence.token_ids)
            made.append(sequence.text)
        if count != params.max_tokens:
            raise RuntimeError(f"the engine alone gave {count} tokens of {params.max_tokens}")

    def close(self) -> None:
        """Ends the engine."""
        self._llm.shutdown()


def main() -> None:
    """Serves jobs until standard input ends. Results go to the file descriptor FD: vLLM's log has standard output."""
    os.set_inheritable(int(sys.argv[1]), False)
    results = os.fdopen(int(sys.argv[1]), "w")
    settings = msgspec.msgpack.decode(base64.b64decode(sys.stdin.readline()), type=Settings)

    async def serve() -> None:
        floor = Floor(settings)
        try:
            print("{}", file=results, flush=True)
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                print(json.dumps(await floor.run(json.loads(line))), file=results, flush=True)
        finally:
            floor.close()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
