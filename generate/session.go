package generate

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"spillway/executor"
	"spillway/graph"
	"spillway/op"
	"spillway/run"
)

// Session is an engine with a cache: keys and values of all tokens so far are stored, so that
// a Step computes new tokens only. A step of the plan computes rows, which are tokens of any
// sequences: prompts in chunks, and one row of each sequence that is generated. Sequences may
// join, leave, fork and be truncated between any two steps. On a CPU, and wherever kernels
// give a row the same bits whatever is computed with it, neither chunks nor other
// sequences change a result.
//
// A session allocates nothing while it steps: the cache is as large as the plan says.
type Session struct {
	run      *run.Run
	cache    graph.KVCache
	executor *executor.Executor
	steps    []executor.Step // from few rows to many
	draws    []executor.Step // those that draw tokens, likewise
	passes   []executor.Step // of several chunks, likewise
	// Parts of all steps are counted from 0 on: the first of a step, and how many there are.
	firstPart []int
	parts     int
	vocab     int64 // tokens that the model knows
	tables    []*pageTable
	slots     []*cachedSequence // by number of the sequence in the plan; nil where free
	order     []*cachedSequence // the open ones, in the order they came
	rows      []row             // of the step at hand
	outputs   int               // of them, those that get logits
	scratch   []float32         // logits of a row, for those who want them of each
	ending    []*cachedSequence // that get logits in it
	watcher   Watcher           // nil where nobody looks
	report    StepReport        // of the step at hand, for the watcher
	closed    int               // sequences
}

// row is a token of a step.
type row struct {
	of       *cachedSequence
	position int
	output   int // of the part's results, -1 where it gets no logits
	part     int // of the step: its chunk
}

// NewSession makes an engine of a started run of the task generate. The run stays the
// caller's.
func NewSession(r *run.Run) (*Session, error) {
	p := r.Plan
	if p.Task != string(graph.Generate) || p.Cache == nil {
		return nil, fmt.Errorf("generating with a plan to %s; plan the task generate, or use NewPlain", p.Task)
	}
	if r.Executor() == nil {
		return nil, fmt.Errorf("generating with a run of %s that is not started", p.Model)
	}
	s := &Session{run: r, cache: *p.Cache, executor: r.Executor(), slots: make([]*cachedSequence, p.Cache.Slots())}
	var err error
	if s.steps, err = s.executor.Steps(); err != nil {
		return nil, fmt.Errorf("generating with %s: %w", p.Model, err)
	}
	slices.SortFunc(s.steps, func(a, b executor.Step) int {
		return cmp.Or(cmp.Compare(drawsFirst(a), drawsFirst(b)), cmp.Compare(a.Rows, b.Rows))
	})
	for len(s.steps) > 0 && s.steps[0].Draws {
		s.draws, s.steps = append(s.draws, s.steps[0]), s.steps[1:]
	}
	for _, step := range s.steps {
		if len(step.Rest) > 0 {
			s.passes = append(s.passes, step)
		}
	}
	s.steps = slices.DeleteFunc(s.steps, func(step executor.Step) bool { return len(step.Rest) > 0 })
	slices.SortFunc(s.passes, func(a, b executor.Step) int { return cmp.Compare(len(a.Rest), len(b.Rest)) })
	for n := range len(s.steps) + len(s.draws) + len(s.passes) {
		s.firstPart = append(s.firstPart, s.parts)
		s.parts += 1 + len(s.step(n).Rest)
	}
	if count, ok := s.executor.IDs("tokens"); ok {
		s.vocab = count
	}
	for _, t := range p.Batch {
		switch {
		case strings.HasPrefix(t.Name, graph.PagesPrefix):
			table, err := newPageTable(t.Name, int(t.Type.Shape[0]), int(t.Type.Shape[1]), &s.cache, s.parts)
			if err != nil {
				return nil, err
			}
			s.tables = append(s.tables, table)
		case !slices.Contains([]string{"tokens", "positions", "sequences", "outputs", "sampling"}, t.Name):
			return nil, fmt.Errorf("generating with a model that reads the batch tensor %q, which a text does not have", t.Name)
		}
	}
	return s, nil
}

// drawsFirst orders steps that draw tokens before the others.
func drawsFirst(s executor.Step) int {
	if s.Draws {
		return 0
	}
	return 1
}

// Streams is how many sequences the plan has memory for.
func (s *Session) Streams() int { return int(s.cache.Streams) }

// Context is how many tokens a sequence may have.
func (s *Session) Context() int { return int(s.cache.Context) }

// Close ends all sequences.
func (s *Session) Close() error {
	for len(s.order) > 0 {
		s.order[0].Close()
	}
	return nil
}

