package jinja

import (
	"slices"
	"strings"
	"time"
)

// A template is run once for all beginnings of a list, such as those of a conversation.
//
// Where it loops over the list, it is forked before every item: from there it runs on as if
// the item were the last, to its end, and what it writes is recorded. Then everything is as
// before the fork, and the loop goes on. So the whole costs a few times what one rendering
// costs, where rendering each beginning by itself costs its square.
//
// That is sound only as long as nothing before a fork depends on items that the fork does
// not have, or on how many there are. A use of the list that may is recorded (reveal), and
// then the answer is that the template has to be rendered for each beginning by itself.

// Prefix is what a template writes for the beginning of a list: the first Common bytes of
// what it writes for the whole list, and then other ones.
type Prefix struct {
	Known  bool // if not, it has to be rendered by itself
	Common int
	Plain  string // with the flag unset
	Prompt string // with the flag set
}

// RenderPrefixes renders the template with the variables, of which the given one is a list
// and flag is false, and for every beginning of the list with flag unset and set. Prefix k is
// of the first k items. The answer is nil if the template does not allow that.
func (t *Template) RenderPrefixes(variables map[string]any, now time.Time, list, flag string) (whole Rendered, prefixes []Prefix) {
	for scans := range maxScans {
		whole, prefixes, again := t.renderPrefixes(variables, now, list, flag, scans)
		if !again {
			return whole, prefixes
		}
	}
	return Rendered{}, nil
}

// maxScans is how many loops over the list may come before the one that writes.
const maxScans = 3

// renderPrefixes is RenderPrefixes with a given number of loops that only look for something.
// again says that one more of them may help.
func (t *Template) renderPrefixes(variables map[string]any, now time.Time, list, flag string, scans int) (_ Rendered, _ []Prefix, again bool) {
	items := variables[list].(*List)
	tr := &tracing{scans: scans, prefixes: make([]Prefix, len(items.Items)+1)}
	r := newRun(globals(now).inner(), variables)
	r.scope.set(list, &List{Items: items.Items, growing: true})
	r.scope.set(flag, flagValue{})
	r.tracing, r.work, r.made = tr, tracedWork*r.work, tracedWork*r.made
	var err error
	func() {
		defer recoverError(&err, t.name, &r.line)
		r.all(t.body)
	}()
	if err != nil {
		return Rendered{}, nil, tr.again
	}
	return Rendered{Text: r.out.String(), Generated: r.generated}, tr.prefixes, false
}

// tracedWork is how many times the work of one rendering a traced one may take.
const tracedWork = 4

// tracing is the state of a rendering that is forked.
type tracing struct {
	prefixes []Prefix
	scans    int  // loops over the list before the one that is forked
	forked   bool // that loop has been reached
	again    bool // forks loop over the list, so the template should be forked later
	revealed bool // what is evaluated depends on all items or on the flag
	seen     int  // items that were looked at, from the first
	fork     *fork

	// In a loop that is not forked:
	scanning bool
	item     int                 // the current one
	changes  map[attributeOf]int // the items that changed attributes last
	drained  bool                // a generator was read, or an attribute added
}

// attributeOf is an attribute of a namespace.
type attributeOf struct {
	of   *Dict
	name string
}

// fork is a run to the end of the template from the middle of a loop.
type fork struct {
	items int  // that it has
	flag  bool // the value of the flag
	undo  []func()
}

// flagValue is the value of the flag in a traced rendering.
type flagValue struct{}

// hidden is the value of a variable that depends on all items or on the flag.
type hidden struct{ value any }

// main reports whether the run is traced and not in a fork.
func (r *run) main() bool { return r.tracing != nil && r.tracing.fork == nil }

// reveal notes that what is evaluated depends on all items or on the flag.
func (r *run) reveal() {
	if r.main() {
		r.tracing.revealed = true
	}
}

// abort ends a traced rendering, which has to be done without tracing.
func abort() { panic(failf("it has to be rendered for each beginning by itself")) }

// growing returns a value as the list whose beginnings are rendered, if it is that.
func (r *run) growing(v any) (*List, bool) {
	l, ok := v.(*List)
	return l, ok && l.growing && r.main()
}

