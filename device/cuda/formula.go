package cuda

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"spillway/dtype"
	"spillway/op"
)

// formula prepares an update whose kind has a formula: kernels that are generated from it.
func formula(d *Device, c op.Call) (p program, err error) {
	f := op.FormulaOf(c.Kind)
	for _, t := range c.In[2 : len(c.In)-1] {
		if _, known := storageCodes[t.DType]; !known {
			return p, unsupported(fmt.Sprintf("states in %v are not handled", t.DType))
		}
	}
	u := unit{file: string(c.Kind), text: formulaSource(f), element: c.In[1].DType}
	n, last, norms := c.In[0].Shape.Elements(), len(c.In)-1, len(f.Norms())
	args, form := []arg{buffer(0)}, ""
	if c.In[0].DType == dtype.BF16 {
		form = "Pure"
	} else {
		copied, err := copyArgs(c)
		if err != nil {
			return p, err
		}
		args = append(args, copied...)
	}
	args = append(args, key(), row(), buffer(1), buffer(last), i64(n))
	for i, t := range c.In[2:last] {
		args = append(args, buffer(2+i), i64(storageCodes[t.DType]))
	}
	for _, slot := range c.Kind.Slots(f.Scalars...) {
		args = append(args, iteration(slot))
	}
	blocks := max(1, min(ceilDiv(n, updatedAtOnce), int64(d.gpu.multiprocessors)*8))
	if norms == 0 {
		return single(d.line(u, "formula"+form, blocks, threads, append(args, arg{})...))
	}
	roots, partial := scratchAt(0), scratchAt(alignment)
	p.workspace = alignment + aligned(8*blocks*int64(norms))
	err = cmp.Or(
		p.add(d.line(u, "formulaSums"+form, blocks, threads, append(args[:len(args):len(args)], partial)...)),
		p.add(d.line(u, "formulaNorms", 1, 32, partial, roots, i64(blocks))),
		p.add(d.line(u, "formula"+form, blocks, threads, append(args[:len(args):len(args)], roots)...)))
	return p, err
}

// formulaSource is the text of the kernels of a formula.
func formulaSource(f *op.Formula) string {
	var b strings.Builder
	states, norms := f.States, f.Norms()
	fmt.Fprintf(&b, "#include \"formula.h\"\n\nstruct FormulaRule {\n")
	var kept, keptParams, scalars, scalarParams strings.Builder
	for i := range f.Scalars {
		fmt.Fprintf(&b, "    float c%d;\n", i)
		fmt.Fprintf(&scalarParams, ", float c%d", i)
		fmt.Fprintf(&scalars, "c%d, ", i)
	}
	for i := range states {
		fmt.Fprintf(&keptParams, ", void *m%d, int t%d", i, i)
		fmt.Fprintf(&kept, "{m%d, t%d}, ", i, i)
	}
	fmt.Fprintf(&b, "    __device__ __forceinline__ void step(float &w, float g, float (&s)[%d], const bool (&flushed)[%d], const float *norms) const {\n", states+1, states+1)
	writeNodes(&b, f, len(f.Nodes))
	for i, v := range f.NewStates {
		fmt.Fprintf(&b, "        s[%d] = v%d;\n", i, v)
	}
	fmt.Fprintf(&b, "        w = v%d;\n    }\n", f.NewWeight)
	if len(norms) > 0 {
		fmt.Fprintf(&b, "    __device__ __forceinline__ void squares(float w, float g, const float (&s)[%d], const bool (&flushed)[%d], float (&out)[%d]) const {\n        const float *norms = nullptr;\n", states+1, states+1, len(norms))
		writeNodes(&b, f, norms[len(norms)-1])
		for i, node := range norms {
			fmt.Fprintf(&b, "        out[%d] = v%d;\n", i, f.Nodes[node].In[0])
		}
		b.WriteString("    }\n")
	}
	b.WriteString("};\n\n")
	for _, form := range []struct{ name, params, weight string }{{"", "MASTER", "Master{w, copy, type}"}, {"Pure", "PURE", "Pure{w, key, first}"}} {
		kernel := func(name, extra, call string) {
			fmt.Fprintf(&b, "extern \"C\" __global__ void __launch_bounds__(256) %s%s(%s%s%s, %s) {\n    const Kept kept[%d] = {%s{nullptr, 0}};\n    %s;\n}\n",
				name, form.name, form.params, keptParams.String(), scalarParams.String(), extra, states+1, kept.String(), call)
		}
		rule := "FormulaRule{" + strings.TrimSuffix(scalars.String(), ", ") + "}"
		kernel("formula", "const float *norms", fmt.Sprintf("formulaUpdate<%d>(%s, %s, g, kept, clip, n, key, first, norms)", states, rule, form.weight))
		if len(norms) > 0 {
			kernel("formulaSums", "double *partial", fmt.Sprintf("formulaSums<%d, %d>(%s, %s, g, kept, clip, n, partial)", states, len(norms), rule, form.weight))
		}
	}
	if len(norms) > 0 {
		fmt.Fprintf(&b, "extern \"C\" __global__ void formulaNorms(const double *partial, float *norms, i64 blocks) { formulaTotals<%d>(partial, norms, blocks); }\n", len(norms))
	}
	return b.String()
}

