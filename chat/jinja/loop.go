package jinja

import (
	"errors"
	"fmt"
)

// forLoop is {% for names in list if condition %} body {% else %} otherwise.
type forLoop struct {
	assign          func(*scope, any) error
	list            expression
	condition       expression // nil for none
	body, otherwise []statement
}

func (p *parser) loop() (func(*run) error, error) {
	var f forLoop
	var err error
	if p.is("loop") {
		return nil, p.syntaxError("loop is a reserved name and cannot be the variable")
	}
	if f.assign, err = p.target(); err != nil {
		return nil, err
	}
	defer p.setBranching(false)()
	if err = p.expect("in"); err != nil {
		return nil, err
	}
	if f.list, err = p.orExpression(); err != nil {
		return nil, err
	}
	if p.accept("if") {
		if f.condition, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.is("recursive") {
		return nil, p.syntaxError("recursive loops are not supported: write a macro")
	}
	if err := p.endTag(); err != nil {
		return nil, err
	}
	var end string
	if f.body, end, err = p.until("else", "endfor"); err != nil {
		return nil, err
	}
	if end == "else" {
		f.otherwise, err = p.block("endfor")
		return f.run, err
	}
	return f.run, p.endTag()
}

func (f forLoop) run(r *run) error {
	v, err := f.list(r)
	if err != nil {
		return err
	}
	list, err := items(v)
	if err != nil {
		return err
	}
	outer := r.scope
	defer func() { r.scope = outer }()
	if list, err = f.filter(r, list, outer); err != nil {
		return err
	}
	if len(list) == 0 {
		return r.all(f.otherwise)
	}
	for i := range list {
		if err := r.step(); err != nil {
			return err
		}
		r.scope = outer.inner()
		r.scope.set("loop", loopState{list, i})
		if err := f.assign(r.scope, list[i]); err != nil {
			return err
		}
		err := r.all(f.body)
		switch {
		case errors.Is(err, errBreak):
			return nil
		case err != nil && !errors.Is(err, errContinue):
			return err
		}
	}
	return nil
}

// filter returns the items for which the condition holds.
func (f forLoop) filter(r *run, list []any, outer *scope) ([]any, error) {
	if f.condition == nil {
		return list, nil
	}
	var selected []any
	for _, item := range list {
		if err := r.step(); err != nil {
			return nil, err
		}
		r.scope = outer.inner()
		if err := f.assign(r.scope, item); err != nil {
			return nil, err
		}
		v, err := f.condition(r)
		if err != nil {
			return nil, err
		}
		if truth(v) {
			selected = append(selected, item)
		}
	}
	r.scope = outer
	return selected, nil
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
		return l.item(l.i - 1)
	case "nextitem":
		return l.item(l.i + 1)
	case "cycle":
		return function(l.cycle)
	}
	return undefined{what: "loop." + name}
}

func (l loopState) item(i int) any {
	if i < 0 || i >= len(l.list) {
		return undefined{what: fmt.Sprintf("item %d of a loop over %d", i+1, len(l.list))}
	}
	return l.list[i]
}

func (l loopState) cycle(_ *run, args []any, _ *Dict) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("loop.cycle of nothing")
	}
	return args[l.i%len(args)], nil
}
