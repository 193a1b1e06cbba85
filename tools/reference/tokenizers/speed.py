"""How fast the tokenizers library encodes the novel that fetch.sh downloads: one core, one long text, in CPU time.

Compare with `go test -run '^$' -bench Encode ./tokenizer` on the same machine.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pathlib
import time

from tokenizers import Tokenizer

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "testdata" / "tokenizers"


def main():
    text = (FOLDER / "prose.txt").read_text()
    size = len(text.encode()) / 1e6
    for path in sorted(FOLDER.glob("*.json")):
        start = time.process_time()
        tok = Tokenizer.from_file(str(path))
        load = time.process_time() - start
        best = min(timed(tok, text) for _ in range(3))
        print(f"{path.stem:10} {size / best:6.2f} MB/s   opened in {load:.2f} s")


def timed(tok, text):
    start = time.process_time()
    tok.encode(text, add_special_tokens=False)
    return time.process_time() - start


if __name__ == "__main__":
    main()
