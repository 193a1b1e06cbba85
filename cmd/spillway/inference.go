package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spillway/dtype"
	"spillway/generate"
	"spillway/inference"
	"spillway/internal/term"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/recipe"
	spillwayrun "spillway/run"
	"spillway/units"
)

// usableModelHelp explains the MODEL argument of commands that use a model.
const usableModelHelp = `MODEL is a model folder as Hugging Face has them; the folder of a training run, of which
the best checkpoint is used where the run stopped early, else the newest; one of its
checkpoints; or an adapter folder, whose base model is found by the name it has there.`

// modelFlags are where and how a model is opened.
type modelFlags struct {
	adapters                []string
	tokenizer, template     string
	device, memory, maxHost string
	disk                    string
	dtype, cache            string
	noCache, exact          bool
	outliers                float64
	casting, skipCasting    string
	compress                string
}

// bindModel adds the flags that say where and how a model is opened.
func bindModel(cmd *cobra.Command, o *modelFlags) {
	f := cmd.Flags()
	f.StringArrayVar(&o.adapters, "adapter", nil, "add the adapter in `DIR`, or DIR=WEIGHT; give it again for several")
	f.StringVar(&o.tokenizer, "tokenizer", "", "use the tokenizer in `FILE`: a tokenizer.json, a .bin of llama2.c, or bytes (default: the model's own)")
	f.StringVar(&o.device, "device", "", "run on `NAME`: cpu, cuda:0 (default: the first GPU, else the CPU)")
	f.StringVar(&o.memory, "max-memory", "", "use at most `SIZE` of each device, such as 2GiB, or a size for each: 0=10GiB,cpu=64GB (default: all)")
	f.StringVar(&o.maxHost, "max-host-memory", "", "use at most `SIZE` of host memory (default: all)")
	f.StringVar(&o.disk, "disk", "", "read weights from disk that fit in neither device nor host memory: from the model's files where those have them as they are computed with, else from copies in the folder `DIR` (default: no disk)")
	f.StringVar(&o.dtype, "dtype", "", "compute in `f32|bf16|f16` (default: the type of the model's weights)")
	f.Float64Var(&o.outliers, "llm-int8-threshold", 0, "with weights in int8: round inputs to 8 bits too, but those of magnitude `X` or more, as transformers does with 6 (default: round none, which is more precise)")
	f.StringVar(&o.casting, "layerwise-casting", "", "hold weights and biases of linear layers as `float8_e4m3fn` and cast them to --dtype where they are used, as diffusers does: half of the memory of bf16 (default: as --dtype)")
	f.StringVar(&o.skipCasting, "skip-casting", "", "leave these `MODULES` out of --layerwise-casting: names or their last parts such as q_proj,down_proj, or re:PATTERN of full names (default: none; norms, embeddings and lm_head are never cast)")
	bindCompression(cmd, &o.compress)
	complete(cmd, "dtype", []string{"f32", "bf16", "f16"})
	completeModels(cmd)
}

// bindCompression adds the flag that says whether weights are compressed.
func bindCompression(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "compress-weights", "", "hold linear weights in bf16 in 12 bits each, exactly, on a CPU: `auto|on|off` (default: auto, on CPUs with AVX2, which read a quarter less)")
	complete(cmd, "compress-weights", spillwayrun.Compressions)
}

// compression is what --compress-weights says.
func compression(text string) (spillwayrun.Compression, error) {
	if text == "" {
		return spillwayrun.CompressAuto, nil
	}
	c, err := spillwayrun.ParseCompression(text)
	if err != nil {
		return c, usageErrorf("--compress-weights %q; it is %s", text, strings.Join(spillwayrun.Compressions, ", "))
	}
	return c, nil
}

