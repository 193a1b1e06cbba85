package recipe

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"spillway"
	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/machine"
	"spillway/nn"
	"spillway/optim"
	"spillway/placement"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/quant/stored"
	"spillway/run"
	"spillway/units"
)

// Plan is what a plan is made from. A setting of the planner becomes a flag and a key of
// recipes with a line in Flags.
type Plan struct {
	spillway.Options
	// AutoBatch looks for the micro-batch size with the most tokens per second, for each device.
	AutoBatch bool
	// DeepSpeed is a configuration file of DeepSpeed; Apply reads it.
	DeepSpeed string
	// FP32Modules are computed in f32 whatever the precision, NoQuantize are not
	// quantized by QLoRA: names of modules or their last parts, or re:PATTERN.
	FP32Modules, NoQuantize []string
	// MaxHostMemory limits the host memory that is used; 0 is no limit.
	MaxHostMemory units.Bytes
	hostMemory    units.Bytes // that could be used without the limit
	// Mixture of a GGUF file's types that a preset is planned with, such as q4_k_m; "" for none.
	Mixture string
}

// NewPlan is a plan with the defaults: AdamW, a micro-batch of one sequence, and where
// adapters are trained, rank 16 on all linear layers.
func NewPlan() *Plan {
	p := &Plan{Options: spillway.Options{Task: spillway.Train, NoDecay: optim.DefaultNoDecay(), Packed: true}}
	p.Optimizer, _ = optim.Parse("adamw") // a name it knows
	p.Adapters = lora.Options{Rank: 16, Targets: []string{lora.AllLinear}, Bias: lora.NoBias, Init: hf.InitDefault}
	return p
}

// Aliases are other programs' names of some settings. They are read, not written.
var Aliases = map[string]string{"lr": "learning-rate", "optim": "optimizer", "lora-r": "lora-rank", "dtype": "precision"}

func addAliases(f *flag.FlagSet) {
	for alias, name := range Aliases {
		if of := f.Lookup(name); of != nil {
			f.Var(of.Value, alias, of.Usage)
		}
	}
}

// PlanFlags are the settings of plans for any task, not only training.
func (p *Plan) PlanFlags() *flag.FlagSet {
	f := flag.NewFlagSet("plan", flag.ContinueOnError)
	enum(f, &p.Task, "task", "what to plan, `infer|generate|train|lora|qlora`:\ninfer is a pass over whole sequences, generate tokens after prompts over a cache, train trains all weights, lora adapters next to frozen weights, qlora the same with quantized frozen weights",
		spillway.Infer, spillway.Generate, spillway.Train, spillway.LoRA, spillway.QLoRA)
	p.methodFlag(f)
	f.BoolVar(&p.Evaluates, "evaluate", false, "plan evaluations between training steps too; they use the memory that training has")
	atLeast(f, &p.Document, 0, "document-len", "forecast for documents of `N` tokens, packed into sequences (default: a document as long as a sequence; train looks at the data)")
	f.BoolVar(&p.AllLogits, "all-logits", false, "with --task infer: send the logits of every position to the host, instead of those of one position of each sequence")
	generationFlags(f, &p.Generation)
	p.Flags(f)
	addAliases(f)
	return f
}

// methodFlag declares --method, which says what is trained.
func (p *Plan) methodFlag(f *flag.FlagSet) {
	enumAs(f, &p.Task, "method", "train `full|lora|qlora`:\nfull trains all weights, lora adapters next to frozen weights, qlora the same with quantized frozen weights",
		map[string]spillway.Task{"full": spillway.Train, "lora": spillway.LoRA, "qlora": spillway.QLoRA})
}

