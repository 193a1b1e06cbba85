package jinja

import "slices"

// forLoop is {% for names in list if condition %} body {% else %} otherwise.
type forLoop struct {
	assign          func(*run, any)
	list            expression
	condition       expression // nil for none
	body, otherwise []statement
}

func (p *parser) loop() func(*run) outcome {
	var f forLoop
	if p.is("loop") {
		panic(p.before("loop is a reserved name and cannot be the variable"))
	}
	f.assign = p.target()
	defer p.setBranching(false)()
	p.expect("in")
	if f.list = p.growingName(); f.list == nil {
		f.list = p.orExpression()
	}
	if p.accept("if") {
		f.condition = p.expression()
	}
	if p.is("recursive") {
		panic(p.before("recursive loops are not supported: write a macro"))
	}
	p.endTag()
	p.loops++
	body, end := p.until("else", "endfor")
	p.loops--
	f.body = body
	if end == "else" {
		f.otherwise = p.block("endfor")
	} else {
		p.endTag()
	}
	return f.run
}

func (f forLoop) run(r *run) outcome {
	v := f.list(r)
	if l, ok := r.growing(v); ok {
		return f.traced(r, l)
	}
	if l, ok := v.(*List); ok && l.again {
		r.tracing.again = true
		abort()
	}
	list := f.selected(r, r.items(v))
	if len(list) == 0 {
		return r.all(f.otherwise)
	}
	return f.iterate(r, list, nil)
}

// iterate runs the body for every item. It calls before, if that is not nil, before each of
// them; the loop reveals to the run it returns what it says of all items.
func (f forLoop) iterate(r *run, list []any, before func(i int) *run) outcome {
	outer := r.scope
	for i := range list {
		state := loopState{list: list, i: i}
		if before != nil {
			state.seen = before(i)
		}
		if f.one(r, outer, state) == breaks {
			break
		}
	}
	r.scope = outer
	return goesOn
}

// one runs the body for an item.
func (f forLoop) one(r *run, outer *scope, state loopState) outcome {
	r.step()
	r.scope = outer.inner()
	r.scope.set("loop", state)
	f.assign(r, state.list[state.i])
	r.loops++
	how := r.all(f.body)
	r.loops--
	return how
}

// selected returns the items for which the condition holds.
func (f forLoop) selected(r *run, list []any) []any {
	if f.condition == nil {
		return list
	}
	outer := r.scope
	var selected []any
	for _, item := range list {
		r.step()
		r.scope = outer.inner()
		f.assign(r, item)
		if truth(f.condition(r)) {
			selected = append(selected, item)
		}
	}
	r.scope = outer
	return selected
}

// ofAllItems are the attributes that depend on how many items there are, and ofTheNext those
// that depend on whether there is one more.
var ofAllItems, ofTheNext = []string{"revindex", "revindex0", "length"}, []string{"last", "nextitem"}

// loopState is the variable loop while item i of the list is current.
type loopState struct {
	list []any
	i    int
	seen *run // that the growing list is looped over in; nil for other lists
}

func (l loopState) attribute(name string) any {
	n, at := int64(len(l.list)), int64(l.i)
	if l.seen != nil && (slices.Contains(ofAllItems, name) || l.seen.tracing.scanning && slices.Contains(ofTheNext, name)) {
		l.seen.reveal()
	}
	switch name {
	case "index":
		return at + 1
	case "index0":
		return at
	case "revindex":
		return n - at
	case "revindex0":
		return n - at - 1
	case "first":
		return at == 0
	case "last":
		return at == n-1
	case "length":
		return n
	case "depth", "depth0": // always 1 and 0: there are no recursive loops
		return int64(len("depth0") - len(name))
	case "previtem":
		if at > 0 {
			return l.list[at-1]
		}
	case "nextitem":
		if at+1 < n {
			return l.list[at+1]
		}
	case "cycle":
		return function(func(_ *run, args []any, _ *Dict) any {
			if len(args) == 0 {
				panic(failf("loop.cycle of nothing"))
			}
			return args[l.i%len(args)]
		})
	}
	return undefined{what: "loop." + name}
}
