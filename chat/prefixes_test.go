package chat

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"spillway/internal/bounded"
)

// allTemplates are the templates of this package, those of package jinja, and those of real
// models that are here.
func allTemplates(t testing.TB) map[string]*Template {
	t.Helper()
	all := map[string]*Template{}
	for _, pattern := range []string{"testdata/templates/*.jinja", "jinja/testdata/templates/*.jinja"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) < 5 {
			t.Fatalf("%d templates, %v", len(paths), err)
		}
		for _, path := range paths {
			tmpl, err := OpenFile(path, "")
			if err != nil {
				t.Fatal(err)
			}
			all[path] = tmpl
		}
	}
	for name, source := range oddTemplates {
		tmpl, err := Parse(name, source)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = tmpl
	}
	for _, tmpl := range all {
		tmpl.SpecialTokens = map[string]string{"bos_token": "<s>", "eos_token": "</s>"}
		tmpl.Now = clock
	}
	return all
}

// oddTemplates look at the conversation as a whole in many ways.
var oddTemplates = map[string]string{
	"last message":   "{% for m in messages %}[{{ m.role }}:{{ m.content }}{% if m == messages[-1] %}!{% endif %}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"length first":   "{{ messages | length }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"length unused":  "{% set n = messages | length %}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"length used":    "{% set n = messages | length %}{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ n if m.role == 'tool' }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"length after":   "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{{ messages | length % 2 }}{% if add_generation_prompt %}[assistant:{% endif %}",
	"loop length":    "{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ loop.length }}]{% endfor %}",
	"loop from end":  "{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ '.' if loop.revindex0 < 2 }}]{% endfor %}",
	"loop last":      "{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ '.' if loop.last }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"next item":      "{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ loop.nextitem.role if loop.nextitem is defined }}]{% endfor %}",
	"previous item":  "{% for m in messages %}[{{ m.role }}{{ loop.previtem.role if loop.previtem }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant{{ messages[-1].role }}:{% endif %}",
	"looks ahead":    "{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ messages[loop.index].role if messages[loop.index] is defined }}]{% endfor %}",
	"looks far":      "{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ messages[loop.index + 2].role if messages[loop.index + 2] is defined }}]{% endfor %}",
	"third":          "{{ messages[2].role }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
	"prompt first":   "{{ 'P' if add_generation_prompt }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
	"prompt within":  "{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ '?' if add_generation_prompt and loop.last }}]{% endfor %}",
	"prompt named":   "{% set p = add_generation_prompt %}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{{ '[assistant:' if p }}",
	"prompt default": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"counted":        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}[{{ m.role }}{{ ns.n }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}{% set ns.n = ns.n + 1 %}[assistant{{ ns.n }}:{% endif %}",
	"counted twice":  "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{{ ns.n }}",
	"found before":   "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.s = m.content %}{% endif %}{% endfor %}{{ ns.s }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"found and left": "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.s = m.content %}{% break %}{% endif %}{% endfor %}{{ ns.s }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"alternates":     "{% set ns = namespace(i=0) %}{% for m in messages %}{% if (m.role == 'user') != (ns.i % 2 == 0) and m.content == 'stop' %}{{ raise_exception('no') }}{% endif %}{% set ns.i = ns.i + 1 %}{% endfor %}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"counts shown":   "{% set ns = namespace(i=0) %}{% for m in messages %}{% set ns.i = ns.i + 1 %}{% endfor %}{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ ns['i'] if m.role == 'tool' }}]{% endfor %}{{ dict(ns) if messages | length > 9 }}{% if add_generation_prompt %}[assistant:{% endif %}",
	"last before":    "{% set ns = namespace(s='') %}{% for m in messages %}{% if loop.last %}{% set ns.s = m.role %}{% endif %}{% endfor %}{{ ns.s }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
	"set in the end": "{% set a = 'x' %}{% for m in messages %}[{{ m.role }}{{ a }}:{{ m.content }}]{% endfor %}{% set a = 'y' %}{{ a }}{% if add_generation_prompt %}[assistantx:{% endif %}",
	"inner loop":     "{% for m in messages %}[{{ m.role }}:{% for c in m.content %}{{ c }}{{ loop.length if loop.last and false }}{% endfor %}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"outer loop":     "{% for i in [1] %}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"macro":          "{% macro all() %}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% endmacro %}{{ all() }}{% if add_generation_prompt %}[assistant:{% endif %}",
	"macro of one":   "{% macro one(m) %}[{{ m.role }}:{{ m.content }}{{ messages | length }}]{% endmacro %}{% for m in messages %}{{ one(m) }}{% endfor %}",
	"in an if":       "{% if messages %}A{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}B{% if add_generation_prompt %}[assistant:{% endif %}{% endif %}C",
	"from a number":  "{% for m in messages[1:] %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"two names":      "{% set a, rest = 1, messages[1:] %}{{ messages[0].content }}{% for m in rest %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"in a list":      "{% set l = [messages, 1] %}{{ l[0] | length }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
	"generator":      "{% set g = messages | selectattr('role', 'equalto', 'user') %}{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ g | list | length if m.role == 'tool' }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"once":           "{% set g = [1, 2] | reverse %}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{{ g | list }}{% if add_generation_prompt %}[assistant:{% endif %}",
	"filtered":       "{% for m in messages if m.content %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"alias":          "{% set all = messages %}{% set more = all %}{% for m in more %}[{{ m.role }}:{{ m.content }}]{% endfor %}{{ more[0].role }}{% if add_generation_prompt %}[assistant:{% endif %}",
	"leaves":         "{% for m in messages %}{% if m.content == 'stop' %}{% break %}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
	"refuses":        "{% for m in messages %}{% if loop.last and m.role == 'system' %}{{ raise_exception('no') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
}

// randomConversation has turns of all roles in any order, mostly the usual one.
func randomConversation(random *rand.Rand, turns int) Conversation {
	var c Conversation
	words := []string{"One?", "1", "été 漢字", "", "stop", "a\nb", "<think>so</think>x", "</s>"}
	usual := []string{"user", "assistant"}
	for i := range turns {
		role := usual[i%2]
		switch random.IntN(12) {
		case 0:
			role = []string{"system", "tool", "user", "assistant"}[random.IntN(4)]
		case 1:
			if i == 0 {
				role = "system"
			}
		}
		m := NewMessage(role, words[random.IntN(len(words))])
		if random.IntN(8) == 0 {
			m.fields.Set("reasoning_content", "because")
		}
		m.ExcludeFromLoss = random.IntN(10) == 0
		c.Messages = append(c.Messages, m)
	}
	return c
}

// All beginnings in one rendering give what rendering each by itself gives, for every
// template and conversation.
func TestPrefixesAreAsRenderedByOne(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	conversations := []Conversation{}
	for _, c := range cases(t) {
		conversations = append(conversations, c)
	}
	for i := range 40 {
		conversations = append(conversations, randomConversation(random, 1+i%15))
	}
	inOne := 0
	for name, tmpl := range allTemplates(t) {
		if tmpl.jinja.Generation() {
			continue
		}
		known, all := 0, 0
		for _, c := range conversations {
			k, n := samePrefixes(t, name, tmpl, c)
			known, all = known+k, all+n
			fast, errFast := tmpl.compareAnswers(c)
			slow, errSlow := tmpl.compareByOne(c)
			if (errFast == nil) != (errSlow == nil) || errFast == nil && !reflect.DeepEqual(fast, slow) {
				t.Errorf("%s: %+v\n got %+v, %v\nwant %+v, %v", name, c, fast, errFast, slow, errSlow)
			}
		}
		if inOne++; known == 0 {
			inOne--
		}
		t.Logf("%s: %d of %d in one rendering", name, known, all)
	}
	if inOne < 30 {
		t.Errorf("only %d templates are rendered at once", inOne)
	}
}

// samePrefixes compares the beginnings of a conversation, and counts how many were rendered
// at once and how many can be rendered.
func samePrefixes(t *testing.T, name string, tmpl *Template, c Conversation) (known, all int) {
	t.Helper()
	whole, prefixes := tmpl.prefixes(c)
	if want, err := tmpl.Render(c, false); prefixes != nil && (err != nil || whole != want) {
		t.Errorf("%s: the whole is %q, want %q, %v", name, whole, want, err)
	}
	for n := range len(c.Messages) + 1 {
		for _, prompt := range []bool{false, true} {
			want, err := tmpl.render(c, n, prompt)
			if err == nil {
				all++
			}
			if prefixes == nil || !prefixes[n].Known {
				continue
			}
			known++
			p := prefixes[n]
			got := whole[:p.Common] + map[bool]string{false: p.Plain, true: p.Prompt}[prompt]
			if err != nil || got != want.Text {
				t.Fatalf("%s: %d messages of %d, prompt %v:\n got %q\nwant %q, %v", name, n, len(c.Messages), prompt, got, want.Text, err)
			}
		}
	}
	return known, all
}

// longConversation is a usual one of many turns.
func longConversation(turns int) Conversation {
	var c Conversation
	for i := range turns {
		c.Messages = append(c.Messages, NewMessage([]string{"user", "assistant"}[i%2], fmt.Sprintf("Turn %d says something of usual length, and then it ends.", i)))
	}
	return c
}

// Ten times as many turns take about ten times as long.
func TestLongConversationsTakeTimeInProportion(t *testing.T) {
	for _, name := range []string{"chatml", "headers", "brackets"} {
		tmpl := ours(t, name)
		took := func(turns int) time.Duration {
			c := longConversation(turns)
			best := time.Hour
			for range 5 {
				best = min(best, bounded.Measure(func() {
					texts, err := tmpl.Texts(c)
					if err != nil || len(texts) != 1 || len(texts[0].Answers) != turns/2 {
						t.Errorf("%s: %d texts, %v", name, len(texts), err)
					}
				}).Time)
			}
			return best
		}
		few, many := took(300), took(3000)
		if t.Logf("%s: 300 turns %v, 3000 turns %v", name, few, many); many > 40*few {
			t.Errorf("%s: 300 turns take %v, 3000 turns %v", name, few, many)
		}
	}
}

// FuzzTexts: whatever a template does, all beginnings in one rendering are as rendered by one.
func FuzzTexts(f *testing.F) {
	for _, pattern := range []string{"testdata/templates/*.jinja", "jinja/testdata/templates/*.jinja"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for i, path := range paths {
			source, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(source), uint64(i))
		}
	}
	for _, source := range oddTemplates {
		f.Add(source, uint64(3))
	}
	f.Fuzz(func(t *testing.T, source string, seed uint64) {
		if strings.Count(source, "range") > 2 || len(source) > 10_000 {
			return // bombs are for another target
		}
		tmpl, err := Parse("fuzzed", source)
		if err != nil || tmpl.jinja.Generation() {
			return
		}
		tmpl.Now = clock
		samePrefixes(t, "fuzzed", tmpl, randomConversation(rand.New(rand.NewPCG(seed, 1)), 1+int(seed%6)))
	})
}
