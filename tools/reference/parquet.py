"""Parquet files as pyarrow, pandas and datasets write them, and the same rows as JSON lines."""

import json
import pathlib

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).parent.parent.parent / "data" / "parquet" / "testdata"

TEXTS = ["One.", "", "Zwei — drei", "漢字 😀", "a\nb\t\"c\" \\d", None, "x" * 3000] + [f"Text number {i % 7} of many." for i in range(200)]


def turns(i):
    messages = [{"role": "user", "content": f"What is {i}?", "weight": None, "calls": None}]
    for k in range(i % 4):
        calls = None if k % 2 else [{"name": "f", "arguments": [str(i), None]}] * (k % 3)
        messages.append({"role": "assistant", "content": f"It is {i}.{k}", "weight": k % 2, "calls": calls})
        messages.append({"role": "user", "content": "" if k == 1 else "And?", "weight": None, "calls": None})
    return messages


def rows():
    for i, text in enumerate(TEXTS):
        yield {
            "text": text,
            "messages": None if i % 50 == 49 else [] if i % 50 == 48 else turns(i),
            "number": None if i % 5 == 0 else i * 1000003 - 5,
            "small": i % 3,
            "real": None if i % 7 == 0 else i / 8,
            "yes": None if i % 4 == 0 else i % 3 == 0,
            "tags": None if i % 6 == 0 else [f"t{k}" if k % 3 else None for k in range(i % 4)],
            "nested": [[k] * (k % 3) for k in range(i % 4)],
            "info": {"source": f"s{i % 3}", "score": None if i % 2 else i},
        }


SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.int64()), ("calls", pa.list_(pa.struct([("name", pa.string()), ("arguments", pa.list_(pa.string()))])))]))),
        ("number", pa.int64()),
        ("small", pa.int32()),
        ("real", pa.float64()),
        ("yes", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("nested", pa.list_(pa.list_(pa.int64()))),
        ("info", pa.struct([("source", pa.string()), ("score", pa.int64())])),
    ]
)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    data = list(rows())
    with open(OUT / "rows.jsonl", "w", encoding="utf-8") as f:
        for row in data:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    table = pa.Table.from_pylist(data, schema=SCHEMA)
    for codec in ["none", "snappy", "gzip", "zstd"]:
        pq.write_table(table, OUT / f"{codec}.parquet", compression=codec)
        pq.write_table(table, OUT / f"{codec}-v2.parquet", compression=codec, data_page_version="2.0", version="2.6", row_group_size=50)
    pq.write_table(table, OUT / "plain.parquet", use_dictionary=False, data_page_size=512, write_statistics=False)
    pq.write_table(table, OUT / "small-pages.parquet", compression="zstd", data_page_size=100, dictionary_pagesize_limit=200, row_group_size=64)
    strings = ["text", "messages.list.element.role", "messages.list.element.content", "info.source"]
    numbers = ["number", "small", "nested.list.element.list.element"]
    for name, text in [("delta-length", "DELTA_LENGTH_BYTE_ARRAY"), ("delta-bytes", "DELTA_BYTE_ARRAY")]:
        encodings = {**{s: text for s in strings}, **{n: "DELTA_BINARY_PACKED" for n in numbers}}
        pq.write_table(table, OUT / f"{name}.parquet", use_dictionary=False, column_encoding=encodings, data_page_version="2.0")
    pq.write_table(table, OUT / "large.parquet", use_compliant_nested_type=False)  # items are called "item"
    large = pa.schema([("text", pa.large_string())] + [SCHEMA.field(i) for i in range(1, len(SCHEMA))])
    pq.write_table(table.cast(large), OUT / "large-string.parquet")
    table.to_pandas().to_parquet(OUT / "pandas.parquet")
    # As the hub converts data sets: with datasets, in row groups of 100.
    datasets.Dataset(table).to_parquet(OUT / "hub.parquet", batch_size=100)
    # Data sets as one trains on them, as the hub has them and as JSON lines.
    chats = datasets.Dataset.from_list(
        [{"id": i, "messages": [{"role": m["role"], "content": m["content"]} for m in turns(4 * i + 3)[:-1]], "source": "made"} for i in range(40)]
    )
    chats.to_parquet(OUT / "chats.parquet", batch_size=16)
    chats.to_json(OUT / "chats.jsonl", force_ascii=False)
    questions = datasets.Dataset.from_list([{"question": f"What is {i}² — exactly?", "answer": str(i * i), "rest": [i]} for i in range(40)])
    questions.to_parquet(OUT / "questions.parquet")
    questions.to_json(OUT / "questions.jsonl", force_ascii=False)
    # What is not read.
    pq.write_table(table.select(["text"]), OUT / "brotli.parquet", compression="brotli")
    pq.write_table(pa.table({"image": pa.array([b"\xff\xfe"], pa.binary())}), OUT / "binary.parquet")


if __name__ == "__main__":
    main()
