package jinja

import (
	"fmt"
	"slices"
)

// parser compiles tokens into statements and expressions.
type parser struct {
	tokens     []token
	at         int
	depth      int
	loops      int  // open around the next token
	generation bool // there is a generation block
	// branching is set inside an if, which may not run: there, an unknown filter or test
	// is an error only if it is reached, as in Jinja. Elsewhere it is a compile error.
	branching bool
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != endOfSource {
		p.at++
	}
	return t
}

// is reports whether the next token is the given operator or word.
func (p *parser) is(text string) bool {
	t := p.peek()
	return (t.kind == operatorToken || t.kind == nameToken) && t.text == text
}

// accept skips the next token if it is the given operator or word, and reports whether
// it was.
func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		panic(p.before("%q is missing", text))
	}
}

// failf returns a failure at the token that was read last.
func (p *parser) failf(format string, args ...any) failure {
	return failure{int(p.tokens[max(p.at-1, 0)].line), fmt.Errorf(format, args...)}
}

// before returns a failure at the next token.
func (p *parser) before(format string, args ...any) failure {
	t := p.peek()
	return failure{int(t.line), fmt.Errorf("%s before %q", fmt.Sprintf(format, args...), t.text)}
}

// nest counts one level of nesting and returns the function that ends it.
func (p *parser) nest() (end func()) {
	if p.depth++; p.depth > maxDepth {
		panic(p.before("blocks and expressions nested more than %d deep", maxDepth))
	}
	return func() { p.depth-- }
}

func (p *parser) name(what string) string {
	if p.peek().kind != nameToken {
		panic(p.before("the name of %s is missing", what))
	}
	return p.next().text
}

func (p *parser) endTag() {
	if p.peek().kind != endStatement {
		panic(p.before("%%} is missing"))
	}
	p.next()
}

// until compiles statements up to a tag that begins with one of the given words, and
// returns that word. Without words it reads to the end of the source.
func (p *parser) until(ends ...string) (body []statement, end string) {
	defer p.nest()()
	for {
		t := p.next()
		s := statement{line: int(t.line)}
		switch t.kind {
		case endOfSource:
			if len(ends) > 0 {
				panic(failure{int(t.line), fmt.Errorf("the template ends where %s is missing", ends[len(ends)-1])})
			}
			return body, ""
		case textToken:
			s.do = func(r *run) outcome { return r.write(t.text) }
		case beginPrint:
			e := p.tuple()
			if p.peek().kind != endPrint {
				panic(p.before("}} is missing"))
			}
			p.next()
			s.do = func(r *run) outcome { return r.write(r.text(e(r))) }
		case beginStatement:
			word := p.name("a statement")
			if slices.Contains(ends, word) {
				return body, word
			}
			s.do = p.statement(word)
		}
		body = append(body, s)
	}
}

func (p *parser) statement(word string) func(*run) outcome {
	switch word {
	case "if":
		return p.branch()
	case "for":
		return p.loop()
	case "set":
		return p.set()
	case "macro":
		return p.macro()
	case "call":
		return p.callBlock()
	case "filter":
		return p.filterBlock()
	case "generation":
		return p.generationBlock()
	case "break", "continue":
		if p.loops == 0 {
			panic(p.failf("%s outside a loop", word))
		}
		p.endTag()
		how := map[string]outcome{"break": breaks, "continue": continues}[word]
		return func(*run) outcome { return how }
	}
	panic(p.failf("there is no statement %q; chat templates have if, for, set, macro, call, filter, generation, break and continue", word))
}

// block compiles the rest of a tag and the statements up to the tag with the word end.
func (p *parser) block(end string) []statement {
	p.endTag()
	body, _ := p.until(end)
	p.endTag()
	return body
}

// captured compiles a block whose output becomes a value. It cannot end a loop around
// it.
func (p *parser) captured(end string) []statement {
	loops := p.loops
	p.loops = 0
	body := p.block(end)
	p.loops = loops
	return body
}

// setBranching sets branching and returns a function that restores it.
func (p *parser) setBranching(yes bool) (restore func()) {
	before := p.branching
	p.branching = yes
	return func() { p.branching = before }
}

// branch compiles if, elif and else.
func (p *parser) branch() func(*run) outcome {
	defer p.setBranching(true)()
	var conditions []expression
	var bodies [][]statement
	for end := "elif"; end != "endif"; {
		if end == "else" {
			bodies = append(bodies, p.block("endif"))
			break
		}
		conditions = append(conditions, p.expression())
		p.endTag()
		var body []statement
		body, end = p.until("elif", "else", "endif")
		if bodies = append(bodies, body); end == "endif" {
			p.endTag()
		}
	}
	return func(r *run) outcome {
		for i, condition := range conditions {
			if truth(condition(r)) {
				return r.all(bodies[i])
			}
		}
		if len(bodies) > len(conditions) {
			return r.all(bodies[len(conditions)])
		}
		return goesOn
	}
}

// set compiles {% set %}, which assigns to a name, to several names, or to an attribute
// of a namespace. The value is an expression or the text of a block.
func (p *parser) set() func(*run) outcome {
	assign := p.target()
	value := expression(nil)
	if p.accept("=") {
		value = p.tupleOf(func() expression {
			if e := p.growingName(); e != nil {
				return e
			}
			return p.expression()
		})
		p.endTag()
	} else {
		filters := p.filterChain()
		body := p.captured("endset")
		value = func(r *run) any { return filters(r, r.capture(r.scope.inner(), body)) }
	}
	return func(r *run) outcome {
		assign(r, r.assigned(value))
		return goesOn
	}
}

// target compiles the left side of an assignment, which sets variables of the innermost
// scope.
func (p *parser) target() func(*run, any) {
	bracket := p.accept("(")
	names := []string{p.name("what is set")}
	if p.accept(".") {
		field := p.name("an attribute")
		return func(r *run, v any) {
			d, ok := r.find(names[0]).(*Dict)
			if !ok || !d.namespace {
				panic(failf("%s is no namespace, so its attribute %s cannot be set", names[0], field))
			}
			r.setAttribute(d, field, v)
		}
	}
	for p.accept(",") {
		names = append(names, p.name("what is set"))
	}
	if bracket {
		p.expect(")")
	}
	if len(names) == 1 {
		return func(r *run, v any) { r.scope.set(names[0], v) }
	}
	return func(r *run, v any) {
		list := r.items(v)
		if len(list) != len(names) {
			panic(failf("%d names for %d values", len(names), len(list)))
		}
		for i, name := range names {
			r.scope.set(name, list[i])
		}
	}
}
