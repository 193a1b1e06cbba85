"""What all baselines share: their flags, how they take time, the line they print.

A baseline measures one thing in another library and prints one JSON object on one
line: {"baseline", "version", "bench", "threads", "repeat", "results": [...]}.
Every result has "seconds" (the best of `repeat` after one round of warm-up) and
the rate that follows from it.
"""

import argparse
import json
import os
import time


def arguments(description, repeat):
    """A parser that already knows --threads and --repeat."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of the library (default: all)")
    parser.add_argument(
        "--repeat", type=int, default=repeat, help=f"rounds, of which the best counts (default: {repeat})"
    )
    return parser


def best(work, repeat):
    """Seconds of the fastest of `repeat` calls. On a shared machine the fastest one is the
    least disturbed one."""
    work()
    fastest = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def report(baseline, version, bench, options, results):
    line = {"baseline": baseline, "version": version, "bench": bench, "threads": options.threads, "repeat": options.repeat}
    print(json.dumps({**line, "results": results}))
