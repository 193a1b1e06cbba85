// Package inference opens models to use them: a folder, a run of training or an adapter
// becomes a Model with its tokenizer, chat template and settings for generating; Start makes
// a plan and loads the weights, and what it returns continues texts, holds conversations or
// is evaluated.
//
//	m, err := inference.Open(inference.Settings{Model: "./run"})
//	e, err := m.Start(ctx, inference.Size{Context: 512})
//	g, err := e.Generate(generate.Request{Prompt: ids, MaxNewTokens: 64})
//	for piece, err := range g.All(ctx) {
//		fmt.Print(piece.Text)
//	}
package inference

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spillway"
	"spillway/checkpoint"
	"spillway/dtype"
	"spillway/finetune"
	"spillway/gguf"
	"spillway/hf"
	"spillway/hub"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/quant"
	"spillway/recipe"
	"spillway/rig"
	"spillway/run"
	"spillway/tokenizer"
	"spillway/units"
)

// Settings say what to open and where to run it. All but the model may be left out.
type Settings struct {
	Model string // a model folder, the folder of a run, one of its checkpoints, or an adapter
	// Adapters are added to the model, each times its weight.
	Adapters []Adapter
	// Tokenizer is a file, or "bytes"; ChatTemplate is a file. "" takes the model's own.
	Tokenizer, ChatTemplate string

	Device    string      // as rig.Open takes it
	MaxMemory string      // of each device, as in spillway.Options
	MaxHost   units.Bytes // of host memory; 0 is no limit
	// Disk is a folder for weights that fit in neither; those that the model's files hold as they are
	// computed with are read from there. "" is none.
	Disk string
	// Precision is what is computed in; Invalid is the type that the model's weights have.
	Precision dtype.Type
	// Key and Value are the types of the cache; Invalid is Precision.
	Key, Value dtype.Type
	// NoCache computes the whole text for every token, to compare with.
	NoCache bool
	// Exact: run.Generation.Exact.
	Exact bool
	// Outliers is the threshold of LLM.int8 for weights in int8: inputs are rounded to 8 bits too,
	// as transformers does with bitsandbytes. 0 does not round them.
	Outliers float64
	// Casting is the type that weights and biases of linear layers are held in and cast from where they are used: quant.E4M3, or
	// Invalid for none. Modules of SkipCasting stay as they are.
	Casting     dtype.Type
	SkipCasting []string
	// CompressWeights: run.Options.CompressWeights.
	CompressWeights run.Compression

	Rig      rig.Options
	Progress func(what string, done, total int64) // of loading; nil is fine
	Notice   func(string)                         // of what is done otherwise than asked

	guessing  units.Bytes // that the model which guesses takes of MaxMemory
	guesses   bool        // for another model, which has the disk for itself
	quantized dtype.Type  // that linear weights are held in; Invalid is as they are stored
}

// Adapter is the folder of an adapter, or of a run that trained one.
type Adapter struct {
	Dir    string
	Weight float64 // 1 as it was trained
}

// Model is a model that is open, without memory on any device.
type Model struct {
	*spillway.Model
	Path string // of its folder, without adapters
	// Defaults are what its generation_config.json says.
	Defaults Defaults

	s         Settings
	adapter   *lora.Adapter // nil for none
	closers   []func() error
	tokenizer *tokenizer.Tokenizer
	// base is how a run that trained an adapter held its linear weights, for which it was trained; nil where they were
	// as they are stored.
	base *spillway.Options
	// runsModel is what a run was trained from, "" for none.
	runsModel string
	// runsTemplate is the file with the chat template that a run was trained with, "" for none.
	runsTemplate string
}

// Open opens a model. The caller closes it.
func Open(s Settings) (m *Model, err error) {
	if s.Notice == nil {
		s.Notice = func(string) {}
	}
	if s.Progress == nil {
		s.Progress = func(string, int64, int64) {}
	}
	m = &Model{s: s}
	defer func() {
		if err != nil {
			m, err = nil, errors.Join(err, m.Close())
		}
	}()
	if m.Path, err = m.resolve(s.Model); err != nil {
		return m, err
	}
	if m.Model, err = spillway.Open(m.Path); err != nil {
		return m, err
	}
	m.closers = append(m.closers, m.Model.Close)
	if path, err := filepath.Abs(m.Path); err == nil && checkpoint.Is(m.Path) { // step-00000120 is one of every run
		m.Name = filepath.Base(filepath.Dir(path)) + "-" + filepath.Base(path)
	}
	if m.Folder == nil {
		return m, fmt.Errorf("%s has a config and no weights, so its answers would be random; give a model folder, or make one with spillway init %s --out FOLDER", s.Model, s.Model)
	}
	if m.Info.Vocab == 0 {
		return m, fmt.Errorf("%s is a %s, which reads no tokens and generates no text", s.Model, m.Info.Type)
	}
	if err := m.openAdapters(); err != nil {
		return m, err
	}
	m.asTrained()
	if s.Tokenizer != "" { // also where only ids are asked for: it would be missing without a word
		if _, err := m.Tokenizer(); err != nil {
			return m, err
		}
	}
	if m.Defaults, err = readDefaults(m.Model); len(m.Defaults.Ignored) > 0 {
		s.Notice(fmt.Sprintf("%s asks for %s, which is not done here: texts differ from those of other programs", m.Defaults.File, strings.Join(m.Defaults.Ignored, ", ")))
	}
	m.otherEnds()
	return m, errors.Join(err, m.stopAsTrained())
}