// Add begins a sequence.
func (s *Session) Add(prompt []int32) (Sequence, error) {
	if len(prompt) == 0 {
		return nil, errEmptyPrompt
	}
	q, err := s.open(nil)
	if err != nil {
		return nil, err
	}
	if err := q.Append(prompt...); err != nil {
		q.Close()
		return nil, err
	}
	return q, nil
}

// open takes a free slot, for a sequence or for a branch of one.
func (s *Session) open(of *cachedSequence) (*cachedSequence, error) {
	taken, most := len(s.order), s.Streams()
	if of != nil {
		taken, most = len(of.branches), int(s.cache.Branches)
	} else {
		for _, q := range s.order {
			taken -= len(q.branches)
		}
	}
	if taken >= most {
		return nil, &FullError{most}
	}
	slot := slices.Index(s.slots, nil)
	q := &cachedSequence{session: s, slot: slot, highest: -1, guessing: guessing{of: of}}
	s.slots[slot] = q
	s.order = append(s.order, q)
	return q, nil
}

// Step computes all tokens that wait, as few times as the chunks of prompts need.
func (s *Session) Step(ctx context.Context) error {
	for {
		more, err := s.Advance(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// Advance computes one step of the plan: the next token of every sequence that has one, and
// as much of waiting prompts as there is place for. It says whether tokens still wait: a
// server takes new requests in between.
func (s *Session) Advance(ctx context.Context) (more bool, err error) {
	if err := ctx.Err(); err != nil {
		return true, err
	}
	if s.ended() {
		return true, fmt.Errorf("generating with %s: its run was closed, parked or planned anew, and the cache is gone; make a new session", s.run.Plan.Model)
	}
	step := s.gather()
	if step < 0 {
		return false, nil
	}
	step = s.drawing(step)
	if err := s.prepare(step); err != nil {
		return true, err
	}
	if err := s.runStep(ctx, s.step(step)); err != nil {
		return true, fmt.Errorf("generating with %s: %w", s.run.Plan.Model, err)
	}
	for _, r := range s.rows {
		r.of.computed = r.position + 1
	}
	for _, q := range s.ending {
		q.ready, q.fetched, q.step = true, false, step
		if at := s.step(step); at.Draws {
			q.ready, q.drawn = false, int32(binary.LittleEndian.Uint32(at.Result[4*q.row:]))
			q.isDrawn = true
		}
	}
	for _, r := range s.rows {
		if r.of.each != nil {
			s.scratch = logitsOf(s.step(step).Part(r.part), r.output, s.scratch)
			r.of.each(r.position, s.scratch)
		}
	}
	s.reportStep()
	return slices.ContainsFunc(s.order, (*cachedSequence).waits), nil
}

// step is one of the steps; those that draw tokens have numbers behind the others, and passes behind
// those.
func (s *Session) step(n int) *executor.Step {
	if n < len(s.steps) {
		return &s.steps[n]
	}
	if n -= len(s.steps); n < len(s.draws) {
		return &s.draws[n]
	}
	return &s.passes[n-len(s.draws)]
}

// drawing is the step that draws tokens in place of one that gives logits, where all rows want their
// tokens drawn and there is one with place for them; else the step itself.
func (s *Session) drawing(step int) int {
	if len(s.draws) == 0 || len(s.ending) != len(s.rows) {
		return step
	}
	for _, q := range s.ending {
		if !q.draws || q.each != nil {
			return step
		}
	}
	for i := range s.draws {
		if int(s.draws[i].Rows) >= len(s.rows) {
			return len(s.steps) + i
		}
	}
	return step
}

// ended says that the memory of the session is gone.
func (s *Session) ended() bool { return s.run.Executor() != s.executor }

// gather chooses rows and the smallest step that computes them; -1 where nothing waits.
// Sequences with a single token come first, so that prompts do not hold them up.
func (s *Session) gather() (step int) {
	s.rows, s.ending, s.outputs, step = s.rows[:0], s.ending[:0], 0, -1
	if pass := s.gatherPass(); pass >= 0 {
		return pass
	}
	for _, single := range []bool{true, false} {
		for _, q := range s.order {
			n := len(q.tokens) - q.computed
			if n == 0 || (n == 1) != single {
				continue
			}
			most := int(s.steps[len(s.steps)-1].Rows) - len(s.rows)
			take := min(n, int(s.cache.Chunk), most)
			if q.each != nil {
				take = min(take, s.mostOutputs()-s.outputs)
			}
			fits := s.smallest(len(s.rows)+take, s.outputs+q.outputs(take))
			if fits < 0 && take == n && take > 1 { // its last token in a later step
				take--
				fits = s.smallest(len(s.rows)+take, s.outputs+q.outputs(take))
			}
			if take <= 0 || fits < 0 {
				continue
			}
			step = fits
			for i := range take {
				s.rows = append(s.rows, row{q, q.computed + i, -1, 0})
			}
			if s.outputs += q.outputs(take); take == n {
				s.ending = append(s.ending, q)
			}
		}
	}
	return step
}

// gatherPass chooses rows of a pass, where more tokens wait than a chunk has: all chunks go through a
// block before the next, so that weights that stream do so once. It gives -1 where a step will do.
func (s *Session) gatherPass() (pass int) {
	waiting, each := 0, false
	for _, q := range s.order {
		waiting += len(q.tokens) - q.computed
		each = each || q.each != nil && q.waits()
	}
	if len(s.passes) == 0 || waiting <= int(s.steps[len(s.steps)-1].Rows) || each {
		return -1
	}
	for pass < len(s.passes)-1 && s.room(pass) < waiting {
		pass++
	}
	at := &s.passes[pass]
	ends := 0 // in the chunk at hand
	for _, single := range []bool{true, false} {
		for _, q := range s.order {
			n := len(q.tokens) - q.computed
			if n == 0 || (n == 1) != single {
				continue
			}
			for i := range n {
				if len(s.rows)%int(at.Rows) == 0 {
					ends = 0
				}
				last := i == n-1
				if len(s.rows) == s.room(pass) || last && ends == int(at.Outputs) {
					break
				}
				s.rows = append(s.rows, row{q, q.computed + i, -1, len(s.rows) / int(at.Rows)})
				if last {
					s.ending = append(s.ending, q)
					ends++
				}
			}
		}
	}
	return len(s.steps) + len(s.draws) + pass
}

// room is how many rows a pass has.
func (s *Session) room(pass int) int {
	return int(s.passes[pass].Rows) * (1 + len(s.passes[pass].Rest))
}

// mostOutputs is how many rows of a step get logits at most.
func (s *Session) mostOutputs() (n int) {
	for i := range s.steps {
		n = max(n, int(s.steps[i].Outputs))
	}
	return n
}

// smallest is the step with the fewest rows that has place for rows and their outputs; -1
// for none.
func (s *Session) smallest(rows, outputs int) int {
	for i := range s.steps {
		if int(s.steps[i].Rows) >= rows && int(s.steps[i].Outputs) >= outputs {
			return i
		}
	}
	return -1
}

// prepare gives all rows pages and fills the batch of a step.
func (s *Session) prepare(step int) error {
	for _, q := range s.order { // whose logits the step would overwrite
		if q.ready && q.step == step && q.of == nil {
			q.fetch()
		}
	}
	for _, r := range s.rows {
		if r.position == r.of.computed || r.position%int(s.cache.Page) == 0 { // the first of a page
			for _, t := range s.tables {
				if err := t.write(s.executor, r.of.slot, r.position); err != nil {
					return err
				}
			}
		}
		r.of.highest = max(r.of.highest, r.position)
	}
	at := s.step(step)
	if at.Draws {
		settings := at.Batch["sampling"]
		for i, r := range s.rows {
			drawing := r.of.drawing
			drawing.Position = uint64(len(r.of.tokens))
			var row [op.SampleSettings]int32
			drawing.Put(row[:])
			for k, n := range row {
				binary.LittleEndian.PutUint32(settings[4*(i*op.SampleSettings+k):], uint32(n))
			}
		}
	}
	rows := s.rows
	for part := range 1 + len(at.Rest) {
		n := min(len(rows), int(at.Rows))
		s.fill(at.Part(part), rows[:n])
		rows = rows[n:]
		for _, t := range s.tables {
			t.fill(at.Part(part).Batch[t.name], s.firstPart[step]+part)
		}
	}
	return nil
}

// fill fills the batch of a part of a step with its rows.
func (s *Session) fill(at *executor.Step, rows []row) {
	tokens, positions, sequences, outputs := at.Batch["tokens"], at.Batch["positions"], at.Batch["sequences"], at.Batch["outputs"]
	if outputs != nil {
		clear(outputs)
	}
	all, ends := at.Outputs == at.Rows, 0
	for i := range int(at.Rows) {
		token, position, sequence := int32(0), 0, -1
		if i < len(rows) {
			r := &rows[i]
			token, position, sequence = r.of.tokens[r.position], r.position, r.of.slot
			if last := r.position == len(r.of.tokens)-1; last || r.of.each != nil {
				if r.output = i; !all {
					binary.LittleEndian.PutUint32(outputs[4*ends:], uint32(i))
					r.output = ends
				}
				if ends++; last {
					r.of.row, r.of.part = r.output, r.part
				}
			}
		}
		for _, f := range [...]struct {
			to    []byte
			value int32
		}{{tokens, token}, {positions, int32(position)}, {sequences, int32(sequence)}} {
			if f.to != nil {
				binary.LittleEndian.PutUint32(f.to[4*i:], uint32(f.value))
			}
		}
	}
}
