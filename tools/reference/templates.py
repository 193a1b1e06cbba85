"""Chat templates and the language they are written in, as Jinja renders them.

Run with `python -m tools.reference.templates [FOLDER]` from the root of the repository. It needs jinja2 alone and
sets it up as transformers does. It writes in chat/jinja/testdata:

- language/*.txt again: each case is a template, then a line with what it gave, "=> " and a JSON string, or "!! " and
  an error. Cases are written by hand; what they give is written here.
- rendered.json: the templates of templates/*.jinja with all conversations of conversations.json.

With FOLDER, a place with templates of published models (*.jinja), it renders those into FOLDER/rendered.json. They
keep their makers' terms, so they and what they give stay outside the repository.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

TESTDATA = pathlib.Path(__file__).parents[2] / "chat" / "jinja" / "testdata"
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9)


class Generation(jinja2.ext.Extension):
    """The block {% generation %} of transformers, which only marks its text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        return caller()


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    """What transformers renders templates in: utils/chat_template_utils.py."""
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    env.globals["dict"] = Dict()
    return env


ENVIRONMENT = environment()


def render(source, variables):
    """The text, or the error."""
    try:
        return {"text": ENVIRONMENT.from_string(source).render(**variables)}
    except Exception as e:  # whatever a template does wrong
        return {"error": f"{type(e).__name__}: {e}".splitlines()[0]}


def write_language(path, variables):
    """Render the cases of a file again. Its head, up to the first empty line, is a comment."""
    head, _, rest = path.read_text().partition("\n\n")
    out, source, count = [head, ""], [], 0
    for line in rest.splitlines():
        if not line.startswith(("=> ", "!! ")):
            source.append(line)
            continue
        given = render("\n".join(source), variables)
        result = "=> " + json.dumps(given["text"], ensure_ascii=False) if "text" in given else "!! " + given["error"]
        out += [*source, result]
        source, count = [], count + 1
    if any(source):
        raise SystemExit(f"{path}: the last case has no line with =>")
    path.write_text("\n".join(out) + "\n")
    return count


def write_rendered(folder, conversations):
    """All conversations with each template of a folder, without and with a prompt for an answer."""
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    done = {}
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text()
        for name, variables in conversations.items():
            for prompt in (False, True):
                given = render(source, {"tools": None, "documents": None, **special, **variables, "add_generation_prompt": prompt})
                done.setdefault(path.stem, []).append({"conversation": name, "prompt": prompt, **given})
    return done


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


def main():
    conversations = json.loads((TESTDATA / "conversations.json").read_text())
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
        write(folder / "rendered.json", write_rendered(folder, conversations))
        return
    variables = json.loads((TESTDATA / "variables.json").read_text())
    for path in sorted((TESTDATA / "language").glob("*.txt")):
        print(f"{path.name}: {write_language(path, variables)} cases")
    write(TESTDATA / "rendered.json", write_rendered(TESTDATA / "templates", conversations))


if __name__ == "__main__":
    main()