// otherEnds decides on the tokens that only config.json names as the end of a text. Training puts them behind texts, so runs and
// adapters stop there; what other programs made goes on, as in transformers, and that is said.
func (m *Model) otherEnds() {
	ends := slices.DeleteFunc(slices.Clone(m.Defaults.Ends), func(id int32) bool { return int64(id) >= m.Info.Vocab })
	if len(ends) == 0 {
		return
	}
	if checkpoint.Is(m.Path) || len(m.s.Adapters) > 0 {
		m.Defaults.StopTokens = append(m.Defaults.StopTokens, ends...)
		return
	}
	m.s.Notice(fmt.Sprintf("%s says that texts end with tokens %v, %s says %v, which is what counts, as in transformers", hf.ConfigName, ends, hf.GenerationName, m.Defaults.StopTokens))
}

// stopAsTrained has texts end with the token that training put behind them, where no config names one that the model knows.
func (m *Model) stopAsTrained() error {
	known := func(id int32) bool { return int64(id) < m.Info.Vocab }
	if slices.ContainsFunc(m.Defaults.StopTokens, known) {
		return nil
	}
	t, err := m.Tokenizer()
	if err != nil {
		return nil // who gives ids needs none
	}
	end, err := finetune.EndToken(m.Model, t)
	if end != nil {
		m.Defaults.StopTokens = []int32{*end}
	}
	return err
}

// Close closes all files.
func (m *Model) Close() error {
	var errs []error
	for i := len(m.closers) - 1; i >= 0; i-- {
		errs = append(errs, m.closers[i]())
	}
	m.closers = nil
	return errors.Join(errs...)
}

// resolve finds the model folder: of a run its best or newest checkpoint, of an adapter the
// model that it was made for, to which it is then added.
func (m *Model) resolve(name string) (string, error) {
	for _, notice := range hub.Notices(name) {
		m.s.Notice(notice)
	}
	if _, err := os.Stat(name); err != nil {
		return name, nil // a preset, or nothing: opening says so
	}
	path, notice := checkpoint.Choose(name)
	if notice == "" && path != name {
		notice = fmt.Sprintf("%s is a run: taking its newest checkpoint, %s", name, filepath.Base(path))
	}
	if notice != "" {
		m.s.Notice(notice)
	}
	m.useRun(path)
	if !hf.IsAdapter(path) {
		return path, nil
	}
	a, err := lora.Open(path)
	if err != nil {
		return "", err
	}
	if err := a.Close(); err != nil {
		return "", err
	}
	base, err := m.baseOf(path, a.Base)
	if err != nil {
		return "", err
	}
	m.s.Adapters = append([]Adapter{{path, 1}}, m.s.Adapters...)
	m.s.Notice(fmt.Sprintf("%s is an adapter for %s", path, base))
	return base, nil
}

// baseOf finds the model that the adapter in path is for: where its run had it, by the name in the adapter's config, or
// at that path from the adapter's folder or one above.
func (m *Model) baseOf(path, name string) (string, error) {
	if name == "" && m.runsModel == "" {
		return "", fmt.Errorf("%s is an adapter that does not name its model; give the model, and --adapter %s", path, path)
	}
	for _, base := range []string{m.runsModel, name, filepath.Join(path, name), filepath.Join(path, "..", name), filepath.Join(path, "..", "..", name)} {
		if isModel(base) {
			return base, nil
		}
	}
	fetch := ""
	if h, ok := hub.ParseName(name); ok {
		fetch = fmt.Sprintf("fetch it with spillway pull %s, or ", h)
	}
	return "", fmt.Errorf("%s is an adapter for the model %q, which is not here; %sgive the folder or file of that model, and --adapter %s", path, cmp.Or(name, m.runsModel), fetch, path)
}

