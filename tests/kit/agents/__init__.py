"""Other people's agents as programs: their environments, what docs/agents.md says of each, and how they are run.

programs.py     Where they are installed, and a run of one, with a home of its own and no network but loopback
documented.py   The examples of docs/agents.md, pointed at a server of the tests
loops.py        Loops of libraries whose users write the tools: what is said, what must be seen
model.py        A model directory for tests/kit/played: Qwen3's vocabulary and template, and images
"""
