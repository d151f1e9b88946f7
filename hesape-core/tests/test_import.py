from __future__ import annotations

import subprocess
import sys

ASK = """
import sys, time
began = time.process_time()
import hesape
print(time.process_time() - began)
print(*sorted({name.split(".")[0] for name in sys.modules} | set(sys.modules)))
"""
KEPT_OUT = {"click", "rich", "psycopg", "pymysql", "redis", "pluggy", "importlib.metadata", "hesape_conformance"}


def imported() -> tuple[float, set[str]]:
    done = subprocess.run([sys.executable, "-I", "-c", ASK], capture_output=True, text=True, check=True)
    took, modules = done.stdout.splitlines()
    return float(took), set(modules.split())


def test_importing_hesape_loads_no_command_line_no_client_and_no_entry_point() -> None:
    assert imported()[1] & KEPT_OUT == set()


def test_importing_hesape_takes_less_than_150_ms_of_a_processor() -> None:
    assert min(imported()[0] for _ in range(5)) < 0.150
