package jinja

import (
	"fmt"
	"strconv"
)

// tuple compiles one expression, or several with commas between them.
func (p *parser) tuple() (expression, error) {
	first, err := p.expression()
	if err != nil || !p.is(",") {
		return first, err
	}
	list := []expression{first}
	for p.accept(",") {
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return listOf(list, true), nil
}

func listOf(list []expression, tuple bool) expression {
	return func(r *run) (any, error) {
		l := &List{Items: make([]any, len(list)), Tuple: tuple}
		for i, e := range list {
			var err error
			if l.Items[i], err = e(r); err != nil {
				return nil, err
			}
		}
		return l, nil
	}
}

// expression compiles "a if condition else b", or an or-expression.
func (p *parser) expression() (expression, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.syntaxError(fmt.Sprintf("expressions nested more than %d deep", maxDepth))
	}
	defer func() { p.depth-- }()
	then, err := p.orExpression()
	for err == nil && p.accept("if") {
		then, err = p.conditional(then)
	}
	return then, err
}

func (p *parser) conditional(then expression) (expression, error) {
	condition, err := p.orExpression()
	if err != nil {
		return nil, err
	}
	defer p.setBranching(true)()
	otherwise := constant(undefined{what: "an if without else"})
	if p.accept("else") {
		if otherwise, err = p.expression(); err != nil {
			return nil, err
		}
	}
	return condition.then(func(r *run, v any) (any, error) {
		if truth(v) {
			return then(r)
		}
		return otherwise(r)
	}), nil
}

func constant(v any) expression { return func(*run) (any, error) { return v, nil } }

// orExpression compiles "a or b": the value is the first operand that is true, else the
// last.
func (p *parser) orExpression() (expression, error) { return p.shortcut("or", true, p.andExpression) }

func (p *parser) andExpression() (expression, error) { return p.shortcut("and", false, p.negated) }

// shortcut compiles operands joined by "or" or "and". The value is that of the first
// operand whose truth equals decides, else of the last; operands after it are not
// evaluated.
func (p *parser) shortcut(word string, decides bool, operand func() (expression, error)) (expression, error) {
	left, err := operand()
	for err == nil && p.accept(word) {
		a, b := left, expression(nil)
		b, err = operand()
		left = func(r *run) (any, error) {
			v, err := a(r)
			if err != nil || truth(v) == decides {
				return v, err
			}
			return b(r)
		}
	}
	return left, err
}

func (p *parser) negated() (expression, error) {
	if !p.accept("not") {
		return p.comparison()
	}
	if p.depth++; p.depth > maxDepth {
		return nil, p.syntaxError("too many nots")
	}
	defer func() { p.depth-- }()
	e, err := p.negated()
	return func(r *run) (any, error) {
		v, err := e(r)
		return !truth(v), err
	}, err
}

// comparison compiles a chain of comparisons: a < b < c holds if both do.
func (p *parser) comparison() (expression, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	var holds []func(a, b any) (bool, error)
	operands := []expression{first}
	for {
		h := p.comparator()
		if h == nil {
			break
		}
		e, err := p.sum()
		if err != nil {
			return nil, err
		}
		holds, operands = append(holds, h), append(operands, e)
	}
	if len(holds) == 0 {
		return first, nil
	}
	return func(r *run) (any, error) {
		a, err := operands[0](r)
		for i, h := range holds {
			if err != nil {
				return nil, err
			}
			b, wrong := operands[i+1](r)
			if wrong != nil {
				return nil, wrong
			}
			ok, wrong := h(a, b)
			if wrong != nil || !ok {
				return false, wrong
			}
			a = b
		}
		return true, err
	}, nil
}

// comparator reads the operator of a comparison; nil means that there is none.
func (p *parser) comparator() func(a, b any) (bool, error) {
	in := func(a, b any) (bool, error) { return contains(b, a) }
	switch {
	case p.accept("=="):
		return func(a, b any) (bool, error) { return equal(a, b), nil }
	case p.accept("!="):
		return func(a, b any) (bool, error) { return !equal(a, b), nil }
	case p.accept("<"):
		return ordered(func(c int) bool { return c < 0 })
	case p.accept("<="):
		return ordered(func(c int) bool { return c <= 0 })
	case p.accept(">"):
		return ordered(func(c int) bool { return c > 0 })
	case p.accept(">="):
		return ordered(func(c int) bool { return c >= 0 })
	case p.accept("in"):
		return in
	case p.is("not") && p.tokens[p.at+1].text == "in":
		p.at += 2
		return func(a, b any) (bool, error) {
			ok, err := in(a, b)
			return !ok, err
		}
	}
	return nil
}

