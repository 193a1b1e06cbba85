package inference

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"

	"spillway"
	"spillway/data"
	"spillway/executor"
	"spillway/internal/stopwatch"
	"spillway/plan"
	"spillway/rig"
)

// Question has several answers, one of which is right.
type Question struct {
	Text    string
	Choices []string
	Answer  int // index of the right choice
}

// ChoiceResult is how many questions a model answers right: the answer is the choice with
// the highest log-likelihood after the question, or, normalized, with the highest for each byte.
type ChoiceResult struct {
	Subject
	Questions          int     `json:"questions"`
	Accuracy           float64 `json:"accuracy"`
	AccuracyNormalized float64 `json:"accuracy_normalized"`
	// Error and ErrorNormalized are standard errors of the two.
	Error           float64 `json:"accuracy_stderr"`
	ErrorNormalized float64 `json:"accuracy_normalized_stderr"`

	Seconds   float64 `json:"seconds"`
	Predicted int64   `json:"predicted_peak_bytes"`
	Measured  int64   `json:"measured_peak_bytes"`
	// Likelihoods are the log-likelihoods of all choices, by question.
	Likelihoods [][]float64 `json:"-"`
}

// questionLine is a line of a file of questions, with the names that data sets use.
type questionLine struct {
	Question, Query, Ctx, Prompt string
	Choices, Endings, Options    json.RawMessage
	Answer, Label, Gold          json.RawMessage
	AnswerKey                    string
}

// ReadQuestions reads JSON lines with a question, its choices and the answer: an index from
// 0, a letter, or the text of the right choice.
func ReadQuestions(r io.Reader) (list []Question, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		q, err := parseQuestion(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list = append(list, q)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("there are no questions; write a JSON object per line: {\"question\": \"…\", \"choices\": [\"…\", \"…\"], \"answer\": 0}")
	}
	return list, nil
}

// maxLine bounds a line of a file of questions, in bytes.
const maxLine = 16 << 20

func parseQuestion(line []byte) (q Question, err error) {
	var l questionLine
	if err := json.Unmarshal(line, &l); err != nil {
		return q, fmt.Errorf("it is not a JSON object: %w; write it like {\"question\": \"…\", \"choices\": [\"…\", \"…\"], \"answer\": 0}", err)
	}
	q.Text = cmp.Or(l.Question, l.Query, l.Ctx, l.Prompt)
	var labels []string
	for _, raw := range []json.RawMessage{l.Choices, l.Endings, l.Options} {
		if raw == nil {
			continue
		}
		var object struct{ Text, Label []string } // as ARC has them
		if json.Unmarshal(raw, &q.Choices) != nil {
			if err := json.Unmarshal(raw, &object); err != nil {
				return q, errors.New("the choices are neither a list of texts nor an object with text and label")
			}
			q.Choices, labels = object.Text, object.Label
		}
		break
	}
	if q.Text == "" || len(q.Choices) < 2 || slices.Contains(q.Choices, "") {
		return q, errors.New("a question and at least two choices are needed, none of them empty; the names are question, choices and answer")
	}
	answer := cmp.Or(string(l.Answer), string(l.Label), string(l.Gold))
	if answer == "" && l.AnswerKey != "" {
		raw, _ := json.Marshal(l.AnswerKey)
		answer = string(raw)
	}
	if q.Answer = findAnswer(answer, q.Choices, labels); q.Answer < 0 {
		return q, fmt.Errorf("the answer %s is none of the %d choices; give its index from 0, its letter or its text", cmp.Or(answer, "is missing, so it"), len(q.Choices))
	}
	return q, nil
}

// findAnswer is the index of the right choice; -1 where none is meant.
func findAnswer(raw string, choices, labels []string) int {
	var index int
	if json.Unmarshal([]byte(raw), &index) == nil {
		if index < 0 || index >= len(choices) {
			return -1
		}
		return index
	}
	var text string
	if json.Unmarshal([]byte(raw), &text) != nil {
		return -1
	}
	for _, list := range [][]string{labels, choices} {
		if i := slices.Index(list, text); i >= 0 && i < len(choices) {
			return i
		}
	}
	if len(text) == 1 && unicode.IsLetter(rune(text[0])) {
		if i := int(unicode.ToUpper(rune(text[0])) - 'A'); i >= 0 && i < len(choices) {
			return i
		}
	}
	if _, err := fmt.Sscan(text, &index); err == nil && index >= 0 && index < len(choices) {
		return index
	}
	return -1
}

// atOnce is how many choices are computed in one pass.
const atOnce = 4

// pair is a choice after its question.
type pair struct {
	tokens []int32
	start  int // of the choice in tokens
}

// pairs tokenizes the choices of a question. A choice is tokenized together with its
// question, after a space unless the question ends with one.
func (m *Model) pairs(q Question) (list []pair, err error) {
	question, err := m.Encode(q.Text)
	if err != nil {
		return nil, err
	}
	for _, choice := range q.Choices {
		if last := q.Text[len(q.Text)-1]; last != ' ' && last != '\n' {
			choice = " " + choice
		}
		whole, err := m.Encode(q.Text + choice)
		if err != nil {
			return nil, err
		}
		start := min(len(question), len(whole)-1)
		if start < 1 {
			return nil, fmt.Errorf("the question %q has no token that a choice could follow", q.Text)
		}
		list = append(list, pair{whole, start})
	}
	return list, nil
}

