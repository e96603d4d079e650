"""What is reported of requests: counted (metrics.py), for Prometheus (prometheus.py), in the log (request_log.py).

The lines that the container's agent reads are handler/djl/metrics_log.py's.
"""
