"""The campaign: break what gpatcher reads, limit what it may use, stop it at random moments, and record the outcome.

``python tools/campaign`` continues the rows to their full counts and writes the table in docs/reliability.md. Each try
is one line in results/campaign/ROW.jsonl; try k of a row is drawn by the seed and k, whenever it is made.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from page import PAGE, ROWS, made

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "campaign"
GOOD = ("right", "refused", "reported", "accepted", "differs")


def on_record(path: Path) -> set[int]:
    """Return the numbers of the tries on record."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {json.loads(line)["try"] for line in lines}


def take_back(path: Path) -> list[int]:
    """Remove the tries that did not hold from the record, and return their numbers."""
    lines = path.read_text().splitlines() if path.is_file() else []
    bad = [line for line in lines if json.loads(line)["outcome"] not in GOOD]
    if bad:
        path.write_text("".join(f"{line}\n" for line in lines if line not in bad))
    return [json.loads(line)["try"] for line in bad]


def source_state() -> str:
    """Return the last commit that changed the program, marked if it was changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src")
        return git("log", "-1", "--format=%h", "--abbrev=12", "--", "src") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        from gpatcher import __version__

        return __version__  # not a checkout


def run_row(row: str, numbers: Iterable[int], seed: int, out: Path, bases: "Bases") -> int:  # noqa: F821
    """Make the tries of a row that are not on record; return how many ended badly."""
    import numpy as np
    from damage import damage, fields
    from inputs import inputs
    from limits import disk, memory
    from moments import crash, interrupt, pairs
    from promises import ids, payloads, runs
    from threads import threads

    rows = (damage, fields, inputs, payloads, runs, ids, crash, interrupt, pairs, disk, memory)
    attempts = {function.__name__: function for function in rows}
    path = out / f"{row}.jsonl"
    done, bad, source = on_record(path), 0, source_state()
    _, seen = bases.elsewhere({})
    for number in numbers:
        if number in done:
            continue
        rng = np.random.default_rng([seed, zlib.crc32(row.encode()), number])
        result = threads(bases, number) if row == "threads" else attempts[row](bases, rng)
        elsewhere, seen = bases.elsewhere(seen)
        if elsewhere:
            result |= {"outcome": "wrote elsewhere", "message": elsewhere}
        if result["outcome"] in GOOD:
            del result["message"]
        else:
            bad += 1
            result["message"] = result["message"][:300]
            print(f"{row} {number}: {result['outcome']}: {result['what']}: {result['message']}", flush=True)
        with path.open("a") as file:
            file.write(json.dumps({"try": number, "source": source, **result}, ensure_ascii=True) + "\n")
    return bad


def main() -> None:
    """Run the campaign and write its table."""
    parser = argparse.ArgumentParser(prog="tools/campaign", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help="rows, e.g. damage,crash (default: all)")
    parser.add_argument("--tries", type=int, help="tries of each row (default: those of a full campaign)")
    parser.add_argument("--part", default="1/1", help="every K-th try from the I-th, as I/K, for several processes")
    parser.add_argument("--again", action="store_true", help="only the tries that did not hold, after a mend")
    parser.add_argument("--only", help="kinds of files of damage and fields, e.g. 'saved run,records' (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the records (default: results/campaign)")
    parser.add_argument("--scratch", type=Path, help="folder for the tries (default: a temporary one)")
    parser.add_argument("--page", action="store_true", help="write the table in docs/reliability.md and stop")
    options = parser.parse_args()
    if options.page:
        (ROOT / PAGE).write_text(made(ROOT))
        return
    from bases import Bases

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that mounts and folders are cleared
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    scratch = (options.scratch or Path(tempfile.mkdtemp(prefix="campaign-"))).resolve()
    bases = Bases(scratch, None if options.only is None else options.only.split(","))
    first, step = (int(number) for number in options.part.split("/"))
    try:
        bad = 0
        for row in options.rows.split(","):
            tries = ROWS[row][1] if options.tries is None else options.tries
            numbers = take_back(out / f"{row}.jsonl") if options.again else range(first - 1, tries, step)
            bad += run_row(row, numbers, options.seed, out, bases)
    finally:
        if options.scratch is None:
            shutil.rmtree(scratch, ignore_errors=True)
    if out == RESULTS:
        (ROOT / PAGE).write_text(made(ROOT))
    sys.exit(int(bad > 0))


if __name__ == "__main__":
    main()
