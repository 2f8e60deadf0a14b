"""How fast the generator `chat` loads and replies, in each number format, on one and on two threads.

    python benchmarks/generation.py --home HOME [--generator chat] [--threads 1 2] [--replies 5]

Each row is a process of its own. A reply is 25 tokens after a prompt of real length, with the cache; the
first one, which also warms up, does not count. The CPU time, of all threads, is what a busy machine falsifies
least. The memory is the most that the process had, libraries included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ranker.generation.chat import KIND, read_chat
from ranker.generation.chat_base import open_base
from ranker.generation.folder import GeneratorFolder
from ranker.home import EMBEDDED, Home
from ranker.storage import is_published
from ranker.types import Context

FORMATS = ("fp32", "bf16", "int8")
TOKENS = 25
CONTEXT = Context(
    (
        "I moved to a new city last month and I hardly know anyone here.",
        "That must be hard. Have you found anything that you like about it?",
        "The park is nice, but in the evenings I just sit at home and miss my friends.",
    )
)


def measure(home: Home, generator: str, number_format: str, threads: int, replies: int) -> dict[str, float]:
    import torch

    from ranker.generation.chat_model import Continuation

    torch.set_num_threads(threads)
    roots = (home.generators / generator, EMBEDDED / "generators" / generator, Path(generator))
    root = next(root for root in roots if is_published(root))
    began = time.perf_counter()
    dtype = torch.bfloat16 if number_format == "bf16" else torch.float32
    loaded = read_chat(GeneratorFolder.open(root, KIND), open_base(home), dtype=dtype)
    if number_format == "int8":
        quantisation: Any = torch.ao.quantization  # its functions have no annotations
        loaded.model.lm = quantisation.quantize_dynamic(loaded.model.lm, {torch.nn.Linear}, dtype=torch.qint8)
    load_seconds = time.perf_counter() - began
    prompt = loaded.prompt.prompt(CONTEXT)
    first, whole, busy = [], [], []
    for _ in range(replies + 1):
        began, worked = time.perf_counter(), time.process_time()
        step = Continuation(loaded.model, prompt)
        token = prompt[-1]
        for place in range(TOKENS):
            token = int(step([0], [token])[0].argmax())
            if place == 0:
                first.append(time.perf_counter() - began)
        whole.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
    return {
        "load": load_seconds,
        "prompt": len(prompt),
        "first": float(np.median(first[1:])),
        "reply": float(np.median(whole[1:])),
        "cpu": float(np.median(busy[1:])),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--home", default=None)
    parser.add_argument("--generator", default="chat")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--replies", type=int, default=5)
    parser.add_argument("--one", nargs=2, metavar=("FORMAT", "THREADS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    home = Home.find(given.home)
    if given.one:
        print(json.dumps(measure(home, given.generator, given.one[0], int(given.one[1]), given.replies)))
        return
    table = Table(
        "format",
        "threads",
        "load s",
        "first token s",
        f"{TOKENS} tokens s",
        "ms/token",
        "CPU s",
        "memory MB",
        title=f"{given.generator}: a reply of {TOKENS} tokens (median of {given.replies})",
    )
    for number_format in given.formats:
        for threads in given.threads:
            command = [sys.executable, __file__, "--home", str(home.root), "--generator", given.generator]
            command += ["--replies", str(given.replies), "--one", number_format, str(threads)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            each = 1000 * (found["reply"] - found["first"]) / (TOKENS - 1)
            table.add_row(
                number_format,
                str(threads),
                f"{found['load']:.2f}",
                f"{found['first']:.2f}",
                f"{found['reply']:.2f}",
                f"{each:.1f}",
                f"{found['cpu']:.2f}",
                f"{found['memory']:.0f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
