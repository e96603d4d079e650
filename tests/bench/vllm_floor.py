"""vLLM by itself, as the bench's floor: `python -m tests.bench.vllm_floor FD`, a job a line on standard input.

    {"prompts": [...], "connections": 64, "tokens": 100, "stream": true, "logprobs": true, "chat": false,
     "adapters": [names, in turn]}
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
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import msgspec

from lmi.model.options import Settings

__all__ = ["Floor", "main"]


class Floor:
    """An AsyncLLM with the engine arguments that the handler would use."""

    def __init__(self, settings: Settings) -> None:
        from vllm import AsyncEngineArgs
        from vllm.lora.request import LoRARequest
        from vllm.v1.engine.async_llm import AsyncLLM

        from lmi.model.adapters.folder import found
        from lmi.model.vllm.options import engine_arguments

        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**engine_arguments(settings)))
        self._tokenizer: Any = self._llm.get_tokenizer()
        self._numbers = count()
        self._adapters = {
            name: LoRARequest(name, number, str(path)) for number, (name, path) in enumerate(found(settings).items(), 1)
        }

    async def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Generates for every prompt, so many at once; each next one when one has ended."""
        waiting = enumerate(job["prompts"])
        times: list[list[float]] = [[] for _ in job["prompts"]]
        pieces: list[list[str]] = [[] for _ in job["prompts"]]
        asked = {name: job[name] for name in ("tokens", "stream", "logprobs", "chat")}
        adapters = [self._adapters[name] for name in job["adapters"]] or [None]
        start = time.perf_counter()

        async def connection() -> None:
            for number, text in waiting:
                begun, came = time.perf_counter(), 0
                adapter = adapters[number % len(adapters)]
                async for result in self.results(text, adapter, **asked):
                    times[number].append(time.perf_counter() - begun)
                    (sequence,) = result.outputs
                    came += len(sequence.token_ids)
                    pieces[number].append(sequence.text)
                if came != job["tokens"]:
                    raise RuntimeError(f"the engine alone gave {came} tokens of {job['tokens']}")

        await asyncio.gather(*(connection() for _ in range(job["connections"])))
        return {"seconds": time.perf_counter() - start, "times": times, "texts": ["".join(made) for made in pieces]}

    def results(
        self, text: str, adapter: Any, tokens: int, *, stream: bool, logprobs: bool, chat: bool
    ) -> AsyncIterator[Any]:
        """vLLM's RequestOutputs of one prompt: streamed as deltas, else one."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=tokens,
            ignore_eos=True,
            logprobs=0 if logprobs else None,
            output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
        )
        results: AsyncIterator[Any] = self._llm.generate(
            self._rendered(text) if chat else text, params, str(next(self._numbers)), lora_request=adapter
        )
        return results

    def _rendered(self, text: str) -> Any:
        """The prompt that a chat with one message becomes; the message itself where the model has no template."""
        if not getattr(self._tokenizer, "chat_template", None):
            return text
        messages = [{"role": "user", "content": text}]
        rendered = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return {"prompt_token_ids": self._tokenizer.encode(rendered, add_special_tokens=False)}

    def close(self) -> None:
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
