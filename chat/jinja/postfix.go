package jinja

import "slices"

// step makes a value of another one: what follows an expression.
type step func(r *run, v any) any

// then is an expression made of another one's value.
func (e expression) then(steps ...step) expression {
	if len(steps) == 0 {
		return e
	}
	return func(r *run) any {
		v := e(r)
		for _, next := range steps {
			v = next(r, v)
		}
		return v
	}
}

// postfix compiles the attributes, subscripts and calls that follow an expression.
func (p *parser) postfix(e expression) expression {
	var steps []step
	for {
		switch {
		case p.accept("."):
			steps = append(steps, p.attribute())
		case p.accept("["):
			steps = append(steps, p.subscript())
		case p.is("("):
			steps = append(steps, p.calling())
		default:
			return e.then(steps...)
		}
	}
}

// filtered compiles the filters and tests that follow an expression.
func (p *parser) filtered(e expression) expression {
	var steps []step
	for {
		switch {
		case p.accept("|"):
			steps = append(steps, p.filter())
		case p.accept("is"):
			steps = append(steps, p.test())
		case p.is("("):
			steps = append(steps, p.calling())
		default:
			return e.then(steps...)
		}
	}
}

// filterChain compiles zero or more filters, each after a bar.
func (p *parser) filterChain() step {
	var filters []step
	for p.accept("|") {
		filters = append(filters, p.filter())
	}
	return func(r *run, v any) any { return constant(v).then(filters...)(r) }
}

func (p *parser) attribute() step {
	if p.peek().kind == integerToken {
		index := p.primary()
		return func(r *run, v any) any { return r.subscript(v, index(r)) }
	}
	name := p.name("an attribute")
	return func(r *run, v any) any { return r.attribute(v, name) }
}

// subscript compiles key] or, with colons, a slice.
func (p *parser) subscript() step {
	parts := [3]expression{constant(nil), constant(nil), constant(nil)}
	n := 0
	for ; ; n++ {
		if n == len(parts) {
			panic(p.before("a slice has at most two colons"))
		}
		if !p.is(":") && !p.is("]") {
			parts[n] = p.expression()
		}
		if !p.accept(":") {
			break
		}
	}
	p.expect("]")
	if n == 0 {
		return func(r *run, v any) any { return r.subscript(v, parts[0](r)) }
	}
	return func(r *run, v any) any { return r.slice(v, parts[0](r), parts[1](r), parts[2](r)) }
}

// callArgument is one argument of a call: positional, named, or after * or **, which
// stand for the items of a list or dictionary.
type callArgument struct {
	name, stars string
	value       expression
}

func (a callArgument) plain() bool { return a.name == "" && a.stars == "" }

// arguments evaluates the arguments of a call.
type arguments func(*run) (list []any, named *Dict)

func (p *parser) arguments() arguments {
	p.expect("(")
	var list []callArgument
	for !p.accept(")") {
		var a callArgument
		switch next := p.tokens[min(p.at+1, len(p.tokens)-1)]; {
		case p.is("*") || p.is("**"):
			a.stars = p.next().text
		case p.peek().kind == nameToken && next.text == "=" && next.kind == operatorToken:
			a.name = p.next().text
			p.next()
		}
		if n := len(list); n > 0 && a.plain() && !list[n-1].plain() {
			panic(p.before("an argument without a name after one with a name"))
		}
		if a.name != "" && slices.ContainsFunc(list, func(b callArgument) bool { return b.name == a.name }) {
			panic(p.before("the argument %s a second time", a.name))
		}
		a.value = p.expression()
		if list = append(list, a); len(list) > maxArguments {
			panic(p.before("more than %d arguments", maxArguments))
		}
		p.comma(")")
	}
	return evaluated(list...)
}

func evaluated(all ...callArgument) arguments {
	return func(r *run) (list []any, named *Dict) {
		named = NewDict()
		for _, a := range all {
			v := a.value(r)
			switch {
			case a.stars == "*":
				list = append(list, r.items(v)...)
			case a.stars == "**":
				d, ok := v.(*Dict)
				if !ok {
					panic(failf("** needs a dict, not %s", typeName(v)))
				}
				r.make(entryBytes * len(d.Keys))
				for _, k := range d.Keys {
					named.Set(r.text(k), d.value(k))
				}
			case a.name != "":
				named.Set(a.name, v)
			default:
				list = append(list, v)
			}
		}
		return list, named
	}
}

func (p *parser) calling() step {
	args := p.arguments()
	return func(r *run, callee any) any {
		list, named := args(r)
		return r.call(callee, list, named)
	}
}

func (p *parser) filter() step {
	name := p.name("a filter")
	f, ok := filters[name]
	if !ok && !p.branching {
		panic(p.failf("there is no filter %q", name))
	}
	args := evaluated()
	if p.is("(") {
		args = p.arguments()
	}
	return func(r *run, v any) any {
		list, named := args(r)
		if !ok {
			panic(failf("there is no filter %q", name))
		}
		return r.call(f, append([]any{v}, list...), named)
	}
}

// test compiles what follows "is".
func (p *parser) test() step {
	not := p.accept("not")
	name := p.name("a test")
	holds, ok := tests[name]
	if !ok && !p.branching {
		panic(p.failf("there is no test %q", name))
	}
	args := evaluated()
	switch {
	case p.is("("):
		args = p.arguments()
	case p.operandFollows():
		args = evaluated(callArgument{value: p.postfix(p.primary())})
	}
	if p.is("is") {
		panic(p.before("one test at a time"))
	}
	return func(r *run, v any) any {
		list, _ := args(r)
		if !ok {
			panic(failf("there is no test %q", name))
		}
		return holds(r, v, list) != not
	}
}

// operandFollows reports whether a test has an argument without brackets, as in "x is
// divisibleby 3".
func (p *parser) operandFollows() bool {
	switch t := p.peek(); t.kind {
	case stringToken, integerToken, floatToken:
		return true
	case nameToken:
		return !slices.Contains([]string{"and", "or", "else", "if", "is", "in", "not"}, t.text)
	case operatorToken:
		return t.text == "[" || t.text == "{"
	}
	return false
}
