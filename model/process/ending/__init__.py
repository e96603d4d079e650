"""How the engine's process ends, and what it says then.

exit.py                          with its host, and with all that it has started
exit_report.py, crash_report.py  its last words, to the host and to the log
start_errors.py, output_tail.py  why a start failed, in one line
"""
