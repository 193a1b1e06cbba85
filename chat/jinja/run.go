package jinja

import (
	"slices"
	"strings"
)

// Limits of one rendering, so that hostile templates end soon. Conversations are
// rendered in a thousandth of them.
const (
	maxText     = 16 << 20  // bytes of one string, and of the result
	maxMade     = 32 << 20  // bytes of all values made, and of the result
	maxWork     = 128 << 20 // bytes read and written
	madePerByte = 8         // further bytes that may be made for each byte of the variables
	workPerByte = 256       // further bytes that may be read for each byte of the variables

	stepBytes  = 128 // what a statement, a call or an iteration counts as
	itemBytes  = 16  // what an item of a list counts as
	entryBytes = 64  // what an entry of a dictionary counts as
)

// outcome is how a statement ends.
type outcome int

const (
	goesOn    outcome = iota
	breaks            // it ends the loop around it
	continues         // it ends the iteration
)

// statement is a compiled statement with its line.
type statement struct {
	line int
	do   func(*run) outcome
}

// expression is a compiled expression.
type expression func(*run) any

// run is the state of one rendering.
type run struct {
	scope     *scope
	out       *strings.Builder
	captured  bool // out becomes a value, not the result
	generated []Span
	line      int // of the statement that runs
	depth     int // of captures, and of values inside values
	work      int // bytes that may still be read or written
	made      int // bytes of values that may still be made

	frames  []frame // statements that run, from the template's own to the innermost
	loops   int     // that run
	tracing *tracing
}

// frame is a list of statements of which one runs.
type frame struct {
	list []statement
	at   int
}

// newRun returns a rendering with the given variables.
func newRun(s *scope, variables map[string]any) *run {
	r := &run{scope: s, out: &strings.Builder{}, work: maxWork, made: maxMade}
	for name, v := range variables {
		n := sizeOf(v)
		r.work += workPerByte * n
		r.made += madePerByte * n
		s.set(name, v)
	}
	return r
}

// sizeOf returns how many bytes the strings of a value from JSON have, and its numbers
// and lists count as.
func sizeOf(v any) int {
	n := itemBytes
	switch v := v.(type) {
	case string:
		n += len(v)
	case *List:
		for _, item := range v.Items {
			n += sizeOf(item)
		}
	case *Dict:
		for _, k := range v.Keys {
			n += sizeOf(k) + sizeOf(v.value(k))
		}
	}
	return n
}

// touch counts bytes that are read.
func (r *run) touch(bytes int) {
	if r.work -= bytes; r.work < 0 || bytes < 0 {
		panic(failf("the template takes more than %d steps; does it end?", maxWork/stepBytes))
	}
}

// make counts bytes of a value that is made.
func (r *run) make(bytes int) {
	r.touch(bytes)
	if r.made -= bytes; r.made < 0 || bytes > maxText {
		panic(failf("a value of %d bytes; at most %d are allowed, and %d with all before it", bytes, maxText, maxMade))
	}
}

// list returns a list of the given Python type, "" for list.
func (r *run) list(items []any, view string) *List {
	r.make(itemBytes * len(items))
	return &List{Items: items, view: view}
}

// string returns a string that was made.
func (r *run) string(s string) string {
	r.make(len(s))
	return s
}

// step counts a statement, a call or an iteration.
func (r *run) step() { r.touch(stepBytes) }

// nest counts a level of nesting; the caller takes it back with r.depth--.
func (r *run) nest() {
	r.touch(entryBytes)
	if r.depth++; r.depth > maxDepth {
		panic(failf("values, macros and blocks nested more than %d deep; does one contain itself?", maxDepth))
	}
}

// scope holds variables. Names that it lacks are looked up in outer. It is a list and
// not a map, because a scope has few names and every loop iteration makes one.
type scope struct {
	names []binding
	outer *scope
}

type binding struct {
	name  string
	value any
}

func (s *scope) set(name string, v any) {
	for i := range s.names {
		if s.names[i].name == name {
			s.names[i].value = v
			return
		}
	}
	s.names = append(s.names, binding{name, v})
}

func (s *scope) inner() *scope { return &scope{outer: s} }

// find returns the value of a variable.
func (r *run) find(name string) any {
	for s := r.scope; s != nil; s = s.outer {
		r.touch(len(s.names))
		for i := range s.names {
			if s.names[i].name == name {
				return s.names[i].value
			}
		}
	}
	return undefined{what: "'" + name + "'"}
}

func (r *run) all(list []statement) outcome {
	outer, n := r.line, len(r.frames)
	r.frames = append(r.frames, frame{list: list})
	for i, s := range list {
		r.line, r.frames[n].at = s.line, i
		r.step()
		if how := s.do(r); how != goesOn {
			r.frames = r.frames[:n]
			return how
		}
	}
	r.line, r.frames = outer, r.frames[:n]
	return goesOn
}

func (r *run) write(s string) outcome {
	r.make(len(s))
	if r.out.Len()+len(s) > maxText {
		panic(failf("the text grows beyond %d bytes", maxText))
	}
	r.out.WriteString(s)
	return goesOn
}

// capture runs statements in the given scope and returns what they wrote.
func (r *run) capture(s *scope, body []statement) string {
	r.nest()
	scope, out, captured := r.scope, r.out, r.captured
	r.scope, r.out, r.captured = s, &strings.Builder{}, true
	r.all(body)
	text := r.out.String()
	r.scope, r.out, r.captured = scope, out, captured
	r.depth--
	return text
}

// function is a value that can be called with positional and named arguments.
type function func(r *run, args []any, named *Dict) any

// call calls a value, which must be a function.
func (r *run) call(f any, args []any, named *Dict) any {
	fn, ok := f.(function)
	if u, missing := f.(undefined); missing {
		panic(u.failure())
	}
	if !ok {
		panic(failf("%s cannot be called", typeName(f)))
	}
	r.step()
	for _, a := range args {
		r.touch(shallowSize(a))
	}
	return fn(r, args, named)
}

// shallowSize returns the bytes of a value without those of values inside it.
func shallowSize(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case *List:
		return itemBytes * len(v.Items)
	case *Dict:
		return itemBytes * len(v.Keys)
	}
	return 0
}

// bind matches positional and named arguments with the parameter names of what is
// called.
func bind(what string, args []any, named *Dict, names ...string) map[string]any {
	if len(args) > len(names) {
		panic(failf("%s takes at most %d arguments, %d are given", what, len(names), len(args)))
	}
	given := make(map[string]any, len(names))
	for i, v := range args {
		given[names[i]] = v
	}
	for _, k := range named.Keys {
		name := k.(string)
		if i := slices.Index(names, name); i < 0 || i < len(args) {
			panic(failf("%s takes no argument %q, or has it already", what, name))
		}
		given[name] = named.Values[name]
	}
	return given
}