// bindCache adds the flags of what is remembered of a text.
func bindCache(cmd *cobra.Command, o *modelFlags) {
	f := cmd.Flags()
	f.StringVar(&o.template, "chat-template", "", "write conversations with the Jinja template in `FILE` (default: the model's own)")
	f.StringVar(&o.cache, "cache-type", "", "store keys and values as `f32|bf16|f16|int8|fp8|int4`, or both apart: bf16:int8 (default: as --dtype)")
	f.BoolVar(&o.noCache, "no-cache", false, "compute the whole text again for every token: slow, to compare with")
	f.BoolVar(&o.exact, "exact", false, "give a text the same bits whatever is computed with it: always so on a CPU, on GPUs at some speed")
	complete(cmd, "cache-type", []string{"f32", "bf16", "f16", "int8", "fp8", "int4"})
}

// open opens the model, with progress on a line.
func (o *modelFlags) open(sh shell, name string, line *term.Line) (*inference.Model, error) {
	s := inference.Settings{
		Model: name, Tokenizer: o.tokenizer, ChatTemplate: o.template, Device: o.device, MaxMemory: o.memory, Disk: o.disk, NoCache: o.noCache, Exact: o.exact, Outliers: o.outliers,
		Rig: sh.rigOptions(line), Notice: line.Print,
		Progress: func(what string, done, total int64) {
			line.Show(func() string { return partDone(what, done, total) })
		},
	}
	s.Rig.Disk = vfs.ExistingParent(vfs.OS, o.disk)
	for _, arg := range o.adapters {
		a, err := parseAdapter(arg)
		if err != nil {
			return nil, err
		}
		s.Adapters = append(s.Adapters, inference.Adapter{Dir: a.Dir, Weight: a.Weight})
	}
	if o.maxHost != "" {
		size, err := units.ParseBytes(o.maxHost)
		if err != nil || size == 0 {
			return nil, usageErrorf("--max-host-memory %q; write it like 16GiB", o.maxHost)
		}
		s.MaxHost = size
	}
	if o.dtype != "" {
		var err error
		if s.Precision, err = dtype.ParsePlain(o.dtype); err != nil {
			return nil, usageErrorf("--dtype %q; it is f32, bf16 or f16", o.dtype)
		}
	}
	if err := o.cast(&s); err != nil {
		return nil, err
	}
	if o.outliers < 0 || o.outliers != o.outliers || o.outliers > 0 && o.exact {
		return nil, usageErrorf("--llm-int8-threshold %v: it is above 0, 6 as a rule, and has no --exact: what counts as an outlier depends on the tokens that are computed together", o.outliers)
	}
	if o.exact && o.noCache {
		return nil, usageErrorf("--exact has no effect with --no-cache, where nothing is computed with a text; leave one out")
	}
	if o.cache != "" && o.noCache {
		return nil, usageErrorf("--cache-type has no effect with --no-cache; leave one out")
	}
	var err error
	if s.Key, s.Value, err = cacheTypes(o.cache); err != nil {
		return nil, err
	}
	if s.CompressWeights, err = compression(o.compress); err != nil {
		return nil, err
	}
	return inference.Open(s)
}

// cacheTypes are the types of keys and values that --cache-type names; Invalid for "".
func cacheTypes(text string) (key, value dtype.Type, err error) {
	if text == "" {
		return key, value, nil
	}
	key, value, err = recipe.ParseCacheType(text)
	if err != nil {
		return key, value, usageErrorf("--cache-type %q; it is f32, bf16, f16, int8, fp8 or int4, or two of them with a colon between, of keys and of values", text)
	}
	return key, value, nil
}

// cast reads the flags of layerwise casting.
func (o *modelFlags) cast(s *inference.Settings) error {
	switch o.casting {
	case "":
		if o.skipCasting != "" {
			return usageErrorf("--skip-casting has no effect: nothing is cast; give --layerwise-casting float8_e4m3fn, or leave it out")
		}
		return nil
	case "float8_e4m3fn":
		s.Casting = quant.E4M3
	default:
		return usageErrorf("--layerwise-casting %q; it is float8_e4m3fn", o.casting)
	}
	if o.skipCasting != "" {
		s.SkipCasting = strings.Split(o.skipCasting, ",")
	}
	if len(o.adapters) > 0 || o.outliers > 0 {
		return usageErrorf("--layerwise-casting with --adapter or --llm-int8-threshold: adapters are added to weights as they are; merge them first (spillway merge), or leave it out")
	}
	return nil
}