// see notes that item i of a growing list is looked at.
func (r *run) see(l *List, i int) { r.tracing.seen = max(r.tracing.seen, l.offset+i+1) }

// peek returns the value of a variable as a fork has it, for a use that notes itself what it
// looks at.
func (r *run) peek(name string) any {
	v := r.find(name)
	if r.tracing == nil {
		return v
	}
	f := r.tracing.fork
	switch w := v.(type) {
	case hidden:
		return r.entry(w)
	case *List:
		if w.growing && f != nil {
			return &List{Items: w.Items[:min(max(f.items-w.offset, 0), len(w.Items))], again: true}
		}
	case flagValue:
		if f != nil {
			return f.flag
		}
	}
	return v
}

// use returns the value of a variable for any use.
func (r *run) use(name string) any {
	v := r.peek(name)
	if _, ok := v.(flagValue); ok {
		r.reveal()
		return false
	}
	if _, ok := r.growing(v); ok {
		r.reveal()
	}
	return v
}

// assigned evaluates the value of a variable. If it depends on all items, so does whatever
// reads the variable later, but nothing else.
func (r *run) assigned(value expression) any {
	if !r.main() || r.tracing.revealed {
		return value(r)
	}
	v := value(r)
	if r.tracing.revealed {
		r.tracing.revealed = false
		return hidden{v}
	}
	return v
}

// setAttribute sets an attribute of a namespace; the end of a fork takes it back.
func (r *run) setAttribute(d *Dict, name string, v any) {
	if tr := r.tracing; tr != nil {
		old, had := d.Values[name]
		if _, ok := v.(hidden); ok || r.main() && tr.revealed {
			abort()
		}
		if tr.scanning && !sameScalar(old, v) {
			tr.changes[attributeOf{d, name}] = tr.item
			tr.drained = tr.drained || !had
		}
		if f := tr.fork; f != nil {
			keys := d.Keys
			f.undo = append(f.undo, func() {
				if d.Keys = keys; had {
					d.Values[name] = old
				} else {
					delete(d.Values, name)
				}
			})
		}
	}
	d.Set(name, v)
}

// sameScalar reports whether two values are the same text, number or truth.
func sameScalar(a, b any) bool {
	switch a.(type) {
	case nil, bool, int64, string:
		return a == b
	}
	return false
}

// drain empties a generator that is read; the end of a fork fills it again.
func (r *run) drain(l *List) {
	if tr := r.tracing; tr != nil {
		tr.drained = true
		if items := l.Items; tr.fork != nil {
			tr.fork.undo = append(tr.fork.undo, func() { l.Items = items })
		}
	}
	l.Items = nil
}

// traced runs a loop over the growing list, outside forks.
func (f forLoop) traced(r *run, l *List) outcome {
	tr := r.tracing
	switch {
	case tr.forked:
		return f.iterate(r, l.Items, nil) // what comes after the loop with the forks
	case f.condition != nil || r.captured || r.loops > 0 || tr.revealed:
		abort() // it cannot be forked
	case tr.scans > 0:
		tr.scans--
		return f.scan(r, l)
	}
	tr.forked = true
	outer := r.scope
	return f.iterate(r, l.Items, func(i int) *run {
		r.fork(f, outer, l, i, false)
		r.fork(f, outer, l, i, true)
		return r
	})
}

// scan runs a loop that looks for something or counts, before the one that writes. From the
// item on after which it changes nothing, it has the same effect with and without further
// items. What it changes for ever, such as a counter, is hidden from what follows.
func (f forLoop) scan(r *run, l *List) outcome {
	tr, written := r.tracing, r.out.Len()
	tr.scanning, tr.changes, tr.drained, tr.item = true, map[attributeOf]int{}, false, 0
	end := func() {
		if tr.drained || r.out.Len() != written {
			r.see(l, tr.item)
		}
		tr.drained, written = false, r.out.Len()
	}
	how := f.iterate(r, l.Items, func(i int) *run {
		end()
		tr.item = i
		return r
	})
	end()
	tr.scanning = false
	if tr.item < len(l.Items)-1 {
		r.see(l, tr.item) // it ended the loop
	}
	for a, i := range tr.changes {
		if i < fewItems {
			r.see(l, i)
		} else {
			a.of.Values[a.name] = hidden{a.of.Values[a.name]}
		}
	}
	return how
}

