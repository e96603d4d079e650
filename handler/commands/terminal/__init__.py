"""What commands show on a terminal while they work, by `rich` of the extra `terminal`; without it they print lines.

capture.py    the output of this process and of those that it starts, line by line
start.py      how far an engine's start is, by these lines
loading.py    shows that, then where the model is served; drawing.py: as a picture
packing.py    how far an archive is
console.py    the terminal itself, where there is one to draw on
"""