// samplingFlags are how tokens are picked.
type samplingFlags struct {
	generate.Sampler
	topK int
	bias []string
	stop []string
	most int
	all  *pflag.FlagSet
}

// bindSampling adds the flags that say how tokens are picked and when a text ends.
func bindSampling(cmd *cobra.Command, o *samplingFlags, most int) {
	f := cmd.Flags()
	o.all = f
	f.IntVar(&o.most, "max-new-tokens", most, "add at most `N` tokens; 0: until the text ends or the context is full")
	f.Float64Var(&o.Temperature, "temperature", 0, "divide logits by `X` before sampling; 0 is greedy (default: what the model's generation_config.json says, else 0)")
	f.IntVar(&o.topK, "top-k", 0, "sample from the `N` most likely tokens")
	f.Float64Var(&o.TopP, "top-p", 1, "sample from the most likely tokens with a total probability of `X`")
	f.Float64Var(&o.MinP, "min-p", 0, "sample from tokens at least `X` times as likely as the most likely one")
	f.Float64Var(&o.RepetitionPenalty, "repetition-penalty", 1, "divide positive logits of tokens that the text has by `X`, multiply negative ones")
	f.Float64Var(&o.PresencePenalty, "presence-penalty", 0, "subtract `X` from the logits of tokens that were generated already")
	f.Float64Var(&o.FrequencyPenalty, "frequency-penalty", 0, "subtract `X` for each time that they were")
	f.StringArrayVar(&o.bias, "logit-bias", nil, "add to the logit of a token: `TOKEN=X`, its id or its text; -inf forbids it; give it again for several")
	f.StringArrayVar(&o.stop, "stop", nil, "end the text before `TEXT`; give it again for several")
	f.Uint64Var(&o.Seed, "seed", 0, "draw the random numbers of seed `N`; the same seed gives the same text")
}

// sampling are the names of flags that only matter where tokens are drawn.
var sampling = []string{"top-k", "top-p", "min-p", "seed"}

// request fills in how tokens are picked: flags, over what the model's makers say.
func (o *samplingFlags) request(m *inference.Model, r *generate.Request, greedy bool) error {
	d, s := m.Defaults.Sampler, o.Sampler
	given := o.all.Changed
	draws := slices.ContainsFunc(sampling, given)
	switch {
	case given("temperature") && s.Temperature == 0 && draws, greedy && (draws || given("temperature") && s.Temperature != 0):
		why := "--temperature 0 picks the most likely token"
		if greedy {
			why = "--num-beams searches for the most likely text"
		}
		for _, name := range append([]string{"temperature"}, sampling...) {
			if given(name) && !(name == "temperature" && s.Temperature == 0) {
				return usageErrorf("--%s has no effect: %s; leave one out", name, why)
			}
		}
	case given("top-p") && !(s.TopP > 0):
		return usageErrorf("--top-p %v; it is above 0 and up to 1, and --temperature 0 is greedy", s.TopP)
	case given("top-k") && o.topK < 1:
		return usageErrorf("--top-k %d; it is 1 or more, and without it all tokens count", o.topK)
	case given("repetition-penalty") && !(s.RepetitionPenalty > 0):
		return usageErrorf("--repetition-penalty %v; it is above 0, and 1 is none", s.RepetitionPenalty)
	}
	s.TopK = o.topK
	if !given("temperature") {
		if s.Temperature = d.Temperature; draws && s.Temperature == 0 {
			s.Temperature = 1
		}
	}
	if s.Temperature == 0 || greedy {
		s.Temperature, s.TopK, s.TopP, s.MinP = 0, 0, 0, 0
	} else {
		inherit(given, "top-k", &s.TopK, d.TopK)
		inherit(given, "top-p", &s.TopP, d.TopP)
		inherit(given, "min-p", &s.MinP, d.MinP)
	}
	inherit(given, "repetition-penalty", &s.RepetitionPenalty, d.RepetitionPenalty)
	s.LogitBias = nil
	for _, text := range o.bias {
		if err := o.addBias(m, &s, text); err != nil {
			return err
		}
	}
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	if o.most < 0 {
		return usageErrorf("--max-new-tokens %d; it is 0 or more", o.most)
	}
	for _, text := range o.stop {
		if text == "" {
			return usageErrorf("--stop has an empty text, at which every text would end at once")
		}
		if !utf8.ValidString(text) {
			return usageErrorf("--stop %q is not UTF-8, so no text has it", text)
		}
	}
	r.Sampler, r.Stop, r.MaxNewTokens = s, o.stop, o.most
	return nil
}

