package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/chat"
	"spillway/generate"
	"spillway/inference"
	"spillway/internal/term"
)

// promptLine is a line of --prompts that is a JSON object. Messages and tools are as in the data of train: the template gets
// all of their fields.
type promptLine struct {
	Prompt   *string         `json:"prompt"`
	Messages json.RawMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
}

// settingNames are fields by which other programs set, for each prompt, what flags set here for all.
var settingNames = map[string]string{
	"max_new_tokens": "--max-new-tokens", "max_tokens": "--max-new-tokens", "max_completion_tokens": "--max-new-tokens", "temperature": "--temperature",
	"top_k": "--top-k", "top_p": "--top-p", "min_p": "--min-p", "stop": "--stop", "stop_strings": "--stop", "num_return_sequences": "--num-samples",
	"repetition_penalty": "--repetition-penalty", "presence_penalty": "--presence-penalty", "frequency_penalty": "--frequency-penalty", "logit_bias": "--logit-bias",
}

// checkSettings refuses a line that sets something for itself. Other fields, such as an answer to compare with, are the user's.
func checkSettings(line []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if flag, ok := settingNames[name]; ok {
			return fmt.Errorf("%s has no effect in a line: give %s, for all prompts, or leave it out", name, flag)
		}
	}
	return nil
}

// conversation is that of the line; nil where it has a prompt.
func (p promptLine) conversation() (*chat.Conversation, error) {
	if p.Messages == nil {
		return nil, nil
	}
	var c chat.Conversation
	var err error
	if c.Messages, err = chat.ParseMessages(p.Messages); err == nil && p.Tools != nil {
		err = c.SetTools(p.Tools)
	}
	return &c, err
}

// promptObject reads a line that is a JSON object.
func (o *generateFlags) promptObject(line string, number int) (one promptLine, err error) {
	if err := json.Unmarshal([]byte(line), &one); err != nil {
		return one, fmt.Errorf("%s, line %d: a line that begins with { is a JSON object, and this one cannot be read: %w; write it like {\"prompt\": \"…\"}", o.prompts, number, err)
	}
	if (one.Prompt == nil) == (one.Messages == nil) || one.Messages != nil && !o.chat {
		return one, usageErrorf("%s, line %d: an object has a prompt, or with --chat messages", o.prompts, number)
	}
	if err := checkSettings([]byte(line)); err != nil {
		return one, usageErrorf("%s, line %d: %v", o.prompts, number, err)
	}
	return one, nil
}

// readPrompts reads many prompts, a line each, as tokens.
func (o *generateFlags) readPrompts(sh shell, m *inference.Model) (list, stops [][]int32, err error) {
	text, err := readPrompt(sh, o.prompts)
	if err != nil {
		return nil, nil, err
	}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" {
			continue
		}
		var one promptLine
		if strings.HasPrefix(strings.TrimSpace(line), "{") {
			if one, err = o.promptObject(line, i+1); err != nil {
				return nil, nil, err
			}
			if one.Prompt != nil {
				line = *one.Prompt
			}
		}
		talk, err := one.conversation()
		if err != nil {
			return nil, nil, fmt.Errorf("%s, line %d: messages: %w", o.prompts, i+1, err)
		}
		ids, ends, err := o.encodeText(m, line, talk)
		if err != nil {
			return nil, nil, fmt.Errorf("%s, line %d: %w", o.prompts, i+1, err)
		}
		list, stops = append(list, ids), append(stops, ends)
	}
	if len(list) == 0 {
		return nil, nil, usageErrorf("%s has no prompts; write one in each line", o.prompts)
	}
	return list, stops, nil
}

// generateAll continues many prompts, several at once.
func (o *generateFlags) generateAll(ctx context.Context, sh shell, m *inference.Model, line *term.Line) (err error) {
	prompts, stops, err := o.readPrompts(sh, m)
	if err != nil {
		return err
	}
	usual, err := o.newRequest(sh, m)
	if err != nil {
		return err
	}
	longest := 0
	for _, ids := range prompts {
		longest = max(longest, len(ids))
	}
	size := inference.Size{Streams: int64(min(o.streams, o.samples*len(prompts))), Chunk: o.chunk}
	if size.Context, err = o.fit(m, &usual, longest); err != nil {
		return err
	}
	return o.inSession(ctx, sh, m, size, line, func(s session) error {
		usual.Speculation = s.draft.Speculation(s.Engine)
		return o.generateBatch(ctx, sh, s, prompts, stops, usual)
	})
}

// generateBatch continues each prompt by the usual request.
func (o *generateFlags) generateBatch(ctx context.Context, sh shell, s session, prompts, stops [][]int32, usual generate.Request) error {
	requests := make([]generate.Request, len(prompts))
	for i := range prompts {
		requests[i] = usual
		if requests[i].Prompt = prompts[i]; !o.ignoreEOS {
			requests[i].StopTokens = stops[i]
		}
	}
	b, err := s.Batch(requests)
	if err != nil {
		return err
	}
	out := &sampleWriter{w: sh.out, discard: o.asJSON, several: true, terminal: isTerminal(sh.out)}
	for piece, pieceErr := range b.All(ctx) {
		if err = pieceErr; err == nil {
			piece.Sample += piece.Request * o.samples
			err = out.write(piece.Piece)
		}
		if piece.End != "" && !o.asJSON {
			b.Forget(piece.Request) // it is written
		}
		if err != nil {
			break
		}
	}
	object := func() generated { return o.newGeneratedBatch(s.Engine, b, len(prompts)) }
	return o.finish(ctx, sh, s, out, generatedTexts{b.Statistics(), s.Streams(), object}, err)
}

func (o *generateFlags) newGeneratedBatch(e *inference.Engine, b *generate.Batch, prompts int) generated {
	t, _ := e.Model.Tokenizer() // it was opened for the prompts
	v := newStatistics(e, b.Statistics(), e.Streams())
	for i := range prompts {
		for _, r := range b.Results(i) {
			one := newOneText(r, t, o)
			one.Prompt = &i
			if len(v.Texts) == 0 {
				v.Text, v.Tokens, v.End = one.Text, one.Tokens, one.End
			}
			v.Texts = append(v.Texts, one)
		}
	}
	return v
}
