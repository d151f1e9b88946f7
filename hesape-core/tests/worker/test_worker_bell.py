"""The bell by which the worker's threads sleep."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from hesape.worker.bell import Bell

SIGNALLED_WHEN_ITS_TIME_WAS_OVER = """
import os, signal, subprocess, sys, threading, time
from hesape.worker.bell import Bell

STRANGER = '''
import ctypes, os, signal, sys, time
process, thread = map(int, sys.argv[1:])
os.kill(process, signal.SIGSTOP)
time.sleep(0.6)
ctypes.CDLL(None).tgkill(process, thread, int(signal.SIGUSR1))  # it waits until the process goes on
os.kill(process, signal.SIGCONT)
'''
signal.signal(signal.SIGUSR1, lambda *_: None)
bell = Bell()
began = threading.Event()

def sleep():
    bell.lie_down()
    began.set()
    bell.sleep(0.5)

sleeper = threading.Thread(target=sleep, daemon=True)
sleeper.start()
began.wait()
subprocess.run([sys.executable, "-c", STRANGER, str(os.getpid()), str(sleeper.native_id)], check=True)
sleeper.join(5)
sys.exit(sleeper.is_alive())
"""


def rested(bell: Bell, timeout_s: float) -> float:
    began = time.monotonic()
    bell.sleep(timeout_s)
    return time.monotonic() - began


def test_it_wakes_at_a_ring_and_after_its_time() -> None:
    bell = Bell()
    bell.lie_down()
    threading.Timer(0.05, bell.ring).start()
    assert rested(bell, 10) < 5
    bell.lie_down()
    assert rested(bell, 0.05) >= 0.05


def test_a_ring_between_the_look_and_the_sleep_isnt_lost_and_many_count_as_one() -> None:
    bell = Bell()
    bell.lie_down()
    bell.ring()
    bell.ring()
    assert rested(bell, 10) < 5
    bell.lie_down()
    assert rested(bell, 0.05) >= 0.05


def test_nobody_is_woken_who_is_awake() -> None:
    bell = Bell()
    bell.ring()
    bell.lie_down()
    bell.stay_up()
    bell.ring()
    bell.lie_down()
    assert rested(bell, 0.05) >= 0.05


def test_a_sleep_ends_though_its_process_was_stopped_and_a_signal_came() -> None:
    command = [sys.executable, "-c", SIGNALLED_WHEN_ITS_TIME_WAS_OVER]
    assert subprocess.run(command, timeout=20, check=False).returncode == 0
