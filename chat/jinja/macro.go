package jinja

import (
	"fmt"
	"slices"
)

// parameter of a macro. defaultValue is nil if there is none.
type parameter struct {
	name         string
	defaultValue expression
}

func (p *parser) parameters() (list []parameter, err error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	for !p.accept(")") {
		if len(list) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		var q parameter
		if q.name, err = p.name("a parameter"); err != nil {
			return nil, err
		}
		if p.accept("=") {
			if q.defaultValue, err = p.expression(); err != nil {
				return nil, err
			}
		} else if len(list) > 0 && list[len(list)-1].defaultValue != nil {
			return nil, p.syntaxError("a parameter without a default after one with a default")
		}
		list = append(list, q)
	}
	return list, nil
}

func (p *parser) macro() (func(*run) error, error) {
	name, err := p.name("a macro")
	if err != nil {
		return nil, err
	}
	parameters, err := p.parameters()
	if err != nil {
		return nil, err
	}
	defer p.setBranching(false)()
	start := p.at
	body, err := p.block("endmacro")
	callable := slices.ContainsFunc(p.tokens[start:p.at], func(t token) bool { return t.kind == nameToken && t.text == "caller" })
	return func(r *run) error {
		f := bodyFunction(name, parameters, body, r.scope)
		r.scope.set(name, function(func(r *run, args []any, named *Dict) (any, error) {
			if _, called := named.Values["caller"]; called && !callable {
				return nil, fmt.Errorf("%s is called with a block, and never calls caller()", name)
			}
			return f(r, args, named)
		}))
		return nil
	}, err
}

// bodyFunction returns a function that binds its arguments and renders statements, in a
// scope inside the one where the macro was defined.
func bodyFunction(name string, parameters []parameter, body []statement, defined *scope) function {
	return func(r *run, args []any, named *Dict) (any, error) {
		s := defined.inner()
		names := make([]string, len(parameters), len(parameters)+1)
		for i, q := range parameters {
			names[i] = q.name
		}
		if len(args) > len(names) {
			return nil, fmt.Errorf("%s takes at most %d arguments, %d are given", name, len(names), len(args))
		}
		given, err := bind(name, args, named, append(names, "caller")...)
		if err != nil {
			return nil, err
		}
		if caller, ok := given["caller"]; ok {
			s.set("caller", caller)
		}
		for _, q := range parameters {
			v, ok := given[q.name]
			switch {
			case !ok && q.defaultValue != nil:
				if v, err = q.defaultValue(&run{scope: s, out: r.out, captured: true, budget: r.budget}); err != nil {
					return nil, err
				}
			case !ok:
				v = undefined{what: "parameter '" + q.name + "'"}
			}
			s.set(q.name, v)
		}
		return r.capture(s, body)
	}
}

// callBlock calls a macro and gives it the block as caller().
func (p *parser) callBlock() (func(*run) error, error) {
	var parameters []parameter
	var err error
	if p.is("(") {
		if parameters, err = p.parameters(); err != nil {
			return nil, err
		}
	}
	callee, args, err := p.callParts()
	if err != nil {
		return nil, err
	}
	body, err := p.block("endcall")
	return func(r *run) error {
		f, err := callee(r)
		if err != nil {
			return err
		}
		list, named, err := args(r)
		if err != nil {
			return err
		}
		named.Set("caller", bodyFunction("caller", parameters, body, r.scope))
		v, err := r.call(f, list, named)
		if err != nil {
			return err
		}
		return r.write(text(v))
	}, err
}

func (p *parser) filterBlock() (func(*run) error, error) {
	filter, err := p.filter()
	if err != nil {
		return nil, err
	}
	rest, err := p.filterChain()
	if err != nil {
		return nil, err
	}
	body, err := p.block("endfilter")
	return func(r *run) error {
		s, err := r.capture(r.scope.inner(), body)
		if err != nil {
			return err
		}
		v, err := filter(r, s)
		if err != nil {
			return err
		}
		if v, err = rest(r, v); err != nil {
			return err
		}
		return r.write(text(v))
	}, err
}

// generationBlock records which part of the result comes from the block.
func (p *parser) generationBlock() (func(*run) error, error) {
	p.generation = true
	body, err := p.block("endgeneration")
	return func(r *run) error {
		if r.captured {
			return fmt.Errorf("a generation block inside a macro or block: its place in the result is not known")
		}
		start := r.out.Len()
		outer := r.scope
		r.scope = outer.inner()
		err := r.all(body)
		r.scope = outer
		r.generated = append(r.generated, Span{start, r.out.Len()})
		return err
	}, err
}
