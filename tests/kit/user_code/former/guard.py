# mypy: ignore-errors
# guard.py
def judge(text, stage):
    """None, or why the text is not acceptable: a string, or something with a `reason`."""
    return "about volcanoes" if "volcano" in text else None
