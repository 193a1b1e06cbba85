package jinja

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/bounded"
)

// clock is what the fixtures were made at.
var clock = time.Date(2026, 3, 5, 7, 8, 9, 0, time.UTC)

// variablesOf are the entries of an object.
func variablesOf(v any) map[string]any {
	d := v.(*Dict)
	all := map[string]any{}
	for _, name := range d.Names() {
		all[name] = d.Values[name]
	}
	return all
}

func render(source string, variables map[string]any) (Rendered, error) {
	t, err := Compile("test", source)
	if err != nil {
		return Rendered{}, err
	}
	return t.Render(variables, clock)
}

// Errors name the template and the line where the mistake is.
func TestErrorsNameTheLine(t *testing.T) {
	for source, want := range map[string]string{
		"a\nb\n{{ x | nofilter }}":    `test:3: there is no filter "nofilter"`,
		"{% if x %}\n\n{% nothing %}": `test:3: there is no statement "nothing"`,
		"a\n{% if x %}\nb":            "test:3: the template ends where endif is missing",
		"a\n{{ 'b }}":                 "test:2: a string that does not end",
		"a\n\n{{ b":                   "test:3: a tag that does not end; write }} after it",
		"{# x":                        "test:1: a comment that does not end",
		"{%- for x in [1] %}\n{{ x.y.z }}{% endfor %}":            "test:2: 'y' of int is undefined",
		"{% macro m() %}\n\n{{ 1 / 0 }}{% endmacro %}\n{{ m() }}": "test:3: division by zero",
		"\n{{ raise_exception('no ' ~ 1) }}":                      "test:2: the template refuses this: no 1",
		"\n\n{{ a b }}":                                           `test:3: }} is missing before "b"`,
		"{{ 1 +\n\n }}":                                           `test:3: an expression is missing before "}}"`,
		"{% for x in y recursive %}{% endfor %}":                  "recursive loops are not supported",
		"{% set x.y = 1 %}":                                       "x is no namespace",
	} {
		if _, err := render(source, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
	_, err := render("{{ raise_exception('no') }}", nil)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Message != "no" {
		t.Errorf("%v is not what the template said", err)
	}
}

// Whatever a template does, it ends with an error and without taking the process along.
func TestHostileTemplates(t *testing.T) {
	for name, source := range map[string]string{
		"endless macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"long range":    "{{ range(10**12) | list }}",
		"long loops":    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
		"long string":   "{{ 'x' * 10**12 }}",
		"doubling":      "{% set ns = namespace(s='x' * 1000) %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
		"replacing":     "{% set x = 'a' * 100000 %}{{ x.replace('a', x) }}",
		"joining":       "{% set x = 'a' * 100000 %}{{ x.join(x) }}",
		"long text":     "{% set x = 'a' * 1000000 %}{% for i in range(999) %}{{ x }}{% endfor %}",
		"deep brackets": "{{ " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000) + " }}",
		"deep lists":    "{{ " + strings.Repeat("[", 100_000),
		"deep blocks":   strings.Repeat("{% if 1 %}", 100_000),
		"deep nots":     "{{ " + strings.Repeat("not ", 100_000) + "1 }}",
		"many elifs":    "{% if 0 %}" + strings.Repeat("{% elif 0 %}", 80_000) + "{% endif %}{{ 1/0 }}",
		"huge":          strings.Repeat("x", maxSource+1),
		"minuses":       "{{ " + strings.Repeat("-", 1_000_000) + "1 }}{{ 1/0 }}",
		"sums":          "{{ 1" + strings.Repeat("+1", 400_000) + " }}{{ 1/0 }}",
		"attributes":    "{{ x" + strings.Repeat(".a", 400_000) + " }}",
		"filters":       "{{ 1" + strings.Repeat("|e", 400_000) + " }}{{ 1/0 }}",
		"ifs":           "{{ 1" + strings.Repeat(" if 1", 100_000) + " }}{{ 1/0 }}",
		"strings":       "{{ " + strings.Repeat("'a'", 300_000) + " }}{{ 1/0 }}",
		"arguments":     "{{ dict(" + manyNames(100_000) + ") }}{{ 1/0 }}",
		"names":         "{% macro m(" + strings.ReplaceAll(manyNames(100_000), "=1", "") + ") %}{% endmacro %}",
		"raw":           "{% raw %}" + strings.Repeat("{%", 400_000),
		"raws":          strings.Repeat("{% raw %}", 100_000),

		"itself printed":  "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
		"itself as JSON":  "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a | tojson }}",
		"itself compared": "{% set a, b = namespace(), namespace() %}{% set a.x = [a] %}{% set b.x = [b] %}{% set a.x, b.x = 1, 1 %}",
		"lists of itself": "{% set a, b = namespace(), namespace() %}{% set a.l = [a] %}{% set b.l = [a.l] %}{{ {'x': a} == {'x': b} }}{{ a }}",
		"doubled lists":   doubled + "{{ ns.a }}",
		"doubled as JSON": doubled + "{{ ns.a | tojson }}",
		"doubled equal":   doubled + strings.ReplaceAll(doubled, "ns", "ms") + "{{ ns.a == ms.a }}",
		"doubled in":      doubled + strings.ReplaceAll(doubled, "ns", "ms") + "{{ ns.a in [ms.a] }}",
		"doubled order":   doubled + strings.ReplaceAll(doubled, "ns", "ms") + "{{ ns.a < ms.a }}",
		"doubled joined":  doubled + "{{ ns.a | join(',') }}",
		"doubled added":   "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",

		"searching":      long + "{% for i in range(99999) %}{{ 'y' in x }}{% endfor %}",
		"counting":       long + "{% for i in range(99999) %}{{ x.count('y') }}{% endfor %}",
		"measuring":      long + "{% for i in range(99999) %}{{ x | length }}{% endfor %}",
		"comparing":      long + "{% set y = x ~ '' %}{% for i in range(99999) %}{{ x == y }}{% endfor %}",
		"indexing":       long + "{% for i in range(99999) %}{{ x[-1] }}{% endfor %}",
		"slicing":        long + "{% for i in range(99999) %}{{ x[1:] | length }}{% endfor %}",
		"stripping":      "{% set x = 'é' * 1000000 %}{{ x.strip(x ~ 'y') }}{% for i in range(99999) %}{{ x.strip('y') | length }}{% endfor %}",
		"testing":        long + "{% for i in range(99999) %}{{ x is lower }}{% endfor %}",
		"splitting":      long + "{{ x.split('x') | length }}",
		"splitting back": "{% set x = 'a ' * 400000 %}{{ x.rsplit() | length }}{{ x.rsplit('a') | length }}{{ 1/0 }}",
		"indenting":      "{% set x = 'a' * 1000000 %}{{ ('\\n' * 1000000) | indent(x, blank=true) }}",
		"formatting":     long + "{{ '{}{}{}{}{}{}'.format(x, x, x, x, x, x) }}",
		"percents":       long + "{{ '%s%s%s%s%s%s' % (x, x, x, x, x, x) }}",
		"wide JSON":      "{% set x = 'a' * 1000000 %}{{ [[[[1], 2], 3], 4] | tojson(indent=x) }}{{ [1] * 999 | tojson(separators=(x, x)) }}",
		"escaping":       long + "{{ ('&' * 8000000) | e }}",
		"many names":     manySets(2000) + "{% for i in range(99999) %}{% for j in range(99) %}{{ v0 }}{% endfor %}{% endfor %}",
		"many selected":  "{% for i in range(99999) %}{{ range(99999) | select('odd') | list | length }}{% endfor %}",
		"many strings":   "{% set ns = namespace(l=[]) %}{% for i in range(64) %}{% set ns.l = ns.l + ['x' * 4000000 ~ i] %}{% endfor %}",
	} {
		t.Run(name, func(t *testing.T) {
			bounded.Check(t, len(source), func() {
				if got, err := render(source, nil); err == nil {
					t.Errorf("it gives %d bytes", len(got.Text))
				}
			})
		})
	}
}

const (
	// doubled is a list whose items are one list twice, and so on, sixty deep.
	doubled = "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"
	// long is a string of nearly the length that is allowed.
	long = "{% set x = 'x' * 16000000 %}"
)

// manyNames are named arguments.
func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d=1,", i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// manySets set variables.
func manySets(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{%% set v%d = 1 %%}", i)
	}
	return b.String()
}