// inherit takes what the model says where no flag was given; 0 says nothing.
func inherit[V int | float64](given func(string) bool, name string, to *V, from V) {
	if !given(name) && from != 0 {
		*to = from
	}
}

func (o *samplingFlags) addBias(m *inference.Model, s *generate.Sampler, text string) error {
	at := strings.LastIndexByte(text, '=')
	if at < 1 {
		return usageErrorf("--logit-bias %q; write it as TOKEN=X, such as 13=-2 or \"hello\"=-inf", text)
	}
	bias, err := strconv.ParseFloat(text[at+1:], 64)
	if err != nil || math.IsNaN(bias) || math.IsInf(bias, 1) {
		return usageErrorf("--logit-bias %q; the bias is a number, or -inf", text)
	}
	id, err := strconv.ParseInt(text[:at], 10, 32)
	if err != nil {
		t, err := m.Tokenizer()
		if err != nil {
			return err
		}
		ids, err := t.Encode(text[:at], false)
		if err != nil || len(ids) != 1 {
			return usageErrorf("--logit-bias %q: %q is %d tokens, it must be one; give ids one by one", text, text[:at], len(ids))
		}
		id = int64(ids[0])
	}
	if id < 0 || id >= m.Info.Vocab {
		return usageErrorf("--logit-bias %q: the model has %d tokens, counted from 0", text, m.Info.Vocab)
	}
	if s.LogitBias == nil {
		s.LogitBias = map[int32]float64{}
	}
	s.LogitBias[int32(id)] = bias
	return nil
}

// readPrompt reads a prompt from a file, "-" for standard input, and takes off the line break
// at its end.
func readPrompt(sh shell, name string) (string, error) {
	var raw []byte
	var err error
	info, unknown := os.Stat(name)
	switch {
	case name == "-":
		raw, err = io.ReadAll(io.LimitReader(sh.in, maxPrompt+1))
	case unknown == nil && info.IsDir():
		return "", usageErrorf("--file %s is a folder; give a file, or - for standard input", name)
	case unknown == nil && info.Mode()&os.ModeNamedPipe != 0: // as a shell has it for <(command)
		raw, err = readPipe(name)
	default:
		raw, err = vfs.ReadFile(vfs.OS, name, maxPrompt)
	}
	if err != nil {
		return "", fmt.Errorf("reading the prompt: %w", err)
	}
	if len(raw) > maxPrompt {
		return "", fmt.Errorf("reading the prompt: it is longer than %v", units.Bytes(maxPrompt))
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r"), nil
}

// readPipe reads a named pipe to its end, as long as a prompt may be.
func readPipe(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading
	return io.ReadAll(io.LimitReader(f, maxPrompt+1))
}

// maxPrompt bounds a prompt, in bytes.
const maxPrompt = 256 << 20

// interrupted is the error of a command that Ctrl-C ended, after its output was written.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return interruption(ctx)
	}
	return err
}

// written is the error of a command that has written what it has: Ctrl-C may have ended it before it had all.
func written(ctx context.Context, err error) error {
	if err == nil && ctx.Err() != nil {
		return interruption(ctx)
	}
	return err
}
