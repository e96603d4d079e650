"""What Prometheus scrapes.

exposition.py      what the service and its engine count, as text: `/metrics` of the local server
port.py            the same on a port of its own, for workers behind DJL Serving
http_requests.py   HTTP requests, which the local server alone has
"""