// Flags declares the settings: the name, the help and the field of each.
func (p *Plan) Flags(f *flag.FlagSet) {
	o := &p.Options
	parsed(f, "", "batch-size", "take each optimizer step on `N` sequences; they are cut into micro-batches and divided over the devices as is fastest.\nauto finds the micro-batch with the most tokens per second, one for each device (default: micro-batch size ×\naccumulation steps × devices, or 1 where neither is given)", p.setBatchSize)
	atLeast(f, &o.MicroBatchSize, 1, "micro-batch-size", "pass `N` sequences through the model at once, on one device (default: what is fastest)")
	atLeast(f, &o.Seq, 0, "seq-len", "`N` tokens per sequence (default: what the model was made for, at most 2048)")
	atLeast(f, &o.GradientAccumulation, 1, "gradient-accumulation-steps", "add up the gradients of `N` micro-batches on each device before an optimizer step (default: what is fastest)")
	f.BoolVar(&o.CanonicalSums, "canonical-sums", false, "add up gradients in one order, micro-batch by micro-batch, so that results are the same bits on any number of equal devices\nand within any memory; plan says what it costs")
	parsed(f, "", "precision", "compute in `fp32|bf16|pure-bf16|fp16`. bf16 and fp16 have fp32 master weights; pure-bf16 has none and rounds updates\nstochastically; fp16 scales the loss (default: bf16 on a GPU, fp32 on a CPU; to generate with a model folder, the type of its weights)", p.setPrecision,
		"fp32", "bf16", "pure-bf16", "fp16")
	names(f, &p.FP32Modules, "fp32-modules", "compute these `MODULES` in fp32 whatever the precision: names or their last parts such as lm_head,norm,\nor re:PATTERN of full names")
	names(f, &p.NoQuantize, "no-quantize", "leave these `MODULES` unquantized, named in the same way")
	Optimizer(f, &o.Optimizer)
	parsed(f, "", "state-policy", "compress the optimizer state after a warm-up: `"+strings.Join(optim.Presets(), "|")+"`,\nwith options if wanted: auto:warmup=50,patience=5,codecs=exp_avg:8bit (default: never)", func(text string) (err error) {
		o.StatePolicy, err = optim.ParsePolicy(text)
		return err
	}, optim.Presets()...)
	within(f, &o.Clip, 0, math.Inf(1), "max-grad-norm", "clip gradients to a global norm of `X`; inf clips nothing and reports the norm (default: no clipping, no norm)")
	p.paramFlags(f)
	p.adapterFlags(f)
	compressionFlag(f, &p.CompressWeights)

	f.StringVar(&p.DeepSpeed, "deepspeed", "", "take batch sizes, precision, optimizer, schedule and offloading from the DeepSpeed configuration in `FILE`")
	parsed(f, "", "device-map", "where weights are stored: `auto|balanced|balanced_low_0|sequential`, or a JSON object of modules with device numbers, cpu or disk,\nor a file that has one: {\"model.layers\": 0, \"\": \"cpu\"} (default: what is fastest)", p.readDeviceMap, placement.Words...)
	parsed(f, "", "strategy", "require the strategy `NAME`, whatever is faster: "+strings.Join(strategy.Askable(), ", ")+" (default: what is fastest)", func(text string) error {
		o.Strategy = text
		_, err := strategy.Find(text)
		return err
	}, strategy.Askable()...)
	f.StringVar(&o.MaxMemory, "max-memory", "", "use at most `SIZE` of each device, such as 2GiB, or a size for each: 0=10GiB,cpu=64GB; of a GPU it is what the driver counts, context and libraries included (default: all)")
	enum(f, &o.Constraints.Updates, "optimizer-device", "run the optimizer step on `device|cpu|split`; cpu: the CPU updates weights whose optimizer state is in host memory, during the\nbackward pass (default: what is fastest)", strategy.Updaters...)
	parsed(f, "", "max-host-memory", "use at most `SIZE` of host memory; the memory of a CPU device is part of it (default: all that is available)", func(text string) (err error) {
		if p.MaxHostMemory, err = units.ParseBytes(text); err == nil && p.MaxHostMemory == 0 {
			err = fmt.Errorf("it is above 0; leave it out to use all that is available")
		}
		return err
	})
	f.StringVar(&o.Disk, "disk", "", "store in the folder `DIR` what device and host memory cannot hold (default: no disk)")
}

// paramFlags declares what is trained of the model, and how, by the names of params.
func (p *Plan) paramFlags(f *flag.FlagSet) {
	o := &p.Options
	f.Var(&List{whole: true, set: func(list []string) error {
		o.Groups = nil
		for _, text := range list {
			at := strings.LastIndexByte(text, ':')
			if at < 1 || at == len(text)-1 {
				return fmt.Errorf("%q; write PARAMS:OPTIONS, such as embeddings,norms:lr=1e-5,weight_decay=0", text)
			}
			o.Groups = append(o.Groups, optim.Group{Params: strings.Split(text[:at], ","), Options: text[at+1:]})
		}
		_, err := optim.GroupOf(o.Groups, nil)
		return err
	}}, "param-group", "train some params with options of their own, `PARAMS:OPTIONS` such as embeddings,norms:lr=1e-5,weight_decay=0: params by the words biases, norms,\nembeddings or by regular expressions of their names, options as behind the name of --optimizer; may be given several times, the first that matches counts")
	names(f, &o.Freeze, "freeze", "do not train the params that match one of these `PATTERNS`: biases, norms, embeddings, or regular expressions of names such as layers[.][0-3][.]")
	Average(f, &o.Average)
	f.BoolVar(&o.Centralize, "centralize-gradients", false, "take the mean over all dimensions but the first off the gradients of matrices, before they are clipped (gradient centralization)")
}