// Values a template is given are the same after it.
func TestTemplatesChangeNothing(t *testing.T) {
	raw := `{"l":[1,{"a":2}],"d":{"k":"v"}}`
	v, err := FromJSON([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := render("{% set l = l + [2] %}{% set d = dict(d, x=1) %}{{ l | sort(attribute='a', reverse=true) if no }}{{ l | reverse | list }}", variablesOf(v)); err != nil {
		t.Fatal(err)
	}
	after, err := render("{{ v | tojson(separators=[',', ':']) }}", map[string]any{"v": v})
	if err != nil || after.Text != raw {
		t.Errorf("%v, %v", after, err)
	}
	for _, source := range []string{"{% set d.k = 1 %}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('k') }}"} {
		if _, err := render(source, variablesOf(v)); err == nil {
			t.Errorf("%s is allowed", source)
		}
	}
}

func TestGenerationSpans(t *testing.T) {
	got, err := render("a{% generation %}é{{ 1 }}{% endgeneration %}b{% generation %}{% endgeneration %}", nil)
	if err != nil || got.Text != "aé1b" || len(got.Generated) != 2 || got.Generated[0] != (Span{1, 4}) || got.Generated[1] != (Span{5, 5}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := render("{% set x %}{% generation %}{% endgeneration %}{% endset %}", nil); err == nil {
		t.Error("a span of a value that may never be printed")
	}
}

func TestJSON(t *testing.T) {
	for raw, ok := range map[string]bool{
		`{"b":1,"a":[null,true,1.5,"x"],"n":-9223372036854775808}`: true,
		`1e400`: false, `123456789012345678901`: false, `[1] 2`: false, `{"a":}`: false, ``: false,
		strings.Repeat("[", 200) + strings.Repeat("]", 200): false,
	} {
		if v, err := FromJSON([]byte(raw)); (err == nil) != ok {
			t.Errorf("%s: %v, %v", raw, v, err)
		}
	}
}

// Whatever the source, compiling and rendering end soon, with an error or a text.
func FuzzTemplate(f *testing.F) {
	for _, path := range languageFiles(f) {
		for _, c := range languageCases(f, path) {
			f.Add(c.source)
		}
	}
	templates, err := filepath.Glob("testdata/templates/*.jinja")
	if err != nil || len(templates) == 0 {
		f.Fatalf("%d templates, %v", len(templates), err)
	}
	for _, path := range templates {
		source, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(source))
	}
	for _, bomb := range []string{
		doubled + "{{ ns.a }}", doubled + "{{ ns.a == [ns.a] }}", long + "{% for i in range(99999) %}{{ 'y' in x }}{% endfor %}",
		"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "{% set x = 'a' * 100000 %}{{ x.replace('a', x) }}{{ x | indent(x) }}",
	} {
		f.Add(bomb)
	}
	variables := conversations(f)["two calls"]
	maps.Copy(variables, languageVariables(f))
	size := 0
	for _, v := range variables {
		size += sizeOf(v)
	}
	f.Fuzz(func(t *testing.T, source string) {
		bounded.Check(t, len(source)+size, func() {
			if got, err := render(source, variables); err == nil && len(got.Text) > maxText {
				t.Errorf("%d bytes", len(got.Text))
			}
		})
	})
}