// arithmetics is the C++ of operations on x, y and z.
var arithmetics = map[op.Arithmetic]string{
	op.NumAdd: "__fadd_rn(%[1]s, %[2]s)", op.NumSub: "__fsub_rn(%[1]s, %[2]s)", op.NumMul: "__fmul_rn(%[1]s, %[2]s)", op.NumDiv: "__fdiv_rn(%[1]s, %[2]s)",
	op.NumFMA: "__fmaf_rn(%[1]s, %[2]s, %[3]s)", op.NumSqrt: "__fsqrt_rn(%[1]s)", op.NumAbs: "fabsf(%[1]s)",
	op.NumSign: "(%[1]s > 0 ? 1.0f : %[1]s < 0 ? -1.0f : %[1]s)", op.NumMax: "(%[1]s > %[2]s ? %[1]s : %[2]s)", op.NumMin: "(%[1]s < %[2]s ? %[1]s : %[2]s)",
	op.NumWhere: "(%[1]s != 0 ? %[2]s : %[3]s)", op.NumAbove: "(%[1]s > %[2]s ? 1.0f : 0.0f)", op.NumEqual: "(%[1]s == %[2]s ? 1.0f : 0.0f)",
}

// writeNodes writes the first nodes of a formula, and what they begin from.
func writeNodes(b *strings.Builder, f *op.Formula, count int) {
	b.WriteString("        float v0 = w, v1 = g;\n")
	for i := range f.States {
		fmt.Fprintf(b, "        float v%d = s[%d];\n", 2+i, i)
	}
	for i := range f.Scalars {
		fmt.Fprintf(b, "        float v%d = c%d;\n", 2+f.States+i, i)
	}
	norm := 0
	for i, n := range f.Nodes[:count] {
		v := func(k int) string { return fmt.Sprintf("v%d", n.In[k]) }
		text := ""
		switch n.Do {
		case op.NumConst:
			text = fmt.Sprintf("__uint_as_float(0x%08xu)", math.Float32bits(n.Const))
		case op.NumNorm:
			text = fmt.Sprintf("(norms ? norms[%d] : 0.0f)", norm)
			norm++
		case op.NumStored:
			text = fmt.Sprintf("(flushed[%d] ? flush(%s) : %s)", n.State, v(0), v(0))
		default:
			text = fmt.Sprintf(arithmetics[n.Do]+"%[4]s", v(0), v(1), v(2), "")
		}
		fmt.Fprintf(b, "        float v%d = %s;\n", f.First()+i, text)
	}
}
