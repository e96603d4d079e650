"""LoRA adapters: their files, and what an engine does with them.

files.py           what an adapter's folder holds, checked without the engine
shapes.py          its tensors' shapes beside the model's; the memory that a slot takes
folder.py          the adapters that lie in the model directory, and what they ask of the engine
adapter.py         a registration, and the protocol of what loads it
residents.py       in the engine's process: which are loaded, who waits for one
"""
