"""The variables of AWS's vLLM images: SM_VLLM_NAME is the argument --name of `vllm serve`.

    SM_VLLM_MAX_MODEL_LEN=4096 --> option.max_model_len=4096        an argument of the engine, or an option of ours
    SM_VLLM_ENFORCE_EAGER=     --> option.enforce_eager=true        a bare switch, as that image's entry script makes it
    SM_VLLM_PORT=8080          --> nothing                          the server's own: ARGUMENTS says what becomes of it

The entry script is scripts/docker/vllm/sagemaker_entrypoint.sh of aws/deep-learning-containers (vLLM's own copy:
examples/online_serving/sagemaker-entrypoint.sh); the server's arguments are vLLM 0.23's and 0.32's (FrontendArgs).
"""

from __future__ import annotations

import msgspec

from .variable import Variable, by_hand, nothing, option, refused

__all__ = ["ARGUMENTS", "LIBRARY", "PREFIX", "SERVER", "SIZES", "variable_named"]

PREFIX = "SM_VLLM_"

LIBRARY = (
    option("SAGEMAKER_ENABLE_STATEFUL_SESSIONS", "enable_stateful_sessions"),
    option("SAGEMAKER_SESSIONS_EXPIRATION", "sessions_expiration"),
    option("SAGEMAKER_SESSIONS_PATH", "sessions_path"),
)
"""What AWS's library in these images (model-hosting-container-standards) reads."""


def _mebibytes(text: str) -> str:
    if not text.isdecimal():
        raise ValueError("a number of MiB")
    return str(int(text) << 20)


SIZES = (
    option("SAGEMAKER_MAX_REQUEST_SIZE", "max_body_bytes", help="Bytes; DJL Serving's own limit is the same."),
    option("SAGEMAKER_MAX_PAYLOAD_IN_MB", "max_body_bytes", convert=_mebibytes, help="The one above goes first."),
)
SERVER = (
    option("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", "request_timeout",
           help="`lmi serve` alone: DJL Serving makes its predict_timeout of it."),
    nothing("SAGEMAKER_NUM_MODEL_WORKERS", "one process serves, on all devices", generic=False),
    nothing("SAGEMAKER_STARTUP_TIMEOUT", "a start takes the time that it takes", generic=False),
)  # fmt: skip
"""Those of SageMaker's containers that DJL Serving (0.36, SageMakerCompatibility) reads itself: without it they are
`lmi serve`'s."""

_LISTENS = "the host says where it listens and what it logs"
_ACCESS = "SageMaker checks who calls an endpoint; `lmi serve` has --api-key and --allowed-host"
_ADDED = "the answers are what docs/openai.md says"


def _server(name: str, why: str) -> Variable:
    return nothing(PREFIX + name.upper(), why, generic=False)


def _not_served(name: str, why: str, *, secret: bool = False) -> Variable:
    return refused(PREFIX + name.upper(), why, generic=False, secret=secret)


def _first_name(text: str) -> str:
    """Of several names of the model, the one that answers have."""
    try:
        names = msgspec.json.decode(text.encode(), type=list[str])
    except msgspec.DecodeError:
        names = text.split()
    return names[0] if names else ""


ARGUMENTS = {
    variable.name: variable
    for variable in (
        option(f"{PREFIX}SERVED_MODEL_NAME", "served_model_name", convert=_first_name,
               help="Of several names the first; any other one is served too (`option.unknown_models`)."),
        *(_server(name, _LISTENS) for name in (
            "host", "port", "uds", "root_path", "uvicorn_log_level", "disable_uvicorn_access_log", "log_config_file",
            "disable_access_log_for_endpoints", "h11_max_header_count", "h11_max_incomplete_event_size",
            "disable_fastapi_docs", "enable_offline_docs", "enable_server_load_tracking", "log_error_stack",
            "disable_frontend_multiprocessing", "api_server_count", "enable_per_request_metrics", "enable_scale_out",
        )),
        *(_server(name, "option.log_requests says what is logged of requests") for name in (
            "enable_log_requests", "disable_log_requests", "enable_log_outputs", "enable_log_deltas", "max_log_len",
        )),
        *(_server(name, _ADDED) for name in (
            "enable_request_id_headers", "enable_prompt_tokens_details", "enable_tokenizer_info_endpoint",
            "fingerprint_mode", "fingerprint_value", "enable_flash_late_interaction", "sse_keep_alive_interval",
            "tool_strict_level", "anthropic_disabled_thinking_effort", "cohere_format", "cohere_is_reasoning_model",
        )),
        _not_served("api_key", f"{_ACCESS}", secret=True),
        *(_not_served(name, f"{_ACCESS}") for name in (
            "ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_cert_reqs", "ssl_ciphers",
            "enable_ssl_refresh", "allow_credentials", "allowed_origins", "allowed_methods", "allowed_headers",
        )),
        _not_served("middleware", "the options of your own code are in docs/custom-code.md"),
        by_hand(f"{PREFIX}CONFIG", "give its entries as options", generic=False),
        _not_served("response_role", "the role is assistant"),
        _not_served("return_tokens_as_token_ids", "tokens are shown as text"),
        _not_served("enable_force_include_usage", "requests say stream_options.include_usage"),
        _not_served("tool_server", "clients run the tools"),
        *(_not_served(name, "one worker is one engine") for name in (
            "headless", "grpc", "grpc_port", "data_parallel_supervisor_port", "dp_supervisor_probe_failure_threshold",
            "dp_supervisor_probe_interval_s", "dp_supervisor_probe_timeout_s",
        )),
    )
}  # fmt: skip
"""By variable: what is not vLLM's engine's, nor an option under the same name."""


def _given(text: str) -> str:
    return text or "true"


def _denied(text: str) -> str:
    return "false" if _given(text).lower() == "true" else ""


def variable_named(name: str) -> Variable:
    """The declaration of a variable SM_VLLM_*, known or not: what is unknown is an option that will be refused."""
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    argument = name.removeprefix(PREFIX).lower()
    if argument.startswith("no_"):
        return option(name, argument.removeprefix("no_"), convert=_denied)
    return option(name, argument, convert=_given)
