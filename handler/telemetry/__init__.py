"""What is reported of requests: counted (metrics.py), for Prometheus (prometheus.py), in the log (request_log.py), and
of which worker it is said (worker_number.py).

The lines that the container's agent reads are handler/djl/metrics_log.py's.
"""