func ordered(holds func(int) bool) func(a, b any) (bool, error) {
	return func(a, b any) (bool, error) {
		c, err := compare(a, b)
		return err == nil && holds(c), err
	}
}

// Arithmetic operators, from the lowest precedence to the highest.

func (p *parser) sum() (expression, error) { return p.chain(p.concatenation, "+", "-") }

func (p *parser) concatenation() (expression, error) { return p.chain(p.term, "~") }

func (p *parser) term() (expression, error) { return p.chain(p.power, "*", "/", "//", "%") }

func (p *parser) power() (expression, error) {
	return p.chain(func() (expression, error) { return p.unary(true) }, "**")
}

// chain compiles operands joined by operators of one precedence, left to right.
func (p *parser) chain(operand func() (expression, error), ops ...string) (expression, error) {
	left, err := operand()
	for err == nil {
		op := p.oneOf(ops)
		if op == "" {
			break
		}
		a, b := left, expression(nil)
		b, err = operand()
		left = func(r *run) (any, error) {
			x, err := a(r)
			if err != nil {
				return nil, err
			}
			y, err := b(r)
			if err != nil {
				return nil, err
			}
			v, err := arithmetic(op, x, y)
			if err != nil {
				return nil, err
			}
			return r.countBytes(v)
		}
	}
	return left, err
}

func (p *parser) oneOf(ops []string) string {
	for _, op := range ops {
		if p.accept(op) {
			return op
		}
	}
	return ""
}

func (p *parser) unary(filters bool) (expression, error) {
	for _, sign := range []string{"-", "+"} {
		if p.accept(sign) {
			e, err := p.unary(false)
			if err != nil {
				return nil, err
			}
			return p.filtered(e.then(func(_ *run, v any) (any, error) { return arithmetic(sign, int64(0), v) }), filters)
		}
	}
	e, err := p.primary()
	if err == nil {
		e, err = p.postfix(e)
	}
	if err != nil {
		return nil, err
	}
	return p.filtered(e, filters)
}

// primary compiles a name, a literal, or an expression in brackets.
func (p *parser) primary() (expression, error) {
	t := p.next()
	switch t.kind {
	case nameToken:
		return variable(t.text), nil
	case stringToken:
		s := t.text
		for p.peek().kind == stringToken { // adjacent strings are joined
			s += p.next().text
		}
		return constant(s), nil
	case integerToken:
		n, err := strconv.ParseInt(t.text, 10, 64)
		return constant(n), err
	case floatToken:
		f, _ := strconv.ParseFloat(t.text, 64) // too large is infinite
		return constant(f), nil
	case operatorToken:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "[":
			list, err := p.listUntil("]")
			return listOf(list, false), err
		case "{":
			return p.dictionary()
		}
	}
	return nil, &Error{Line: t.line, Err: fmt.Errorf("an expression is missing before %q", t.text)}
}

func variable(name string) expression {
	switch name {
	case "true", "True":
		return constant(true)
	case "false", "False":
		return constant(false)
	case "none", "None":
		return constant(nil)
	}
	return func(r *run) (any, error) { return r.scope.find(name), nil }
}

func (p *parser) parenthesis() (expression, error) {
	if p.accept(")") {
		return listOf(nil, true), nil
	}
	first, err := p.expression()
	if err != nil {
		return nil, err
	}
	if !p.accept(",") {
		return first, p.expect(")")
	}
	rest, err := p.listUntil(")")
	return listOf(append([]expression{first}, rest...), true), err
}

// listUntil compiles expressions separated by commas up to a closing bracket.
func (p *parser) listUntil(end string) (list []expression, err error) {
	for !p.accept(end) {
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if !p.is(end) {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

func (p *parser) dictionary() (expression, error) {
	var keys, values []expression
	for !p.accept("}") {
		k, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		keys, values = append(keys, k), append(values, v)
		if !p.is("}") {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
	}
	return func(r *run) (any, error) {
		d := NewDict()
		for i := range keys {
			k, err := keys[i](r)
			if err != nil {
				return nil, err
			}
			v, err := values[i](r)
			if err != nil {
				return nil, err
			}
			hash, err := hashKey(k)
			if err != nil {
				return nil, err
			}
			d.put(k, hash, v)
		}
		return d, nil
	}, nil
}
