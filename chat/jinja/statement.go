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

func (p *parser) expect(text string) error {
	if !p.accept(text) {
		return p.syntaxError(fmt.Sprintf("%q is missing", text))
	}
	return nil
}

// syntaxError returns an error at the next token.
func (p *parser) syntaxError(what string) error {
	t := p.peek()
	return &Error{Line: t.line, Err: fmt.Errorf("%s before %q", what, t.text)}
}

func (p *parser) name(what string) (string, error) {
	if p.peek().kind != nameToken {
		return "", p.syntaxError("the name of " + what + " is missing")
	}
	return p.next().text, nil
}

func (p *parser) endTag() error {
	if p.peek().kind != endStatement {
		return p.syntaxError("%} is missing")
	}
	p.next()
	return nil
}

func (p *parser) template() ([]statement, error) {
	body, _, err := p.until()
	return body, err
}

// until compiles statements up to a tag that begins with one of the given words, and
// returns that word. Without words it reads to the end of the source.
func (p *parser) until(ends ...string) (body []statement, end string, err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, "", p.syntaxError(fmt.Sprintf("blocks nested more than %d deep", maxDepth))
	}
	defer func() { p.depth-- }()
	for {
		t := p.next()
		s := statement{line: t.line}
		switch t.kind {
		case endOfSource:
			if len(ends) > 0 {
				return nil, "", &Error{Line: t.line, Err: fmt.Errorf("the template ends where %s is missing", ends[len(ends)-1])}
			}
			return body, "", nil
		case textToken:
			s.do = func(r *run) error { return r.write(t.text) }
		case beginPrint:
			s.do, err = p.print()
		case beginStatement:
			word, wrong := p.name("a statement")
			if wrong != nil {
				return nil, "", wrong
			}
			if slices.Contains(ends, word) {
				return body, word, nil
			}
			s.do, err = p.statement(word)
		}
		if err != nil {
			return nil, "", withLine(t.line, err)
		}
		body = append(body, s)
	}
}

func (p *parser) print() (func(*run) error, error) {
	e, err := p.tuple()
	if err != nil {
		return nil, err
	}
	if p.peek().kind != endPrint {
		return nil, p.syntaxError("}} is missing")
	}
	p.next()
	return func(r *run) error {
		v, err := e(r)
		if err != nil {
			return err
		}
		return r.write(text(v))
	}, nil
}

func (p *parser) statement(word string) (func(*run) error, error) {
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
	case "break":
		return func(*run) error { return errBreak }, p.endTag()
	case "continue":
		return func(*run) error { return errContinue }, p.endTag()
	}
	return nil, fmt.Errorf("there is no statement %q; chat templates have if, for, set, macro, call, filter, generation, break and continue", word)
}

// block compiles the rest of a tag and the statements up to the tag with the word end.
func (p *parser) block(end string) ([]statement, error) {
	if err := p.endTag(); err != nil {
		return nil, err
	}
	body, _, err := p.until(end)
	if err != nil {
		return nil, err
	}
	return body, p.endTag()
}

// setBranching sets branching and returns a function that restores it.
func (p *parser) setBranching(yes bool) (restore func()) {
	before := p.branching
	p.branching = yes
	return func() { p.branching = before }
}

// branch compiles what follows "if" or "elif".
func (p *parser) branch() (func(*run) error, error) {
	defer p.setBranching(true)()
	condition, err := p.expression()
	if err != nil {
		return nil, err
	}
	if err := p.endTag(); err != nil {
		return nil, err
	}
	then, end, err := p.until("elif", "else", "endif")
	if err != nil {
		return nil, err
	}
	otherwise := func(*run) error { return nil }
	switch end {
	case "elif":
		otherwise, err = p.branch()
	case "else":
		var body []statement
		body, err = p.block("endif")
		otherwise = func(r *run) error { return r.all(body) }
	default:
		err = p.endTag()
	}
	return func(r *run) error {
		v, err := condition(r)
		if err != nil {
			return err
		}
		if truth(v) {
			return r.all(then)
		}
		return otherwise(r)
	}, err
}

// set compiles {% set %}, which assigns to a name, to several names, or to an attribute
// of a namespace. The value is an expression or the text of a block.
func (p *parser) set() (func(*run) error, error) {
	assign, err := p.target()
	if err != nil {
		return nil, err
	}
	if p.accept("=") {
		e, err := p.tuple()
		if err != nil {
			return nil, err
		}
		return func(r *run) error {
			v, err := e(r)
			if err != nil {
				return err
			}
			return assign(r.scope, v)
		}, p.endTag()
	}
	filters, err := p.filterChain()
	if err != nil {
		return nil, err
	}
	body, err := p.block("endset")
	return func(r *run) error {
		s, err := r.capture(r.scope.inner(), body)
		if err != nil {
			return err
		}
		v, err := filters(r, s)
		if err != nil {
			return err
		}
		return assign(r.scope, v)
	}, err
}

// target compiles the left side of an assignment.
func (p *parser) target() (func(*scope, any) error, error) {
	bracket := p.accept("(")
	first, err := p.name("what is set")
	if err != nil {
		return nil, err
	}
	if p.accept(".") {
		field, err := p.name("an attribute")
		return func(s *scope, v any) error { return setAttribute(s, first, field, v) }, err
	}
	names := []string{first}
	for p.accept(",") {
		name, err := p.name("what is set")
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if bracket {
		err = p.expect(")")
	}
	return func(s *scope, v any) error { return unpack(s, names, v) }, err
}

func setAttribute(s *scope, name, field string, v any) error {
	d, ok := s.find(name).(*Dict)
	if !ok || !d.namespace {
		return fmt.Errorf("%s is no namespace, so its attribute %s cannot be set", name, field)
	}
	d.Set(field, v)
	return nil
}

func unpack(s *scope, names []string, v any) error {
	if len(names) == 1 {
		s.set(names[0], v)
		return nil
	}
	list, err := items(v)
	if err != nil {
		return err
	}
	if len(list) != len(names) {
		return fmt.Errorf("%d names for %d values", len(names), len(list))
	}
	for i, name := range names {
		s.set(name, list[i])
	}
	return nil
}
