"""Behind DJL Serving. worker.py, convert.py and user_code/formatters/djl_formatters.py alone use DJL's Python package.

worker.py          what `handle` passes Java's calls to: options first, then requests
convert.py         its Input to requests, frames and answers to its Output
reading.py         Java's socket, read with few system calls
rolling_batch.py   Java calls again and again with every open request
async_mode.py      Java awaits each request; what all have to say after a step goes to it in one message
dynamic_batch.py   Java calls with a batch and waits for all of it
adapters.py        what Java says of adapters
call_limit.py      how long a dynamic batch may take, before Java kills the worker
frames.py          an answer's records as what Java takes, no field too long
last_chunk.py      the end of a dynamic batch's stream, so that Java's reader keeps its place
start_failure.py   a first start that fails in async mode, of which Java must not hear
metrics_log.py     the log's lines with metrics; worker_number.py: of which worker
host_watch.py      the worker ends with Java
"""