// Average declares --ema.
func Average(f *flag.FlagSet, to *float64) {
	parsed(f, "", "ema", "keep a running average of the weights that decays by `X` a step, such as 0.999, in f32 with the optimizer state; evaluations are of the\naverage, and export --average writes it (default: none)", func(text string) error {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x > 0 && x < 1) {
			return fmt.Errorf("%q is not a number between 0 and 1, such as 0.999", text)
		}
		*to = x
		return nil
	})
}

// Optimizer declares --optimizer, which Hugging Face calls --optim.
func Optimizer(f *flag.FlagSet, to *optim.Config) {
	parsed(f, to.String(), "optimizer", "update weights as `NAME` does: "+strings.Join(optim.Names(), ", ")+"; with "+optim.StorageEndings()+" for its state (paged_ is accepted: a plan may always keep\nthe state in host memory), and options if wanted: adamw_8bit:beta2=0.95", func(text string) (err error) {
		*to, err = optim.Parse(text)
		return err
	}, optim.Names()...)
}

// adapterFlags declares the settings of LoRA and QLoRA. The names are PEFT's.
func (p *Plan) adapterFlags(f *flag.FlagSet) {
	a := &p.Adapters
	atLeast(f, &a.Rank, 1, "lora-rank", "rank `N` of the adapters")
	parsed(f, "", "lora-alpha", "scale what adapters add by `X`/rank (default: twice the rank)", func(text string) error {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x > 0 && x <= 1e9) {
			return fmt.Errorf("%q is not a number above 0, at most 1e9", text)
		}
		a.Alpha = x
		return nil
	})
	within(f, &a.Dropout, 0, 1, "lora-dropout", "dropout `X` on the input of adapters while training")
	modules(f, &a.Targets, &a.TargetPattern, "target-modules", "linear layers that get adapters: `NAMES` such as q_proj,v_proj, all-linear, or re:PATTERN of full names")
	modules(f, &a.Exclude, &a.ExcludePattern, "exclude-modules", "linear layers that get none: `NAMES`, or re:PATTERN")
	numbers(f, &a.Layers, "layers-to-transform", "add adapters only to the layers with these `NUMBERS` (default: all)")
	byName(f, &a.RankPattern, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 32) }, "rank-pattern", "other ranks by layer, `NAME=RANK`,...")
	byName(f, &a.AlphaPattern, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }, "alpha-pattern", "other alphas by layer, `NAME=ALPHA`,...")
	names(f, &a.ModulesToSave, "modules-to-save", "train these modules in full next to the adapters: `NAMES` such as lm_head")
	f.BoolVar(&a.RankStabilized, "use-rslora", false, "scale by alpha over the square root of the rank (rsLoRA)")
	f.BoolVar(&a.DoRA, "use-dora", false, "train the magnitudes of adapted weights too (DoRA)")
	enum(f, &a.Bias, "lora-bias", "biases of the model to train: `none|all|lora_only`", lora.NoBias, lora.AllBiases, lora.LoRAOnly)
	enum(f, &a.Init, "init-lora-weights", "how adapters start, `true|gaussian|false`: with true and gaussian they add nothing at first", hf.InitDefault, hf.InitGaussian, hf.InitRandom)
	parsed(f, "", "quantization", "`FORMAT` of the frozen weights of qlora, or of the linear layers of a model that is only run: "+strings.Join(stored.Written(), ", ")+"; of a preset\nthat is only run also as in GGUF files: "+strings.Join(mixtures(), ", ")+" (default: that of a quantized folder; else nf4 in qlora, and none)", func(text string) (err error) {
		if a.Base, err = quant.ParseWeights(text); err == nil {
			p.Mixture = ""
			return nil
		}
		if !slices.Contains(mixtures(), text) {
			return fmt.Errorf("unknown format of quantized weights %q: it is %s, or of a preset that is only run %s", text, strings.Join(stored.Written(), ", "), strings.Join(mixtures(), ", "))
		}
		p.Mixture = text
		return nil
	}, append(stored.Written(), mixtures()...)...)
	within(f, &a.Outliers, 0, 1e9, "llm-int8-threshold", "with --quantization int8: multiply integers, and inputs of magnitude `X` or more in floating point, as LLM.int8\ndoes with 6 (default: multiply by dequantized weights)")
}

