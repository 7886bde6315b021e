"""Seconds that a line of Python takes in a process of its own."""

import subprocess
import sys
import time


def seconds(code):
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.monotonic() - began
