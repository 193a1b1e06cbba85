package jinja

import "slices"

// maxArguments is the largest number of parameters of a macro and of arguments of a call.
const maxArguments = 255

// parameter of a macro. defaultValue is nil if there is none.
type parameter struct {
	name         string
	defaultValue expression
}

func (p *parser) parameters() (list []parameter) {
	p.expect("(")
	for !p.accept(")") {
		if len(list) > 0 {
			p.expect(",")
		}
		q := parameter{name: p.name("a parameter")}
		if p.accept("=") {
			q.defaultValue = p.expression()
		} else if len(list) > 0 && list[len(list)-1].defaultValue != nil {
			panic(p.before("a parameter without a default after one with a default"))
		}
		if list = append(list, q); len(list) > maxArguments {
			panic(p.before("more than %d parameters", maxArguments))
		}
	}
	return list
}

func (p *parser) macro() func(*run) outcome {
	name := p.name("a macro")
	parameters := p.parameters()
	defer p.setBranching(false)()
	start := p.at
	body := p.captured("endmacro")
	callable := slices.ContainsFunc(p.tokens[start:p.at], func(t token) bool { return t.kind == nameToken && t.text == "caller" })
	return func(r *run) outcome {
		f := bodyFunction(name, parameters, body, r.scope)
		r.scope.set(name, function(func(r *run, args []any, named *Dict) any {
			if _, called := named.Values["caller"]; called && !callable {
				panic(failf("%s is called with a block, and never calls caller()", name))
			}
			return f(r, args, named)
		}))
		return goesOn
	}
}

// bodyFunction returns a function that binds its arguments and renders statements, in a
// scope inside the one where the macro was defined.
func bodyFunction(name string, parameters []parameter, body []statement, defined *scope) function {
	names := make([]string, len(parameters), len(parameters)+1)
	for i, q := range parameters {
		names[i] = q.name
	}
	names = append(names, "caller")
	return func(r *run, args []any, named *Dict) any {
		if len(args) > len(parameters) {
			panic(failf("%s takes at most %d arguments, %d are given", name, len(parameters), len(args)))
		}
		given := bind(name, args, named, names...)
		s, outer := defined.inner(), r.scope
		if caller, ok := given["caller"]; ok {
			s.set("caller", caller)
		}
		r.scope = s // defaults may name parameters before them
		for _, q := range parameters {
			v, ok := given[q.name]
			switch {
			case !ok && q.defaultValue != nil:
				v = q.defaultValue(r)
			case !ok:
				v = undefined{what: "parameter '" + q.name + "'"}
			}
			s.set(q.name, v)
		}
		r.scope = outer
		return r.capture(s, body)
	}
}

// callBlock calls a macro and gives it the block as caller().
func (p *parser) callBlock() func(*run) outcome {
	var parameters []parameter
	if p.is("(") {
		parameters = p.parameters()
	}
	callee := p.primary()
	for p.accept(".") {
		callee = callee.then(p.attribute())
	}
	args := p.arguments()
	body := p.captured("endcall")
	return func(r *run) outcome {
		f := callee(r)
		list, named := args(r)
		named.Set("caller", bodyFunction("caller", parameters, body, r.scope))
		return r.write(r.text(r.call(f, list, named)))
	}
}

func (p *parser) filterBlock() func(*run) outcome {
	first := p.filter()
	rest := p.filterChain()
	body := p.captured("endfilter")
	return func(r *run) outcome {
		return r.write(r.text(rest(r, first(r, r.capture(r.scope.inner(), body)))))
	}
}

// generationBlock records which part of the result comes from the block.
func (p *parser) generationBlock() func(*run) outcome {
	p.generation = true
	body := p.block("endgeneration")
	return func(r *run) outcome {
		if r.captured {
			panic(failf("a generation block inside a macro or block: its place in the result is not known"))
		}
		start, outer := r.out.Len(), r.scope
		r.scope = outer.inner()
		how := r.all(body)
		r.scope = outer
		r.generated = append(r.generated, Span{start, r.out.Len()})
		return how
	}
}
