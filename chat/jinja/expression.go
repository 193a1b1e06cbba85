package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// tuple compiles one expression, or several with commas between them.
func (p *parser) tuple() expression {
	return p.tupleOf(p.expression)
}

// tupleOf compiles items with commas between them; one alone is itself.
func (p *parser) tupleOf(item func() expression) expression {
	list := []expression{item()}
	for p.accept(",") {
		list = append(list, item())
	}
	if len(list) == 1 {
		return list[0]
	}
	return listOf(list, true)
}

func listOf(list []expression, tuple bool) expression {
	return func(r *run) any {
		r.make(itemBytes * len(list))
		l := &List{Items: make([]any, len(list)), Tuple: tuple}
		for i, e := range list {
			l.Items[i] = e(r)
		}
		return l
	}
}

// expression compiles "a if condition else b", or an or-expression.
func (p *parser) expression() expression {
	defer p.nest()()
	e := p.orExpression()
	for p.accept("if") {
		defer p.nest()()
		e = p.conditional(e)
	}
	return e
}

func (p *parser) conditional(then expression) expression {
	condition := p.orExpression()
	defer p.setBranching(true)()
	otherwise := constant(undefined{what: "an if without else"})
	if p.accept("else") {
		otherwise = p.expression()
	}
	return func(r *run) any {
		if truth(condition(r)) {
			return then(r)
		}
		return otherwise(r)
	}
}

func constant(v any) expression { return func(*run) any { return v } }

// orExpression compiles "a or b": the value is the first operand that is true, else the
// last.
func (p *parser) orExpression() expression {
	return p.shortcut("or", true, func() expression { return p.shortcut("and", false, p.negated) })
}

// shortcut compiles operands joined by "or" or "and". The value is that of the first
// operand whose truth equals decides, else of the last; operands after it are not
// evaluated.
func (p *parser) shortcut(word string, decides bool, operand func() expression) expression {
	operands := []expression{operand()}
	for p.accept(word) {
		operands = append(operands, operand())
	}
	if len(operands) == 1 {
		return operands[0]
	}
	return func(r *run) (v any) {
		for _, e := range operands {
			if v = e(r); truth(v) == decides {
				break
			}
		}
		return v
	}
}

func (p *parser) negated() expression {
	if !p.accept("not") {
		return p.comparison()
	}
	defer p.nest()()
	e := p.negated()
	return func(r *run) any { return !truth(e(r)) }
}

// comparison compiles a chain of comparisons: a < b < c holds if both do.
func (p *parser) comparison() expression {
	first := p.sum()
	var holds []comparator
	var operands []expression
	for h := p.comparator(); h != nil; h = p.comparator() {
		holds, operands = append(holds, h), append(operands, p.sum())
	}
	if len(holds) == 0 {
		return first
	}
	return func(r *run) any {
		a := first(r)
		for i, h := range holds {
			b := operands[i](r)
			if !h(r, a, b) {
				return false
			}
			a = b
		}
		return true
	}
}

// comparator says whether a comparison of two values holds.
type comparator func(r *run, a, b any) bool

var comparators = map[string]comparator{
	"==": (*run).equal,
	"!=": func(r *run, a, b any) bool { return !r.equal(a, b) },
	"<":  func(r *run, a, b any) bool { return r.compare(a, b) < 0 },
	"<=": func(r *run, a, b any) bool { return r.compare(a, b) <= 0 },
	">":  func(r *run, a, b any) bool { return r.compare(a, b) > 0 },
	">=": func(r *run, a, b any) bool { return r.compare(a, b) >= 0 },
	"in": func(r *run, a, b any) bool { return r.contains(b, a) },
}

// comparator reads the operator of a comparison; nil means that there is none.
func (p *parser) comparator() comparator {
	if p.is("not") && p.tokens[p.at+1].text == "in" {
		p.at += 2
		return func(r *run, a, b any) bool { return !r.contains(b, a) }
	}
	holds := comparators[p.peek().text]
	if holds == nil || !p.accept(p.peek().text) {
		return nil
	}
	return holds
}

