package jinja

import (
	"fmt"
	"maps"
	"slices"
)

// postfix reads attributes, items and calls after an expression.
func (p *parser) postfix(e expression) (expression, error) {
	var err error
	for err == nil {
		inner := e
		switch {
		case p.took("."):
			e, err = p.attribute(inner)
		case p.took("["):
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
	return func(r *run) (any, error) {
		v, err := of(r)
		if err != nil {
			return nil, err
		}
		return attribute(v, name)
	}, err
}

func item(of, key expression) expression {
	return func(r *run) (any, error) {
		v, err := of(r)
		if err != nil {
			return nil, err
		}
		k, err := key(r)
		if err != nil {
			return nil, err
		}
		return subscript(v, k)
	}
}

// subscript is an item or, with colons, a slice.
func (p *parser) subscript(of expression) (expression, error) {
	parts := [3]expression{constant(nil), constant(nil), constant(nil)}
	n := 0
	for ; ; n++ {
		if n == len(parts) {
			return nil, p.wrong("a slice has at most two colons")
		}
		if !p.is(":") && !p.is("]") {
			var err error
			if parts[n], err = p.expression(); err != nil {
				return nil, err
			}
		}
		if !p.took(":") {
			break
		}
	}
	if err := p.expect("]"); err != nil {
		return nil, err
	}
	if n == 0 {
		return item(of, parts[0]), nil
	}
	bounds := listOf(parts[:], false)
	return func(r *run) (any, error) {
		v, err := of(r)
		if err != nil {
			return nil, err
		}
		b, err := bounds(r)
		if err != nil {
			return nil, err
		}
		l := b.(*List).Items
		return slice(v, l[0], l[1], l[2])
	}, nil
}

// arguments evaluates those of a call.
type arguments func(*run) (list []any, named map[string]any, err error)

func (p *parser) arguments() (arguments, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var list []expression
	named := map[string]expression{}
	for !p.took(")") {
		name := ""
		if p.peek().kind == nameToken && p.tokens[p.at+1].text == "=" && p.tokens[p.at+1].kind == operatorToken {
			name = p.next().text
			p.next()
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		if name == "" {
			list = append(list, e)
		} else {
			named[name] = e
		}
		if !p.is(")") {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
	}
	return evaluated(listOf(list, false), named), nil
}

func evaluated(list expression, named map[string]expression) arguments {
	order := slices.Sorted(maps.Keys(named))
	return func(r *run) ([]any, map[string]any, error) {
		args, err := list(r)
		if err != nil {
			return nil, nil, err
		}
		byName := make(map[string]any, len(named))
		for _, name := range order {
			if byName[name], err = named[name](r); err != nil {
				return nil, nil, err
			}
		}
		return args.(*List).Items, byName, nil
	}
}

func (p *parser) calling(f expression) (expression, error) {
	args, err := p.arguments()
	return func(r *run) (any, error) {
		callee, err := f(r)
		if err != nil {
			return nil, err
		}
		list, named, err := args(r)
		if err != nil {
			return nil, err
		}
		return r.call(callee, list, named)
	}, err
}

// callParts reads what a call block calls.
func (p *parser) callParts() (callee expression, args arguments, err error) {
	if callee, err = p.primary(); err != nil {
		return nil, nil, err
	}
	for p.took(".") {
		if callee, err = p.attribute(callee); err != nil {
			return nil, nil, err
		}
	}
	args, err = p.arguments()
	return callee, args, err
}

// applied is a filter with its arguments.
type applied func(r *run, v any) (any, error)

// filtered reads filters and tests after an expression.
func (p *parser) filtered(e expression, filters bool) (expression, error) {
	var err error
	for filters && err == nil {
		inner := e
		switch {
		case p.took("|"):
			var f applied
			f, err = p.filter()
			e = func(r *run) (any, error) {
				v, err := inner(r)
				if err != nil {
					return nil, err
				}
				return f(r, v)
			}
		case p.took("is"):
			e, err = p.test(inner)
		case p.is("("):
			e, err = p.calling(inner)
		default:
			return e, nil
		}
	}
	return e, err
}

// filterChain reads filters, none or more, each after a bar.
func (p *parser) filterChain() (applied, error) {
	var chain []applied
	for p.took("|") {
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

func (p *parser) filter() (applied, error) {
	name, err := p.name("a filter")
	if err != nil {
		return nil, err
	}
	f, ok := filters[name]
	if !ok {
		return nil, fmt.Errorf("there is no filter %q", name)
	}
	args := evaluated(listOf(nil, false), nil)
	if p.is("(") {
		args, err = p.arguments()
	}
	return func(r *run, v any) (any, error) {
		list, named, err := args(r)
		if err != nil {
			return nil, err
		}
		v, err = r.call(f, append([]any{v}, list...), named)
		if err != nil {
			return nil, fmt.Errorf("filter %s: %w", name, err)
		}
		return v, nil
	}, err
}

// test is what follows "is".
func (p *parser) test(e expression) (expression, error) {
	not := p.took("not")
	name, err := p.name("a test")
	if err != nil {
		return nil, err
	}
	holds, ok := tests[name]
	if !ok {
		return nil, fmt.Errorf("there is no test %q", name)
	}
	args := evaluated(listOf(nil, false), nil)
	switch {
	case p.is("("):
		args, err = p.arguments()
	case p.operandFollows():
		var operand expression
		if operand, err = p.primary(); err == nil {
			operand, err = p.postfix(operand)
		}
		args = evaluated(listOf([]expression{operand}, false), nil)
	}
	return func(r *run) (any, error) {
		v, err := e(r)
		if err != nil {
			return nil, err
		}
		list, _, err := args(r)
		if err != nil {
			return nil, err
		}
		ok, err := holds(v, list)
		return ok != not, err
	}, err
}

// operandFollows says whether a test has an operand without brackets.
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
