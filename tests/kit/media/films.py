"""Videos for tests, and the forms that they come in."""

from __future__ import annotations

import base64
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["clip", "jpeg_frames", "pictures"]

CODECS = {"mp4": "mp4v", "avi": "MJPG"}
"""By a file's format: what OpenCV's wheel writes without anything else."""


def pictures(frames: int, size: tuple[int, int] = (64, 48), seed: int = 0) -> Any:
    """So many pictures, (frames, height, width, 3) of bytes: a field of one color in which a block of another moves."""
    width, height = size
    draw = np.random.default_rng(seed)
    ground, block = draw.integers(0, 256, (2, 3), dtype=np.uint8)
    found = np.empty((frames, height, width, 3), np.uint8)
    found[:] = ground
    for index in range(frames):
        left = index * (width // 2) // max(frames - 1, 1)
        found[index, height // 4 : height * 3 // 4, left : left + width // 2] = block
    return found


def clip(
    frames: int, size: tuple[int, int] = (64, 48), format: str = "mp4", *, fps: float = 8.0, seed: int = 0
) -> bytes:
    """A video of `pictures`, by OpenCV: "mp4" (MPEG-4) or "avi" (Motion JPEG)."""
    import cv2

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"clip.{format}")
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*CODECS[format]), fps, size)
        try:
            assert writer.isOpened(), f"OpenCV does not write {format}"
            for picture in pictures(frames, size, seed):
                writer.write(np.ascontiguousarray(picture[:, :, ::-1]))
        finally:
            writer.release()
        return path.read_bytes()


def jpeg_frames(frames: int, size: tuple[int, int] = (64, 48), *, seed: int = 0) -> str:
    """A URL of `pictures` as vLLM's `video/jpeg` has it: one JPEG after another, with commas between."""
    from PIL import Image

    written: list[str] = []
    for picture in pictures(frames, size, seed):
        held = io.BytesIO()
        Image.fromarray(picture).save(held, "JPEG", quality=95)
        written.append(base64.b64encode(held.getvalue()).decode())
    return "data:video/jpeg;base64," + ",".join(written)
