package jinja

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
	f.list = p.orExpression()
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
	outer := r.scope
	list := f.selected(r, r.items(f.list(r)))
	if len(list) == 0 {
		return r.all(f.otherwise)
	}
	for i := range list {
		r.step()
		r.scope = outer.inner()
		r.scope.set("loop", loopState{list, i})
		f.assign(r, list[i])
		if r.all(f.body) == breaks {
			break
		}
	}
	r.scope = outer
	return goesOn
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

// loopState is the variable loop while item i of the list is current.
type loopState struct {
	list []any
	i    int
}

func (l loopState) attribute(name string) any {
	n, at := int64(len(l.list)), int64(l.i)
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
