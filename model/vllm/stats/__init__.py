"""What vLLM itself counts, of which its front end, which is not used here, would make lines and metrics.

iteration.py        what one EngineCoreOutputs brought
stats_log.py        vLLM's lines about it, every ten seconds
metrics.py          vLLM's metrics, for who scrapes them; requests.py: of single requests
tracing.py          its spans of requests
"""
