package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"spillway/device/cpu/kernel"
)

// The baselines, as the table calls them.
const (
	torch = "PyTorch"
	numpy = "numpy"
)

var BaselineNames = []string{torch, numpy}

// baselineProgram measures something in another library.
type baselineProgram struct {
	baseline string
	file     string
	args     []string
	rows     []string // that it measures
	// items gives the item's name and figure of each result.
	items func(baselineResult) (item string, figure float64)
}

// baselineResult is what a program prints of one measurement; each fills some of it.
type baselineResult struct {
	N      int64   `json:"n"`
	Pass   string  `json:"pass"`
	Kind   string  `json:"kind"`
	GFlops float64 `json:"gflops"`
	GBytes float64 `json:"gb_per_s"`
	// Of programs on GPUs: which of their rows it is, what did it, and how long it took.
	Row      int     `json:"row"`
	Baseline string  `json:"baseline"`
	Seconds  float64 `json:"seconds"`
	Peak     int64   `json:"peak"`  // bytes of the GPU
	Error    string  `json:"error"` // why there is no measurement
}

// baselineAnswer is the line that a program prints.
type baselineAnswer struct {
	Version string           `json:"version"`
	Results []baselineResult `json:"results"`
}

// programs lists what is run, with our sizes.
func programs() []baselineProgram {
	sides, matmuls := []string{"--sizes"}, []string(nil)
	for _, side := range matmulSides {
		sides, matmuls = append(sides, strconv.FormatInt(side, 10)), append(matmuls, matmulItem(side))
	}
	product := func(r baselineResult) (string, float64) { return matmulItem(r.N), r.GFlops }
	half := func(of func(baselineResult) (string, float64)) func(baselineResult) (string, float64) {
		return func(r baselineResult) (string, float64) {
			item, figure := of(r)
			return item + halfSuffix, figure
		}
	}
	inBF16 := func(args []string) []string { return append(slices.Clone(args), "--dtype", "bfloat16") }
	step := func(r baselineResult) (string, float64) { return stepItem, r.GFlops }
	stepArgs := []string{"--layers", "6", "--inner", "1408", "--untied", "--batch", fmt.Sprint(stepBatch), "--positions", fmt.Sprint(stepSeq)}
	halves := make([]string, len(matmuls))
	for i, name := range matmuls {
		halves[i] = name + halfSuffix
	}
	return []baselineProgram{
		{torch, "torch_matmul.py", sides, matmuls, product},
		{numpy, "numpy_matmul.py", sides, matmuls, product},
		{torch, "torch_matmul.py", inBF16(sides), halves, half(product)},
		{torch, "torch_attention.py", []string{"-B", fmt.Sprint(attentionBatch), "-H", fmt.Sprint(attentionHeads), "-T", fmt.Sprint(attentionSeq), "-D", fmt.Sprint(attentionHead)},
			[]string{attentionForward, attentionBoth}, func(r baselineResult) (string, float64) {
				return map[string]string{"forward": attentionForward, "forward+backward": attentionBoth}[r.Pass], r.GFlops
			}},
		{torch, "torch_adamw.py", []string{"--params", fmt.Sprint(adamParams)}, []string{adamItem}, func(r baselineResult) (string, float64) {
			if r.Kind != "fused" { // the faster of PyTorch's
				return "", 0
			}
			return adamItem, r.GBytes
		}},
		{torch, "torch_llama_step.py", stepArgs, []string{stepItem}, step},
		{torch, "torch_llama_step.py", inBF16(stepArgs), []string{stepItem + halfSuffix}, half(step)},
	}
}

// baselines runs the other side of the benchmarks.
type baselines struct {
	Options
	missing []string // baselines that cannot be run
}

// once runs every program that measures a row of the report, and keeps the best figures. A
// program that cannot be run gets a note, and is not tried again.
func (p *baselines) once(ctx context.Context, r *CPUReport, show func(string)) {
	for _, program := range programs() {
		if slices.Contains(p.missing, program.baseline) || !slices.ContainsFunc(r.Results, func(i *CPURow) bool { return slices.Contains(program.rows, i.Name) }) {
			continue
		}
		show(program.baseline + ", " + strings.TrimSuffix(program.file, ".py"))
		answer, err := p.run(ctx, program)
		if err != nil {
			p.missing = append(p.missing, program.baseline)
			r.Notes = append(r.Notes, fmt.Sprintf("no comparison with %s: %v", program.baseline, err))
			continue
		}
		if name := program.baseline + " " + answer.Version; !slices.Contains(r.Baselines, name) {
			r.Baselines = append(r.Baselines, name)
		}
		for _, result := range answer.Results {
			name, figure := program.items(result)
			if i := slices.IndexFunc(r.Results, func(i *CPURow) bool { return i.Name == name }); i >= 0 {
				row := r.Results[i]
				if row.Theirs == nil {
					row.Theirs = map[string]float64{}
				}
				row.Theirs[program.baseline] = max(row.Theirs[program.baseline], figure)
			}
		}
	}
}

// instructionsOf is what tells the libraries of the baselines to use no other instructions than a set of our kernels does; "" is
// the best set.
func instructionsOf(kernels string) []string {
	switch kernels {
	case "avx2":
		return []string{"ATEN_CPU_CAPABILITY=avx2", "ONEDNN_MAX_CPU_ISA=AVX2", "MKL_ENABLE_INSTRUCTIONS=AVX2", "OPENBLAS_CORETYPE=Haswell"}
	case "portable":
		return []string{"ATEN_CPU_CAPABILITY=default", "ONEDNN_MAX_CPU_ISA=SSE41", "MKL_ENABLE_INSTRUCTIONS=SSE4_2", "OPENBLAS_CORETYPE=Prescott"}
	}
	return nil
}

func (p *baselines) run(ctx context.Context, program baselineProgram) (answer baselineAnswer, err error) {
	path := filepath.Join(p.Baselines, program.file)
	if _, err := os.Stat(path); err != nil {
		return answer, fmt.Errorf("%w; run from the source folder, or name it with --baselines", err)
	}
	cmd := exec.CommandContext(ctx, p.Python, append([]string{path, "--threads", strconv.Itoa(runtime.GOMAXPROCS(0))}, program.args...)...)
	cmd.Env = append(os.Environ(), instructionsOf(kernel.Chosen())...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n") // the last says what went wrong
		return answer, fmt.Errorf("%s %s: %w: %s", p.Python, path, err, lines[len(lines)-1])
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return answer, fmt.Errorf("%s printed %q: %w", path, out, err)
	}
	return answer, nil
}
