package jinja

import (
	"fmt"
	"slices"
)

// postfix compiles the attributes, subscripts and calls that follow an expression.
func (p *parser) postfix(e expression) (expression, error) {
	var err error
	for err == nil {
		inner := e
		switch {
		case p.accept("."):
			e, err = p.attribute(inner)
		case p.accept("["):
			e, err = p.subscript(inner)
		case p.is("("):
			e, err = p.calling(inner)
		default:
			return e, nil
		}
	}
	return nil, err
}

func (p *parser) attribute(of expression) (expression, error) {
	if t := p.peek(); t.kind == integerToken {
		index, err := p.primary()
		return item(of, index), err
	}
	name, err := p.name("an attribute")
	return of.then(func(_ *run, v any) (any, error) { return attribute(v, name) }), err
}

func item(of, key expression) expression {
	return both(of, key, func(_ *run, v, k any) (any, error) { return subscript(v, k) })
}

// subscript compiles [key] or, with colons, a slice.
func (p *parser) subscript(of expression) (expression, error) {
	parts := [3]expression{constant(nil), constant(nil), constant(nil)}
	n := 0
	for ; ; n++ {
		if n == len(parts) {
			return nil, p.syntaxError("a slice has at most two colons")
		}
		if !p.is(":") && !p.is("]") {
			var err error
			if parts[n], err = p.expression(); err != nil {
				return nil, err
			}
		}
		if !p.accept(":") {
			break
		}
	}
	if err := p.expect("]"); err != nil {
		return nil, err
	}
	if n == 0 {
		return item(of, parts[0]), nil
	}
	return both(of, listOf(parts[:], false), func(_ *run, v, bounds any) (any, error) {
		l := bounds.(*List).Items
		return slice(v, l[0], l[1], l[2])
	}), nil
}

// arguments evaluates the arguments of a call.
type arguments func(*run) (list []any, named *Dict, err error)

func (p *parser) arguments() (arguments, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
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
			return nil, p.syntaxError("an argument without a name after one with a name")
		}
		for _, earlier := range list {
			if a.name != "" && earlier.name == a.name {
				return nil, p.syntaxError("the argument " + a.name + " a second time")
			}
		}
		var err error
		if a.value, err = p.expression(); err != nil {
			return nil, err
		}
		list = append(list, a)
		if !p.is(")") {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
	}
	return evaluated(list...), nil
}

// callArgument is one argument of a call: positional, named, or after * or **, which
// stand for the items of a list or dictionary.
type callArgument struct {
	name, stars string
	value       expression
}

func (a callArgument) plain() bool { return a.name == "" && a.stars == "" }

func evaluated(all ...callArgument) arguments {
	return func(r *run) (list []any, named *Dict, err error) {
		named = NewDict()
		for _, a := range all {
			v, err := a.value(r)
			if err != nil {
				return nil, nil, err
			}
			switch {
			case a.stars == "*":
				more, err := items(v)
				if err != nil {
					return nil, nil, err
				}
				list = append(list, more...)
			case a.stars == "**":
				d, ok := v.(*Dict)
				if !ok {
					return nil, nil, fmt.Errorf("** needs a dict, not %s", typeName(v))
				}
				for _, k := range d.Keys {
					named.Set(text(k), d.value(k))
				}
			case a.name != "":
				named.Set(a.name, v)
			default:
				list = append(list, v)
			}
		}
		return list, named, nil
	}
}

func (p *parser) calling(f expression) (expression, error) {
	args, err := p.arguments()
	return f.then(func(r *run, callee any) (any, error) {
		list, named, err := args(r)
		if err != nil {
			return nil, err
		}
		return r.call(callee, list, named)
	}), err
}

// callParts compiles the function and the arguments of a call block.
func (p *parser) callParts() (callee expression, args arguments, err error) {
	if callee, err = p.primary(); err != nil {
		return nil, nil, err
	}
	for p.accept(".") {
		if callee, err = p.attribute(callee); err != nil {
			return nil, nil, err
		}
	}
	args, err = p.arguments()
	return callee, args, err
}

// filterCall is a filter with its arguments.
type filterCall func(r *run, v any) (any, error)

// filtered compiles the filters and tests that follow an expression.
func (p *parser) filtered(e expression, filters bool) (expression, error) {
	var err error
	for filters && err == nil {
		inner := e
		switch {
		case p.accept("|"):
			var f filterCall
			f, err = p.filter()
			e = inner.then(f)
		case p.accept("is"):
			e, err = p.test(inner)
		case p.is("("):
			e, err = p.calling(inner)
		default:
			return e, nil
		}
	}
	return e, err
}

// filterChain compiles zero or more filters, each after a bar.
func (p *parser) filterChain() (filterCall, error) {
	var chain []filterCall
	for p.accept("|") {
		f, err := p.filter()
		if err != nil {
			return nil, err
		}
		chain = append(chain, f)
	}
	return func(r *run, v any) (_ any, err error) {
		for _, f := range chain {
			if v, err = f(r, v); err != nil {
				return nil, err
			}
		}
		return v, nil
	}, nil
}

func (p *parser) filter() (filterCall, error) {
	name, err := p.name("a filter")
	if err != nil {
		return nil, err
	}
	f, ok := filters[name]
	unknown := fmt.Errorf("there is no filter %q", name)
	if !ok && !p.branching {
		return nil, unknown
	}
	args := evaluated()
	if p.is("(") {
		args, err = p.arguments()
	}
	return func(r *run, v any) (any, error) {
		list, named, err := args(r)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, unknown
		}
		v, err = r.call(f, append([]any{v}, list...), named)
		if err != nil {
			return nil, fmt.Errorf("filter %s: %w", name, err)
		}
		return v, nil
	}, err
}

// test compiles what follows "is".
func (p *parser) test(e expression) (expression, error) {
	not := p.accept("not")
	name, err := p.name("a test")
	if err != nil {
		return nil, err
	}
	holds, ok := tests[name]
	if !ok && !p.branching {
		return nil, fmt.Errorf("there is no test %q", name)
	}
	if !ok {
		holds = func(any, []any) (bool, error) { return false, fmt.Errorf("there is no test %q", name) }
	}
	args := evaluated()
	switch {
	case p.is("("):
		args, err = p.arguments()
	case p.operandFollows():
		var operand expression
		if operand, err = p.primary(); err == nil {
			operand, err = p.postfix(operand)
		}
		args = evaluated(callArgument{value: operand})
	}
	if p.is("is") {
		return nil, p.syntaxError("one test at a time")
	}
	return e.then(func(r *run, v any) (any, error) {
		list, _, err := args(r)
		if err != nil {
			return nil, err
		}
		ok, err := holds(v, list)
		return ok != not, err
	}), err
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
