"""vLLM's core, which has processes of its own, by vLLM's asynchronous client.

    threads that prepare:  prompt, SamplingParams --request--> EngineCoreRequest
    event loop:            add, abort --> the core;   the core --> receive --> [EngineCoreOutput, ...]

The client is AsyncLLM's, which spreads requests over data parallel engines too. What AsyncLLM puts around it, a queue
and a task for each request and objects for each token, is left out: outputs are read as they come (core_outputs.py).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..engine import EngineStats
from ..errors import one_line
from .core_outputs import leave_rows
from .guides.in_core import guiding
from .library.internals import failed_output, make_client, no_outputs
from .library.output_reader import OutputReader, output_reader
from .library.parts import check_attributes, part
from .lora_patches import EXTENSION, MEND
from .media.image_cache import ImageCache, image_cache
from .stats.metrics import VllmMetrics
from .stats.stats_log import StatsLog

if TYPE_CHECKING:
    from vllm import PoolingParams, SamplingParams
    from vllm.config import VllmConfig

__all__ = ["Core"]

log = logging.getLogger(__name__)

WATCH_S = 1.0
"""Seconds that the watch over the core's processes has to say how one ended."""


def no_change(executor: Any) -> Any:
    """vLLM's own executor."""
    return executor


class Core:
    """One model's."""

    def __init__(self, config: VllmConfig, *, log_stats: bool = False) -> None:
        """What needs no core; it is started by start.py. `log_stats`: vLLM's own lines are to be logged."""
        self.vllm_config = config
        self.model_config: Any = config.model_config
        self.renderer: Any = part("vllm.renderers:renderer_from_config")(config)
        self.input_processor: Any = part("vllm.v1.engine.input_processor:InputProcessor")(config, self.renderer)
        self.guides_by_request: bool = config.parallel_config.data_parallel_backend != "ray"
        """Whether its process is mended (guides/in_core.py): on other hosts it may lack this package."""
        self.images: ImageCache | None = None
        """Where the core keeps images, once it is started."""
        self.tasks: tuple[str, ...] = ()
        self._client: Any = None
        self._reader: OutputReader | None = None
        """None: vLLM's client is asked for outputs."""
        self._process = secrets.token_hex(8)
        self.ended = threading.Event()
        """Set once it is meant to have ended."""
        self.copy = 0
        """Of several copies of the model (data parallelism) the one whose outputs were received last."""
        self._sending: set[asyncio.Task[None]] = set()
        self._unsent: dict[str, str] = {}
        """Why, by the name of a request that could not be sent."""
        self._reported: dict[int, Any] = {}
        """The SchedulerStats that came last, by engine: data parallelism has several."""
        self._stats_log = StatsLog(config) if log_stats else None
        self._metrics: VllmMetrics | None = None
        """Once somebody has asked for them."""
        self._counts = True
        """Whether statistics can be kept."""

    def start(self) -> None:
        """Starts the core and waits until it is up; raises what vLLM raises."""
        self.images = image_cache(self.vllm_config, self.renderer)
        self._client = make_client(self.vllm_config, self.renderer, guiding if self.guides_by_request else no_change)
        check_attributes("vllm.v1.engine.core_client:AsyncMPClient", self._client)
        leave_rows(getattr(self._client, "decoder", None))
        self._reader = output_reader(self._client)
        if self.renderer.mm_processor is not None and hasattr(self.renderer, "warmup"):
            self._try_images()

    def _try_images(self) -> None:
        """Has vLLM's processor of images work once, as vLLM's server does: it then imports and compiles, for seconds.

        vLLM logs what fails here; a request with an image that fails for the same reason tells its client.
        """
        chat_params: Any = part("vllm.renderers:ChatParams")
        self.renderer.warmup(chat_params())

    async def begin(self) -> None:
        """What is to be asked of the core once, on the event loop; from here on its outputs are read."""
        self.tasks = tuple(await self._client.get_supported_tasks_async())
        if self.vllm_config.parallel_config.worker_extension_cls == EXTENSION:
            await self._client.collective_rpc_async(MEND)

    def get_tokenizer(self) -> Any:
        """The model's; raises ValueError where it has none."""
        return self.renderer.get_tokenizer()

    def end_ids(self) -> frozenset[int]:
        """All token ids with which the model ends by itself."""
        given = self.model_config.try_get_generation_config().get("eos_token_id")
        ids = given if isinstance(given, list) else [given]
        return frozenset(token_id for token_id in (*ids, self.get_tokenizer().eos_token_id) if token_id is not None)

    def request(
        self, prompt: Any, params: SamplingParams | PoolingParams, priority: int = 0, lora_request: Any = None
    ) -> Any:
        """vLLM's own form of a request, checked; raises what vLLM raises for what it does not take. On any thread.

        It has no name yet (`request_id`).
        """
        return self.input_processor.process_inputs(
            "", prompt, params, supported_tasks=self.tasks, priority=priority, lora_request=lora_request
        )

    def name(self, number: int, part: int | str = 0) -> str:
        """What a part of a generation is called as vLLM's request, in this process and in no other.

        Connectors of KV caches take it for a key in stores that several workers share, and that outlive one.
        """
        return f"{self._process}-{number}.{part}"

    async def add_lora(self, request: Any) -> None:
        """Loads an adapter, by vLLM's LoRARequest; raises what vLLM raises."""
        await self._client.add_lora_async(request)

    async def remove_lora(self, number: int) -> None:
        """Unloads one, by its `lora_int_id`; one that is not loaded is ignored."""
        await self._client.remove_lora_async(number)

    async def pin_lora(self, number: int) -> None:
        """Keeps one that is loaded in its slot; raises what vLLM raises."""
        await self._client.pin_lora_async(number)

    def add(self, request: Any) -> None:
        """Sends a request to the core; does not wait. One that cannot be sent comes back by `receive`, with the
        finish_reason `error`, and `failure` has the cause.
        """
        if request.mm_features and self.images is not None:
            # Here, where requests get the order in which the core has them.
            request.mm_features = self.images.send(request.mm_features)
        if self._metrics is not None:
            self._count(self._metrics.begin, request)
        self._send(self._client.add_request_async(request), request.request_id)

    def abort(self, names: Sequence[str]) -> None:
        """Ends requests, by name; nothing more comes of them but what is on its way. Does not wait."""
        if self._metrics is not None:
            self._count(self._metrics.drop, names)
        self._send(self._client.abort_requests_async(list(names)))

    def failure(self, name: str) -> str | None:
        """Why a request with the finish_reason `error` was not sent, once; None: it was, and the core gave it up."""
        return self._unsent.pop(name, None)

    def lacks_images(self, request: Any) -> bool:
        """Whether a request was made without images that the core has dropped since."""
        return bool(request.mm_features) and self.images is not None and self.images.dropped(request.mm_features)

    def distrust_images(self) -> None:
        """A request may have failed before the core had its images."""
        if self.images is not None:
            self.images.distrust()

    def wake(self) -> None:
        """Has `receive` return soon, if with nothing."""
        self._put(no_outputs())

    async def receive(self) -> Sequence[Any]:
        """The next EngineCoreOutputs' outputs; raises when the core has ended."""
        try:
            outputs = await (self._client.get_output_async() if self._reader is None else self._reader.next())
        except Exception:
            # How its process ended, the watch over it finds out (start.py), which then ends this one.
            await asyncio.sleep(WATCH_S)
            raise
        if outputs.scheduler_stats is not None:
            self._reported[outputs.engine_index] = outputs.scheduler_stats
        elif any(str(output.finish_reason) == "abort" for output in outputs.outputs):
            # No step: a core shuts down, and gives up what it computes. Why, the watch knows, as above: of several
            # copies one may have been killed, after which vLLM ends the others.
            await asyncio.sleep(WATCH_S)
        if self._stats_log is not None:
            self._count(self._stats_log.note, outputs)
        if self._metrics is not None:
            self._count(self._metrics.note, outputs)
        self.copy = outputs.engine_index
        received: Sequence[Any] = outputs.outputs
        return received

    def stats(self) -> EngineStats:
        """How busy the schedulers were when they last reported: their sums, and the mean use of their caches."""
        reported = [*self._reported.values()]
        if not reported:
            return EngineStats()
        passed_over = sum(one.num_skipped_waiting_reqs for one in reported)
        return EngineStats(
            running=sum(one.num_running_reqs for one in reported),
            waiting=sum(one.num_waiting_reqs for one in reported) + passed_over,
            passed_over=passed_over,
            cache_usage=sum(one.kv_cache_usage for one in reported) / len(reported),
        )

    def metrics(self, content_type: str) -> bytes:
        """vLLM's own metrics, counted from the first call on; nothing where they cannot be. On any thread."""
        if not self._counts:
            return b""
        if (metrics := self._metrics) is None:
            metrics = self._metrics = VllmMetrics(self.vllm_config, self.renderer, {**self._reported})
        return metrics.render(content_type)

    def close(self) -> None:
        """Ends the core's processes."""
        self.ended.set()
        if self._client is not None:
            self._client.shutdown()

    def _count(self, note: Callable[[Any], None], noted: Any) -> None:
        """Counts what came, or goes; where that fails, the engine goes on without."""
        try:
            note(noted)
        except Exception:
            log.exception("vLLM's statistics are not kept any more")
            self._counts, self._stats_log, self._metrics = False, None, None

    def _send(self, sending: Coroutine[Any, Any, None], name: str | None = None) -> None:
        # Tasks begin in the order in which they are made, and what they do first is to send.
        task = asyncio.get_running_loop().create_task(sending)
        self._sending.add(task)
        task.add_done_callback(partial(self._sent, name))

    def _sent(self, name: str | None, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("vLLM's core could not be sent a message: %s", error)
        # Where the core has ended `receive` says so, of all requests.
        self.distrust_images()
        if name is not None and not isinstance(error, part("vllm.v1.engine.exceptions:EngineDeadError")):
            self._unsent[name] = f"the request could not be sent to the engine: {one_line(str(error))}"
            # Behind what has come before: vLLM's client keeps it there until it is asked for.
            self._put(failed_output(name))

    def _put(self, outputs: Any) -> None:
        """Has `receive` return outputs, behind what has come."""
        if self._reader is not None:
            self._reader.put(outputs)
        else:
            self._client.outputs_queue.put_nowait(outputs)