// Arithmetic operators, from the lowest precedence to the highest.
func (p *parser) sum() expression           { return p.chain(p.concatenation, "+", "-") }
func (p *parser) concatenation() expression { return p.chain(p.term, "~") }
func (p *parser) term() expression          { return p.chain(p.power, "*", "/", "//", "%") }
func (p *parser) power() expression         { return p.chain(func() expression { return p.unary(true) }, "**") }

// chain compiles operands joined by operators of one precedence, left to right.
func (p *parser) chain(operand func() expression, ops ...string) expression {
	first := operand()
	var used []string
	var operands []expression
	for slices.Contains(ops, p.peek().text) && p.accept(p.peek().text) {
		used, operands = append(used, p.tokens[p.at-1].text), append(operands, operand())
	}
	if len(used) == 0 {
		return first
	}
	return func(r *run) any {
		v := first(r)
		for i, e := range operands {
			v = r.arithmetic(used[i], v, e(r))
		}
		return v
	}
}

func (p *parser) unary(filters bool) expression {
	var e expression
	if sign := p.peek().text; p.accept("-") || p.accept("+") {
		defer p.nest()()
		e = p.unary(false).then(func(r *run, v any) any { return r.arithmetic(sign, int64(0), v) })
	} else {
		e = p.postfix(p.primary())
	}
	if filters {
		e = p.filtered(e)
	}
	return e
}

// primary compiles a name, a literal, or an expression in brackets.
func (p *parser) primary() expression {
	t := p.next()
	switch t.kind {
	case nameToken:
		return p.variable(t.text)
	case stringToken:
		var joined strings.Builder
		joined.WriteString(t.text)
		for p.peek().kind == stringToken { // adjacent strings are joined
			joined.WriteString(p.next().text)
		}
		return constant(joined.String())
	case integerToken:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			panic(p.failf("%s is too large: integers have 64 bits here", t.text))
		}
		return constant(n)
	case floatToken:
		f, _ := strconv.ParseFloat(t.text, 64) // too large is infinite
		return constant(f)
	case operatorToken:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "[":
			return listOf(p.listUntil("]"), false)
		case "{":
			return p.dictionary()
		}
	}
	panic(p.failf("an expression is missing before %q", t.text))
}

// constants are the names that are no variables.
var constants = map[string]expression{
	"true": constant(true), "True": constant(true), "false": constant(false), "False": constant(false), "none": constant(nil), "None": constant(nil),
}

func (p *parser) variable(name string) expression {
	if value := constants[name]; value != nil {
		return value
	}
	return p.seenName(name)
}

func (p *parser) parenthesis() expression {
	if p.accept(")") {
		return listOf(nil, true)
	}
	first := p.expression()
	if p.accept(",") {
		return listOf(append([]expression{first}, p.listUntil(")")...), true)
	}
	p.expect(")")
	return first
}

// listUntil compiles expressions separated by commas up to a closing bracket.
func (p *parser) listUntil(end string) (list []expression) {
	for !p.accept(end) {
		list = append(list, p.expression())
		p.comma(end)
	}
	return list
}

// comma reads the comma after an item, which the last item before a closing bracket need
// not have.
func (p *parser) comma(end string) {
	if !p.is(end) {
		p.expect(",")
	}
}

func (p *parser) dictionary() expression {
	var keys, values []expression
	for !p.accept("}") {
		keys = append(keys, p.expression())
		p.expect(":")
		values = append(values, p.expression())
		p.comma("}")
	}
	return func(r *run) any {
		r.make(entryBytes * len(keys))
		d := NewDict()
		for i := range keys {
			k := keys[i](r)
			d.put(k, hashKey(k), values[i](r))
		}
		return d
	}
}
