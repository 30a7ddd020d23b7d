"""One process that opens spoilt files, with a limit on its memory and its time; started by `fuzz`."""

import json
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from tests.robustness.fuzz import SMALLEST
from tests.robustness.fuzz_fits import fails, minimise, odd_fit
from tests.robustness.fuzz_targets import TARGETS, Corpus, attempt, seeded

HEADROOM = 1_000_000_000
"""Bytes of address space beyond what a good file needs; a forged size that is believed runs into it."""
GROWTH = 300_000
"""Kilobytes by which the largest resident size may grow in all."""
SECONDS_A_CASE = 20
"""Of the processor, which other work on the machine does not take. One who waits in silence is killed from outside."""
WARM_UP = 4
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "pickle.find_class")
"""What Python reports to an audit hook when a program does more than to read."""


class Hang(BaseException):
    """A case took too long."""


def main(first_seed: int, seconds: float) -> None:
    """Run cases one after another, and print a line before and after each."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(Path(folder))
        for seed in range(WARM_UP):  # imports and caches are paid for before memory is counted
            for target in TARGETS:
                _outcome(target, corpus, seed)
        limit_memory(HEADROOM)
        acts: list[str] = []
        sys.addaudithook(lambda event, arguments: acts.append(event) if event in FORBIDDEN else None)
        before = _peak()
        seed = first_seed
        while time.monotonic() < end:
            target, random = seeded(seed)
            print("start", seed, target, flush=True)
            outcome = _outcome(target, corpus, random)
            if acts:
                outcome = f"FAILED: did {', '.join(acts)}"
                acts.clear()
            elif _peak() - before > GROWTH:
                outcome = f"FAILED: memory grew by {(_peak() - before) / 1e3:.0f} MB"
                before = _peak()
            if target == "fit" and outcome.startswith("FAILED"):
                outcome = f"{outcome} {SMALLEST}{_smallest(seed)}"
            print("end", seed, outcome, flush=True)
            seed += 1


def _smallest(seed: int) -> str:
    case = odd_fit(seeded(seed)[1])
    return json.dumps(minimise(case) if fails(case) else case)


def limit_memory(headroom: int) -> None:
    """Refuse this process more address space than it has now, and some."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + headroom
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _outcome(target: str, corpus: Corpus, choices: Any) -> str:
    signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_A_CASE)
    try:
        random = choices if not isinstance(choices, int) else seeded(choices)[1]
        return attempt(target, corpus, random)
    except Hang:
        return f"FAILED: took more than {SECONDS_A_CASE} s"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = " ".join(str(error).split())[:200]
        return f"FAILED: {type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {reason}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _hang(number: int, frame: FrameType | None) -> None:
    raise Hang


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
