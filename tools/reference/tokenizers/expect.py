"""Writes what the tokenizers library makes of the corpus, for the Go tests to compare with.

    python -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.2 protobuf
    tools/reference/tokenizers/fetch.sh
    /tmp/venv/bin/python tools/reference/tokenizers/expect.py

Everything goes to tokenizer/testdata, which is committed; the five real tokenizers stay outside.
"""

import gzip
import json
import pathlib
import sys

sys.dont_write_bytecode = True

import tokenizers
from tokenizers import Regex, Tokenizer, normalizers

import steps
import tiny
from corpus import CORPUS

ROOT = pathlib.Path(__file__).resolve().parents[3]
REAL = ROOT / "testdata" / "tokenizers"
INTO = ROOT / "tokenizer" / "testdata"
NAMES = ["gpt2", "llama2", "llama3", "qwen2_5", "qwen3"]


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path = INTO / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


def case(tok, text):
    """What is left out of a case is the same as the field named here."""
    plain = tok.encode(text, add_special_tokens=False).ids
    special = tok.encode(text, add_special_tokens=True).ids
    decoded = tok.decode(special, skip_special_tokens=False)
    skipped = tok.decode(special, skip_special_tokens=True)
    out = {"plain": plain}
    if special != plain:
        out["special"] = special  # else plain
    if decoded != text:
        out["decoded"] = decoded  # else the text itself
    if skipped != text:
        out["skipped"] = skipped  # else the text itself
    return out


def expect(name, tok, corpus):
    cases = [case(tok, text) for text in corpus]
    write(f"expect/{name}.json.gz", {"tokenizers": tokenizers.__version__, "cases": cases})


def classes():
    """The characters that match \\p{L}, \\p{N} and \\s, as [first, last] ranges."""
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    text = "".join(map(chr, points))
    out = {}
    for name, pattern in {"letter": r"\p{L}", "number": r"\p{N}", "space": r"\s"}.items():
        kept = set(normalizers.Replace(Regex(pattern), "").normalize_str(text))
        ranges = []
        for c in points:
            if chr(c) in kept:
                continue
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
        out[name] = ranges
    return out


def main():
    write("corpus.json.gz", CORPUS)
    write("classes.json.gz", classes())
    write("steps.json.gz", steps.all())
    for name, tok in tiny.make(INTO / "tiny").items():
        expect("tiny-" + name, tok, CORPUS)
    for name in NAMES:
        path = REAL / f"{name}.json"
        if path.exists():
            expect(name, Tokenizer.from_file(str(path)), CORPUS)
        else:
            print(f"{path} is missing; run fetch.sh")


if __name__ == "__main__":
    main()
