"""What is reported of requests: counted (metrics.py), and in the log (request_log.py).

For Prometheus it is server/prometheus.py that tells it, for the container's agent djl/metrics_log.py.
"""