// Choose has a model answer questions. With a cache what the choices of a question share is computed
// once; without one each choice is computed with its question, which is slow, to compare with.
func (m *Model) Choose(ctx context.Context, questions []Question) (r ChoiceResult, err error) {
	r.Subject = m.Subject()
	var all [][]pair
	longest, most := 0, 0
	for _, q := range questions {
		list, err := m.pairs(q)
		if err != nil {
			return r, err
		}
		for _, p := range list {
			longest = max(longest, len(p.tokens))
		}
		all, most = append(all, list), max(most, len(list))
	}
	if err := m.CheckContext(int64(longest)); err != nil {
		return r, err
	}
	var sums []float64
	if m.s.NoCache {
		sums, err = m.plainLikelihoods(ctx, all, longest, &r)
	} else {
		sums, err = m.choose(ctx, all, longest, most, &r)
	}
	if err != nil {
		return r, err
	}
	for _, q := range questions {
		r.Likelihoods, sums = append(r.Likelihoods, sums[:len(q.Choices)]), sums[len(q.Choices):]
	}
	r.score(questions)
	return r, nil
}

// choose rates choices with a cache.
func (m *Model) choose(ctx context.Context, all [][]pair, longest, most int, r *ChoiceResult) (sums []float64, err error) {
	e, err := m.startChoosing(ctx, longest, most)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	start := stopwatch.Now()
	sums, err = e.cachedLikelihoods(ctx, all, func(done int) { m.s.Progress("evaluating", int64(done), int64(len(all))) })
	r.Seconds, r.Predicted, r.Measured = stopwatch.Since(start).Seconds(), e.PredictedPeak(), e.MeasuredPeak()
	return sums, err
}

// plainLikelihoods rates choices by the loss of each after its question.
func (m *Model) plainLikelihoods(ctx context.Context, questions [][]pair, longest int, r *ChoiceResult) (sums []float64, err error) {
	all := slices.Concat(questions...)
	on, job, _, err := m.prepare(ctx, func(*rig.Rig) spillway.Options {
		return spillway.Options{Task: spillway.Eval, MicroBatchSize: 1, MicroBatches: atOnce, Seq: int64(longest)}
	})
	defer func() { err = errors.Join(err, on.Close()) }()
	if err != nil {
		return nil, err
	}
	if err := m.load(ctx, job); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	start := stopwatch.Now()
	for first := 0; first < len(all); first += atOnce {
		m.s.Progress("evaluating", int64(first), int64(len(all)))
		some, err := likelihoods(ctx, job, all[first:min(first+atOnce, len(all))])
		if err != nil {
			return nil, err
		}
		sums = append(sums, some...)
	}
	r.Seconds, r.Predicted, r.Measured = stopwatch.Since(start).Seconds(), job.Plan.Peak()[plan.OnDevice], on.Allocated()
	return sums, nil
}

// likelihoods are the log-likelihoods of some choices, a micro-batch each.
func likelihoods(ctx context.Context, job *spillway.Run, list []pair) ([]float64, error) {
	e := job.Executor()
	for j := range job.Plan.MicroBatches {
		p := list[min(j, len(list)-1)] // the last again where there are no more
		for _, part := range job.Plan.Batch {
			to, err := e.BatchTensor(j, part.Name)
			if err != nil {
				return nil, err
			}
			if part.Name == "scale" {
				binary.LittleEndian.PutUint32(to, math.Float32bits(1)) // the sum, not the mean
				continue
			}
			for i := range len(to) / 4 {
				v := int32(0)
				switch part.Name {
				case "positions":
					v = int32(i)
				case "tokens":
					if i < len(p.tokens) {
						v = p.tokens[i]
					}
				case "targets":
					if v = data.Ignored; i+1 >= p.start && i+1 < len(p.tokens) {
						v = p.tokens[i+1]
					}
				}
				binary.LittleEndian.PutUint32(to[4*i:], uint32(v))
			}
		}
	}
	if err := e.CheckBatch(); err != nil {
		return nil, err
	}
	if err := e.Iterate(ctx, executor.IterationArgs{}); err != nil {
		return nil, err
	}
	var sums []float64
	for j := range list {
		sums = append(sums, -float64(e.Result(j)[0]))
	}
	return sums, nil
}

// score counts the right answers.
func (r *ChoiceResult) score(questions []Question) {
	n := float64(len(questions))
	for i, q := range questions {
		plain, normalized := 0, 0
		for k, sum := range r.Likelihoods[i] {
			if sum > r.Likelihoods[i][plain] {
				plain = k
			}
			if sum/float64(len(q.Choices[k])) > r.Likelihoods[i][normalized]/float64(len(q.Choices[normalized])) {
				normalized = k
			}
		}
		if plain == q.Answer {
			r.Accuracy += 1 / n
		}
		if normalized == q.Answer {
			r.AccuracyNormalized += 1 / n
		}
	}
	deviation := func(a float64) float64 { return math.Sqrt(max(a*(1-a), 0) / max(n-1, 1)) }
	r.Questions, r.Error, r.ErrorNormalized = len(questions), deviation(r.Accuracy), deviation(r.AccuracyNormalized)
}
