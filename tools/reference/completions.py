"""The tokens of prompts with completions, and which of them are in the loss, as TRL's SFTTrainer has
them: both are one text to the tokenizer, the loss begins behind the tokens of the prompt alone, and the
end token comes last. Made with transformers and the small tokenizers of tokenizer/testdata/tiny."""

import json
import pathlib

import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAIRS = [
    ["The capital of France is", " Paris."],
    ["7 + 1 =", "8"],
    ["Say it:\n", "it is so"],
    ["question? ", "the answer"],
    ["", "only an answer"],
    ["only a prompt", ""],
]


def main():
    out = {}
    for name in ("llama2", "llama3", "bytelevel", "unigram", "wordpiece"):
        path = ROOT / "tokenizer" / "testdata" / "tiny" / (name + ".json")
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
        for prompt, completion in PAIRS:
            tokens = tokenizer(prompt + completion)["input_ids"]
            alone = tokenizer(prompt)["input_ids"] if prompt else []
            out.setdefault(name, []).append({"prompt": prompt, "completion": completion, "tokens": tokens, "alone": alone})
    path = ROOT / "data" / "testdata" / "completions.json"
    path.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
