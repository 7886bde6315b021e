"""Video files: GIF, or MP4 if imageio-ffmpeg is installed."""

from __future__ import annotations

import errno
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rondel.errors import RondelError
from rondel.run.storage.atomic_files import atomic_write, explain_failure, refuse_to_replace

Image: TypeAlias = Any  # one of Pillow's

_SIDE = 320  # pixels that small pictures are enlarged to
_BAND, _LETTERS = 24, 14  # the caption's height and that of its letters
_FFMPEG_SECONDS = 60.0  # that it may take to finish after the last picture
_MOST_GIF = 50  # pictures a second: viewers show faster ones slower


def check(path: Path, fps: int, overwrite: bool) -> None:
    """Refuse a file that can't be written, before anything is played."""
    if path.suffix not in _WRITERS:
        raise RondelError(f"A video must end in {' or '.join(_WRITERS)}, got {path}.")
    refuse_to_replace(path, overwrite)
    if path.suffix == ".mp4" and find_spec("imageio_ffmpeg") is None:
        raise RondelError(
            'An .mp4 needs the package imageio-ffmpeg: pip install "rondel[video]". Or use .gif.'
        )
    most = _MOST_GIF if path.suffix == ".gif" else 1_000
    if not 1 <= fps <= most:
        raise RondelError(f"fps of a {path.suffix} must be 1 to {most}, got {fps}.")


def framed(picture: np.ndarray, caption: str) -> Image:
    """A picture [height, width, 3] uint8 with a caption below, in even numbers of pixels."""
    from PIL import Image, ImageDraw, ImageFont

    height, width, _ = picture.shape
    scale = max(1, _SIDE // max(height, width))
    drawn = Image.fromarray(picture).resize((width * scale, height * scale), Image.Resampling.BOX)
    font = ImageFont.load_default(_LETTERS)
    across = max(drawn.width, round(font.getlength(caption)) + 16)
    size = (across + across % 2, drawn.height + _BAND + drawn.height % 2)
    whole = Image.new("RGB", size, "white")
    whole.paste(drawn, ((size[0] - drawn.width) // 2, 0))
    ImageDraw.Draw(whole).text((8, drawn.height + 3), caption, "#333333", font)
    return whole


def write(images: Iterable[Image], path: Path, fps: int) -> Path:
    """Write the file in one step, in the size of the first picture."""
    with explain_failure(f"The video {path}"), atomic_write(path) as partial:
        _WRITERS[path.suffix](_alike(iter(images)), partial, fps)
    return path


def _alike(images: Iterator[Image]) -> Iterator[Image]:
    """The images, all resized to the first one's size."""
    first = next(images)
    yield first
    for image in images:
        yield image if image.size == first.size else image.resize(first.size)


def _gif(images: Iterator[Image], path: Path, fps: int) -> None:
    small = (image.quantize(64, dither=0) for image in images)  # 64 colours
    first = next(small)
    first.save(
        path, "GIF", save_all=True, append_images=small, duration=round(100 / fps) * 10, loop=0
    )


def _mp4(images: Iterator[Image], path: Path, fps: int) -> None:
    import imageio_ffmpeg

    first = next(images)
    width, height = first.size
    source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps} -i -"
    target = "-pix_fmt yuv420p -movflags +faststart -f mp4"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *source.split()]
    command += [*target.split(), str(path)]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log) as process,
    ):
        assert process.stdin is not None
        try:
            for image in chain([first], images):
                try:
                    process.stdin.write(image.tobytes())
                except BrokenPipeError:  # its exit status tells why
                    break
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
        if process.wait(_FFMPEG_SECONDS):
            log.seek(0)
            raise OSError(errno.EIO, log.read().decode(errors="replace").strip())


_WRITERS: dict[str, Callable[[Iterator[Image], Path, int], None]] = {".gif": _gif, ".mp4": _mp4}