// mixtures are those of GGUF files that have weights of several types.
func mixtures() []string {
	return slices.DeleteFunc(run.GGUFMixtures(), func(name string) bool {
		_, err := quant.ParseWeights(name)
		return err == nil
	})
}

// modules is a list of module names, or one pattern of full names behind re:.
func modules(f *flag.FlagSet, list *[]string, pattern *string, name, help string) {
	f.Var(&List{values: *list, set: func(given []string) error {
		*list, *pattern = given, ""
		if text, ok := strings.CutPrefix(strings.Join(given, ","), nn.Pattern); ok {
			*list, *pattern = nil, text
		}
		return nil
	}}, name, help)
}

// setBatchSize takes a number, or auto.
func (p *Plan) setBatchSize(text string) error {
	if p.AutoBatch = text == "auto"; p.AutoBatch {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("it is a number from 1 on, or auto")
	}
	p.BatchSize = n
	return nil
}

// setPrecision takes a precision by the name users know.
func (p *Plan) setPrecision(text string) error {
	of, err := dtype.ParsePlain(strings.TrimPrefix(text, "pure-"))
	if pure := strings.HasPrefix(text, "pure-"); err != nil || pure && of != dtype.BF16 {
		return fmt.Errorf("it is fp32, bf16, pure-bf16 or fp16")
	}
	p.Precision, p.Pure = of, strings.HasPrefix(text, "pure-")
	return nil
}

// readDeviceMap takes the map from the text, or from the file it names.
func (p *Plan) readDeviceMap(text string) error {
	if !slices.Contains(placement.Words, text) && !strings.HasPrefix(strings.TrimSpace(text), "{") {
		raw, err := vfs.ReadFile(vfs.OS, text, maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it is neither %s, a JSON object nor a file", strings.Join(placement.Words, ", "))
		}
		if err != nil {
			return err
		}
		text = string(raw)
	}
	m, err := placement.ParseMap(text)
	p.DeviceMap = &m
	return err
}

// Within is a machine of whose host memory no more is used than the settings allow.
func (p *Plan) Within(m machine.Machine) machine.Machine {
	if p.MaxHostMemory > 0 {
		if p.hostMemory == 0 {
			p.hostMemory = m.Host.Usable
		}
		m.Host.Usable = min(m.Host.Usable, p.MaxHostMemory)
	}
	return m
}

// Complete fills in what depends on other settings: the type to compute in by the kind of
// the device, LoRA's alpha by its rank, and the exceptions among modules.
func (p *Plan) Complete(d machine.Device) spillway.Options {
	o := p.Options
	if o.Precision == dtype.Invalid {
		o.Precision = dtype.F32
		if d.Kind == machine.GPU {
			o.Precision = dtype.BF16
		}
	}
	// A micro-batch for each device where nobody says how many sequences a step takes.
	if o.BatchSize == 0 && o.MicroBatches == 0 && (p.AutoBatch || o.MicroBatchSize > 0) {
		o.GradientAccumulation = max(o.GradientAccumulation, 1)
	}
	o.Device = d.Name
	o.Packed = o.Task.Trains() || o.Task == spillway.Eval
	if o.Adapters.Alpha == 0 {
		o.Adapters.Alpha = 2 * float64(o.Adapters.Rank)
	}
	o.Adapters.Strict = true
	switch o.Task {
	case spillway.LoRA:
		o.Adapters.Base, o.Adapters.Outliers = dtype.Invalid, 0
	case spillway.QLoRA:
	case spillway.Infer, spillway.Generate:
		o.Adapters = lora.Options{Base: o.Adapters.Base, Outliers: o.Adapters.Outliers}
	default:
		o.Adapters = lora.Options{}
	}
	if len(p.NoQuantize) > 0 {
		o.Exceptions = append(o.Exceptions, spillway.Exception{Modules: p.NoQuantize})
	}
	if len(p.FP32Modules) > 0 {
		o.Exceptions = append(o.Exceptions, spillway.Exception{Modules: p.FP32Modules, Type: dtype.F32})
	}
	return o
}

// MaxMicroBatchSize bounds the search for a micro-batch size.
const MaxMicroBatchSize = 1 << 12
