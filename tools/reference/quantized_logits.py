"""Log-probabilities of tokens by transformers, from folders with quantized weights.

usage: python quantized_logits.py OUT.json NAME=FOLDER ...

The folders are written by spillway quantize from testdata/reference/llama; transformers loads
them with bitsandbytes (nf4, fp4) and compressed-tensors (fp8), and computes in float32 on a CPU.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

TOKENS = [1, 5, 17, 7, 30, 23, 2, 9, 20, 31, 12, 3, 61, 44, 70, 8]


def main():
    result = {"tokens": TOKENS, "logprobs": {}}
    for arg in sys.argv[2:]:
        name, folder = arg.split("=", 1)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            logits = model(torch.tensor([TOKENS])).logits[0]
        probs = torch.log_softmax(logits.double(), -1)
        result["logprobs"][name] = [probs[i, t].item() for i, t in enumerate(TOKENS[1:])]
    with open(sys.argv[1], "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
