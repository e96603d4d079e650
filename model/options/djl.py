"""The rows of DJL Serving's own options, which it reads and passes on (model/options/table.py)."""

from __future__ import annotations

from .row import Option

__all__ = ["HOST_OPTIONS"]


def _host(name: str, help: str, *aliases: str) -> Option:
    return Option(name, "str", help, aliases=aliases, reader="host")


# fmt: off
HOST_OPTIONS: tuple[Option, ...] = (
    # DJL Serving's own: the init call carries them, those that are written without `option.` too.
    _host("engine", "DJL's engine: Python."),
    _host("entryPoint", "Module or file of the handler: lmi.handler."),
    _host("handler", "Function of the entry point: handle."),
    _host("minWorkers", "The fewest workers.", "gpu.minWorkers", "cpu.minWorkers", "nc.minWorkers"),
    _host("maxWorkers", "The most workers.", "gpu.maxWorkers", "cpu.maxWorkers", "nc.maxWorkers"),
    _host("job_queue_size", "How many requests may wait in the host."),
    _host("batch_size", "Size of dynamic batches.", "max_dynamic_batch_size"),
    _host("batchifier", "How Java joins a batch; it writes `stack` where batch_size is above 1."),
    _host("max_batch_delay", "Milliseconds that a dynamic batch waits."),
    _host("max_idle_time", "Seconds after which an idle worker ends."),
    _host("predict_timeout", "Seconds that one call of the handler may take."),
    _host("model_loading_timeout", "Seconds that start-up may take."),
    _host("load_on_devices", "Devices that get a worker."),
    _host("pythonExecutable", "The interpreter."),
    _host("env", "Environment of the worker."),
    _host("enable_venv", "A virtual environment for this model."),
    _host("parallel_loading", "Start workers at the same time."),
    _host("retry_threshold", "How many failed starts make a failed model."),
    _host("required_memory_mb", "Memory that the model needs.", "gpu.required_memory_mb"),
    _host("reserved_memory_mb", "Memory that stays free.", "gpu.reserved_memory_mb"),
    _host("log_request_metric", "Log measurements.", "metrics_aggregation", "metric_dimension"),
    _host("max_output_size", "Largest answer, in bytes."),
    _host("use_passive_workers", "For MPI mode."),
    _host("modelName", "Prefix of the model's file names.", "modeName"),
    _host("translatorFactory", "For other engines.", "application", "optimization", "default_accept"),
    _host("mapLocation", "For other engines.", "extraFiles"),
    _host("model_dir", "", "device_id", "cluster_size", "is_peft_model", "failed"),
)
# fmt: on