// isModel says whether a name is that of a model that can be opened: a folder with a config, or a file with weights.
func isModel(name string) bool {
	path, err := hub.Path(name)
	if name == "" || err != nil {
		return false
	}
	if gguf.IsFile(vfs.OS, path) || hf.IsWeightsFile(vfs.OS, path) {
		return true
	}
	_, err = os.Stat(filepath.Join(path, hf.ConfigName))
	return err == nil
}

// useRun takes what a run names in its recipe: tokenizer and chat template, where the settings name none, since a
// checkpoint has the model's own alone, and how it held the weights next to its adapter.
func (m *Model) useRun(path string) {
	if !checkpoint.Is(path) {
		return
	}
	r := recipe.New()
	r.Output.Dir = filepath.Dir(path)
	if err := r.ReadRun(); err != nil {
		m.s.Notice(fmt.Sprintf("the recipe of the run is not read, so its tokenizer, chat template and quantization are not known: %v", err))
		return
	}
	if m.s.Tokenizer == "" && r.Data.Tokenizer != "" {
		m.s.Tokenizer = r.Data.Tokenizer
		m.s.Notice(fmt.Sprintf("the run was trained with --tokenizer %s: it is used here too", m.s.Tokenizer))
	}
	m.runsModel, m.runsTemplate = r.Model, r.Data.ChatTemplate
	if r.Task == spillway.QLoRA {
		m.base = &spillway.Options{Adapters: lora.Options{Base: r.Adapters.Base, Outliers: r.Adapters.Outliers}}
		if len(r.NoQuantize) > 0 {
			m.base.Exceptions = []spillway.Exception{{Modules: r.NoQuantize}}
		}
	}
}

// Subject is what is used: a model, and the adapters next to it.
type Subject struct {
	Model    string   `json:"model"` // its folder
	Adapters []string `json:"adapters,omitempty"`
}

// Subject says what is used.
func (m *Model) Subject() Subject {
	s := Subject{Model: m.Path}
	for _, a := range m.s.Adapters {
		s.Adapters = append(s.Adapters, a.Dir)
	}
	return s
}

// asTrained holds the weights next to the adapter of a run as the run did: its numbers are for those.
func (m *Model) asTrained() {
	if m.base == nil {
		return
	}
	usual, stored := m.QuantizedType()
	m.base.Adapters.Base = cmp.Or(m.base.Adapters.Base, usual)
	if held := m.base.Adapters.Base; !stored {
		m.s.Notice(fmt.Sprintf("the run trained next to weights in %s: they are held so here too; give %s and --adapter %s to take them as they are stored", quant.Of(held).Alias, m.Path, m.s.Adapters[0].Dir))
	}
}

// chatTemplate is the file with the chat template: of the settings, or of the run; "" is the
// model's own.
func (m *Model) chatTemplate() string {
	if m.s.ChatTemplate == "" && m.runsTemplate != "" {
		m.s.ChatTemplate = m.runsTemplate
		m.s.Notice(fmt.Sprintf("the run was trained with --chat-template %s: it is used here too", m.s.ChatTemplate))
	}
	return m.s.ChatTemplate
}

// openAdapters opens the adapters, and makes one of several.
func (m *Model) openAdapters() error {
	var list []lora.Weighted
	for _, given := range m.s.Adapters {
		dir, notice := checkpoint.Choose(given.Dir)
		if notice != "" {
			m.s.Notice(notice)
		}
		a, err := lora.Open(dir)
		if err != nil {
			return fmt.Errorf("opening the adapter: %w", err)
		}
		m.closers = append(m.closers, a.Close)
		list = append(list, lora.Weighted{Adapter: a, Weight: given.Weight})
	}
	if len(list) == 0 {
		return nil
	}
	if len(list) == 1 && list[0].Weight == 1 {
		m.adapter = list[0].Adapter
		return nil
	}
	var err error
	m.adapter, err = lora.Combine("adapters of "+m.Name, list)
	return err
}

// Tokenizer opens the tokenizer of the model, or the one of the settings.
func (m *Model) Tokenizer() (_ *tokenizer.Tokenizer, err error) {
	if m.tokenizer == nil {
		m.tokenizer, err = finetune.OpenTokenizer(m.Model, m.s.Tokenizer)
	}
	return m.tokenizer, err
}

// Encode turns a prompt into tokens, with those around it that the model expects. A prompt
// that has none becomes the token that begins a text.
func (m *Model) Encode(prompt string) ([]int32, error) {
	t, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	ids, err := t.Encode(prompt, true)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		c, err := m.Config()
		if err != nil {
			return nil, err
		}
		if len(c.BOS) == 0 {
			return nil, fmt.Errorf("the prompt is empty, and %s has no token that begins a text; give at least a word", m.Name)
		}
		ids = []int32{int32(c.BOS[0])}
	}
	return ids, nil
}