// fewItems is a number of items whose beginnings are soon rendered one by one.
const fewItems = 8

// shown is a value that may not be hidden.
func shown(v any) any {
	if _, ok := v.(hidden); ok {
		abort()
	}
	return v
}

// entry returns a value that may be hidden.
func (r *run) entry(v any) any {
	h, ok := v.(hidden)
	if !ok {
		return v
	}
	if r.tracing.fork != nil {
		abort()
	}
	r.reveal()
	return h.value
}

// fork runs to the end of the template as if item i of the list were the last, and goes back.
func (r *run) fork(f forLoop, outer *scope, l *List, i int, flag bool) {
	tr, k := r.tracing, l.offset+i+1
	if tr.revealed {
		abort()
	}
	if tr.seen > k {
		return
	}
	before, names := *r, slices.Clone(outer.names)
	tr.fork = &fork{items: k, flag: flag}
	r.out = &strings.Builder{}
	f.one(r, outer, loopState{list: l.Items[:i+1], i: i})
	r.scope = outer
	for _, rest := range slices.Backward(before.frames) {
		r.all(rest.list[rest.at+1:])
	}
	p := &tr.prefixes[k]
	p.Known, p.Common = true, before.out.Len()
	if flag {
		p.Prompt = r.out.String()
	} else {
		p.Plain = r.out.String()
	}
	for _, undo := range slices.Backward(tr.fork.undo) {
		undo()
	}
	before.work, before.made = r.work, r.made
	*r = before
	outer.names, tr.fork = names, nil
}

// growingName compiles a variable, or the rest of one from an item on, that stands alone: it
// is looped over or gets another name, and may be the growing list.
func (p *parser) growingName() expression {
	at := func(i int) token { return p.tokens[min(p.at+i, len(p.tokens)-1)] }
	is := func(i int, text string) bool { return at(i).kind == operatorToken && at(i).text == text }
	ends := func(i int) bool { return at(i).kind == endStatement || is(i, ",") }
	if at(0).kind != nameToken || constants[at(0).text] != nil {
		return nil
	}
	name := at(0).text
	switch {
	case ends(1):
		p.at++
		return func(r *run) any { return r.peekFlag(name) }
	case is(1, "[") && at(2).kind == integerToken && is(3, ":") && is(4, "]") && ends(5):
		p.at += 2
		from := p.primary()
		p.at += 2
		return func(r *run) any {
			v := r.peek(name)
			if l, ok := r.growing(v); ok {
				n := int(min(from(r).(int64), int64(len(l.Items))))
				return &List{Items: l.Items[n:], growing: true, offset: l.offset + n}
			}
			if l, ok := v.(*List); ok && l.again {
				n := int(min(from(r).(int64), int64(len(l.Items))))
				return &List{Items: l.Items[n:], again: true}
			}
			return r.slice(r.use(name), from(r), nil, nil)
		}
	}
	return nil
}

// peekFlag is peek, except that the flag gets no other name.
func (r *run) peekFlag(name string) any {
	if v := r.peek(name); v != any(flagValue{}) {
		return v
	}
	return r.use(name)
}

// seenName compiles a variable that may be the growing list in a place where forks see the
// same of it: before a subscript, which notes itself what it looks at, where only its truth
// counts, or where it is asked whether it is defined. The name was read last.
func (p *parser) seenName(name string) expression {
	before, next := p.tokens[max(p.at-2, 0)], p.peek()
	word := func(t token, words ...string) bool { return t.kind == nameToken && slices.Contains(words, t.text) }
	after := p.tokens[min(p.at+1, len(p.tokens)-1)]
	if word(after, "not") {
		after = p.tokens[min(p.at+2, len(p.tokens)-1)]
	}
	switch {
	case p.is("["), p.is("is") && word(after, "defined"):
		return func(r *run) any { return r.peek(name) }
	case word(before, "if", "elif", "not", "and", "or") && (next.kind == endStatement || word(next, "and", "or")):
		return func(r *run) any {
			v := r.peekFlag(name)
			if l, ok := r.growing(v); ok && len(l.Items) > 0 {
				r.see(l, 0)
			}
			return v
		}
	}
	return func(r *run) any { return r.use(name) }
}
