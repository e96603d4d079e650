"""Behind DJL Serving. worker.py, convert.py and user_code/formatters/djl_formatters.py alone use DJL's Python package.

worker.py          what `handle` passes Java's calls to: options first, then requests
convert.py         its Input to requests, frames and answers to its Output
reading.py         Java's socket, read with few system calls
modes/             how Java calls, and what it gets
adapters.py        what Java says of adapters
frames.py          an answer's records as what Java takes, no field too long
start_failure.py   a first start that fails in async mode, of which Java must not hear
metrics_log.py     the log's lines with metrics; worker_number.py: of which worker
host_watch.py      the worker ends with Java
"""
