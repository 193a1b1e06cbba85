#!/usr/bin/env bash
# Fetches the chat templates that llama.cpp collects from published models into
# testdata/tokenizers/templates, which git ignores (they keep their makers' terms), and
# renders them with Jinja, so that TestPublishedTemplates has something to compare with.
# Needs git and a Python with venv.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
into="$root/testdata/tokenizers/templates"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
git clone --quiet --depth 1 --filter=blob:none --sparse https://github.com/ggml-org/llama.cpp "$scratch/llama.cpp"
git -C "$scratch/llama.cpp" sparse-checkout set models/templates
mkdir -p "$into"
cp "$scratch"/llama.cpp/models/templates/*.jinja "$into"
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet jinja2
cd "$root" && "$scratch/venv/bin/python" -m tools.reference.templates "$into"
