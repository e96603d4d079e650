"""What is reported of requests: counted (metrics.py), and in the log (request_log.py).

For Prometheus it is scraping/ that tells it, for the container's agent djl/metrics_log.py.
"""
