"""Videos as files: what is in them, and that there is never half of one."""

import subprocess
import sys

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from rondel.errors import RondelError
from rondel.run.playback import video


def images(count, side=20):
    for i in range(count):
        yield video.framed(np.full((side, side + 1, 3), 20 * i, np.uint8), f"step {i}")


def test_a_picture_is_made_large_and_even_and_has_a_caption():
    # 320 // 30 is 10: 300 pixels for 30, and below them 24 for the caption
    framed = np.asarray(video.framed(np.full((30, 21, 3), 7, np.uint8), "step 1"))
    assert framed.shape == (324, 210, 3)
    assert (framed[:300] == 7).all()
    assert (framed[300:] < 128).any()
    odd = video.framed(np.zeros((401, 401, 3), np.uint8), "step 1")
    assert odd.size == (402, 426)
    assert video.framed(np.zeros((9, 1, 3), np.uint8), "a longer caption " * 9).width > 500


def test_a_gif_has_all_pictures_at_their_speed(tmp_path):
    path = video.write(images(5), tmp_path / "a.gif", fps=20)
    with Image.open(path) as gif:
        assert gif.n_frames == 5
        assert gif.info["duration"] == 50
        assert gif.info["loop"] == 0
        seen = []
        for i in range(5):
            gif.seek(i)
            seen.append(gif.convert("RGB").getpixel((100, 100))[0])
    assert seen == pytest.approx([0, 20, 40, 60, 80], abs=3)
    assert [p.name for p in tmp_path.iterdir()] == ["a.gif"]


def test_an_mp4_has_all_pictures_at_their_speed(tmp_path):
    path = video.write(images(12), tmp_path / "a.mp4", fps=12)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, *"-f rawvideo -pix_fmt rgb24 -".split()]
    read = subprocess.run(command, capture_output=True, check=True)
    assert b"316x324" in read.stderr
    assert b"12 fps" in read.stderr
    frames = np.frombuffer(read.stdout, np.uint8).reshape(-1, 324, 316, 3)
    assert frames[:, 100, 100, 0].tolist() == pytest.approx(np.arange(12) * 20, abs=6)
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize("name", ["a.gif", "a.mp4"])
def test_one_that_fails_on_the_way_leaves_nothing_and_harms_nothing(tmp_path, name):
    def broken():
        yield from images(3)
        raise ZeroDivisionError

    (tmp_path / name).write_bytes(b"the old one")
    with pytest.raises(ZeroDivisionError):
        video.write(broken(), tmp_path / name, fps=10)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"the old one"


@pytest.mark.parametrize(
    ("name", "fps", "sentence"),
    [
        ("a.avi", 30, "must end in .gif or .mp4, got"),
        ("there.gif", 30, "already exists. Use another file, or overwrite=True"),
        ("a.gif", 51, "must be 1 to 50, got 51"),
        ("a.mp4", 0, "must be 1 to 1000, got 0"),
    ],
)
def test_what_can_not_be_written_gets_a_sentence(tmp_path, name, fps, sentence):
    (tmp_path / "there.gif").touch()
    with pytest.raises(RondelError, match=sentence):
        video.check(tmp_path / name, fps, overwrite=False)


def test_overwriting_is_said_so_and_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    (tmp_path / "there.gif").touch()
    video.check(tmp_path / "there.gif", 30, overwrite=True)
    with pytest.raises(RondelError, match=r"The video .* can't be written: No such file"):
        video.write(images(1), tmp_path / "nowhere" / "a.gif", 30)


def test_without_the_package_an_mp4_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(RondelError, match=r'pip install "rondel\[video\]"'):
        video.check(tmp_path / "a.mp4", 30, overwrite=False)
