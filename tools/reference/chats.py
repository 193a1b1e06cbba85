"""Conversations as transformers writes them with chat templates.

Run with `python -m tools.reference.chats [FOLDER]` from the root of the repository. The
fixtures go to chat/testdata. FOLDER, if given, has real
tokenizers, NAME.json, and tokenizer_config.json files called NAME_config.json, as
tokenizers/fetch.sh leaves them; what they give goes to chat/testdata/real.json and
data/testdata/answers.json, the files themselves stay where they are.
"""

import datetime
import json
import pathlib
import sys

import transformers
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).parents[2]
CHAT = ROOT / "chat" / "testdata"


class Clock(datetime.datetime):
    """A clock that stands still, so that fixtures do not change."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 7, 8, 9)


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place, \"now\" & <later>\nin words",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Straße, Köln 東京"},
                "days": {"type": "array", "items": {"type": "integer"}},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "level": {"type": "number", "default": 1e-05, "maximum": 1.0, "big": 9007199254740993},
            },
            "required": ["place"],
        },
    },
}
NOTHING = {"type": "function", "function": {"name": "nothing", "description": "", "parameters": {"type": "object", "properties": {}}}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": [1, 2], "deep": {"a": None, "b": True}}}}

CASES = {
    "one question": {"messages": [say("user", "Hello?")]},
    "an answer": {"messages": [say("user", "Hello?"), say("assistant", "Hi.")]},
    "system": {"messages": [say("system", "  Be kind.\n"), say("user", "Hello?"), say("assistant", "Hi.")]},
    "turns": {
        "messages": [say("user", "One?"), say("assistant", "1"), say("user", " Two?\n"), say("assistant", "\n 2 \n"), say("user", "Three?"), say("assistant", "3")]
    },
    "odd text": {"messages": [say("user", "{{ messages }} {% if %} <|im_end|> \\n 'a' \"b\" é 東京 🎉"), say("assistant", "`<a&b>`\ttab\r\n")]},
    "tools": {
        "messages": [say("system", "Use them."), say("user", "Rain?"), say("assistant", "", tool_calls=[CALL]), say("tool", "wet"), say("assistant", "Yes.")],
        "tools": [WEATHER, NOTHING],
    },
    "two replies": {
        "messages": [say("user", "Rain?"), say("assistant", "Let me see.", tool_calls=[CALL]), say("tool", "wet"), say("tool", "cold"), say("assistant", "Yes."), say("user", "Ah.")],
        "tools": [WEATHER],
    },
    "thinking": {
        "messages": [say("user", "2+2?"), say("assistant", "<think>\nsum\n</think>\n\n4"), say("user", "3+3?"), say("assistant", "6", reasoning_content="again\n")]
    },
    "no thinking": {"messages": [say("user", "2+2?")], "variables": {"enable_thinking": False}},
    "parts": {"messages": [say("user", [{"type": "text", "text": "Look "}, {"type": "image"}, {"type": "text", "text": "here"}]), say("assistant", "I do.")]},
    "wrong order": {"messages": [say("assistant", "Hi."), say("assistant", "Again."), say("user", "?")]},
    "other roles": {"messages": [say("user", "a"), say("skip", "b"), say("assistant", "c"), say("stop", "d"), say("user", "e")]},
    "date given": {"messages": [say("user", "When?")], "variables": {"date_string": "1 Jan 2000"}},
    "nothing": {"messages": []},
}


def render(template, special, case, prompt):
    """One case, or the message of its error."""
    variables = dict(special, **case.get("variables", {}))
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            [case["messages"]],
            tools=case.get("tools"),
            chat_template=template,
            add_generation_prompt=prompt,
            return_assistant_tokens_mask="generation %}" in template,
            **variables,
        )
    except Exception as e:  # whatever a template does wrong
        return {"error": str(e)}
    out = {"text": texts[0]}
    if spans:
        out["spans"] = [[len(texts[0][:a].encode()), len(texts[0][:b].encode())] for a, b in spans[0]]
    return out


def all_cases(template, special):
    done = []
    for name, case in CASES.items():
        for prompt in (False, True):
            done.append({"case": name, "prompt": prompt, **render(template, special, case, prompt)})
    return done


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


def real(folder):
    """Templates of models, which stay outside the repository."""
    out = {}
    for path in sorted(folder.glob("*_config.json")):
        config = json.loads(path.read_text())
        template = config.get("chat_template")
        if isinstance(template, list):
            template = {t["name"]: t["template"] for t in template}.get("default")
        if template:
            words = {k: v["content"] if isinstance(v, dict) else v for k, v in config.items() if k.endswith("_token")}
            out[path.name.removesuffix("_config.json")] = all_cases(template, {k: v for k, v in words.items() if isinstance(v, str)})
    return out


def masks(folder):
    """Which tokens are answers, by the marks of a template, with real tokenizers."""
    template = (CHAT / "templates" / "generation.jinja").read_text()
    out = {}
    for path in sorted(folder.glob("*.json")):
        if path.name.endswith("_config.json"):
            continue
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
        for name in ("an answer", "system", "turns", "odd text", "thinking"):
            made = tokenizer.apply_chat_template(
                CASES[name]["messages"], chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, bos_token="<s>"
            )
            out.setdefault(path.stem, {})[name] = {"tokens": made["input_ids"], "learned": made["assistant_masks"]}
    return out


def main():
    chat_template_utils.datetime = Clock
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    write(CHAT / "cases.json", CASES)
    ours = {p.stem: all_cases(p.read_text(), special) for p in sorted((CHAT / "templates").glob("*.jinja"))}
    write(CHAT / "rendered.json", ours)
    if len(sys.argv) > 1:
        write(CHAT / "real.json", real(pathlib.Path(sys.argv[1])))
        path = ROOT / "data" / "testdata" / "answers.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(masks(pathlib.Path(sys.argv[1]))) + "\n")


if __name__ == "__main__":
    main()
