"""Speed and memory of qkv beside what a user would pick instead, as ratios from one run.

    python benchmarks/run.py            all; about 20 minutes on 2 cores
    python benchmarks/run.py attention  only the pairs whose name holds this word
    python benchmarks/run.py grading    only the grader, beside nbgrader: see grading.py

README.md beside this file says how it is measured, what was expected and what came out.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's threads: settled when it is loaded

import torch  # noqa: E402
from pairs import PAIRS, Run  # noqa: E402

SECONDS = 4.0  # for a pair, if its rounds are short
ROUND = 0.02  # a round repeats a call until it lasts about as long
ROUNDS = (5, 200)  # at least, at most
LINUX = sys.platform == "linux"  # elsewhere memory is left out


def timed(call: Run, times: int, clock: Callable[[], float]) -> float:
    begin = clock()
    for _ in range(times):
        call()
    return (clock() - begin) / times


def race(name: str, threads: int) -> tuple[float, float, float, float, float]:
    """Seconds of ours and of the other, then their ratio: median, lower and upper quartile.

    The two take turns, and who goes first alternates: what slows the machine for a while
    slows both. One thread is measured in the process's own CPU time, which leaves out the
    moments when other processes run; two threads by the clock on the wall.
    """
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    sides = [make() for make in PAIRS[name].sides]
    for call in sides:
        timed(call, 1, clock)  # warm-up
    times = max(1, round(ROUND / max(timed(call, 1, clock) for call in sides)))
    spent: list[list[float]] = [[], []]
    deadline = time.monotonic() + SECONDS
    for i in range(ROUNDS[1]):
        for side in (0, 1) if i % 2 else (1, 0):
            spent[side].append(timed(sides[side], times, clock))
        if i + 1 >= ROUNDS[0] and time.monotonic() > deadline:
            break
    ratios = [ours / other for ours, other in zip(*spent, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    ours, other = map(statistics.median, spent)
    return ours, other, median, low, high


def memory(field: str) -> float:
    """MiB: VmRSS is what this process holds now, VmHWM the most that it ever held (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024


def peak(name: str, side: int) -> float:
    """MiB that building and three calls add, in a process of its own."""
    command = [sys.executable, __file__, "--peak", str(side), name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def peak_here(name: str, side: int) -> float:
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Embedding(2, 2), torch.nn.Linear(2, 2))
    model(torch.tensor([0, 1])).sum().backward()
    torch.optim.AdamW(model.parameters()).step()  # libraries load at their first use
    before = memory("VmRSS")
    call = PAIRS[name].sides[side]()
    for _ in range(3):
        call()
    return memory("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("word", nargs="?", default="", help="part of a pair's name, or grading")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak is not None:
        print(peak_here(given.word, given.peak))
        return
    names = [name for name in PAIRS if given.word in name]
    if not names and given.word != "grading":
        parser.error(f"no pair's name holds {given.word!r}; there are: {', '.join(PAIRS)}, grading")
    if names:
        table(names)
    if given.word in ("", "grading"):
        print(flush=True)
        subprocess.run([sys.executable, Path(__file__).with_name("grading.py")])


def table(names: list[str]) -> None:
    print("| what | threads | ours, ms | other, ms | ratio (quartiles) | aim | memory, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        for threads in PAIRS[name].threads:
            ours, other, ratio, low, high = race(name, threads)
            aim = PAIRS[name].aim
            goal = "" if aim is None else f"{aim:.2f} {'met' if ratio <= aim else 'MISSED'}"
            held = f"{peak(name, 0):.0f} : {peak(name, 1):.0f}" if threads == 1 and LINUX else ""
            print(
                f"| {name} | {threads} | {ours * 1e3:.3g} | {other * 1e3:.3g} "
                f"| {ratio:.3f} ({low:.2f}–{high:.2f}) | {goal} | {held} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
