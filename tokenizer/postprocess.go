package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// affixes are the ids added before and after an encoded text.
type affixes struct{ before, after []int32 }

const maxAffixes = 1024

// parsePostProcessors reads one post-processor, a Sequence of them, or null.
func parsePostProcessors(raw json.RawMessage, v *vocab) (affixes, error) {
	var all affixes
	err := eachStep(raw, "processors", func(kind string, raw json.RawMessage) error {
		a, err := parsePostProcessor(kind, raw)
		if err != nil {
			return err
		}
		all.before = append(a.before, all.before...)
		all.after = append(all.after, a.after...)
		return nil
	})
	if err != nil {
		return all, err
	}
	if n := len(all.before) + len(all.after); n > maxAffixes {
		return all, fmt.Errorf("%d tokens around a text, at most %d are supported", n, maxAffixes)
	}
	for _, id := range append(append([]int32{}, all.before...), all.after...) {
		if !v.has(id) {
			return all, fmt.Errorf("it adds id %d, which no token has", id)
		}
	}
	return all, nil
}

func parsePostProcessor(kind string, raw json.RawMessage) (affixes, error) {
	switch kind {
	case "ByteLevel": // concerns offsets, which we do not report
		return affixes{}, nil
	case "BertProcessing", "RobertaProcessing":
		return parseBertProcessing(raw)
	case "TemplateProcessing":
		return parseTemplate(raw)
	}
	return affixes{}, fmt.Errorf("post-processor %s is not supported", excerpt(kind))
}

// parseBertProcessing reads the two tokens, each ["token", id].
func parseBertProcessing(raw json.RawMessage) (affixes, error) {
	var file struct {
		CLS []json.RawMessage `json:"cls"`
		Sep []json.RawMessage `json:"sep"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return affixes{}, err
	}
	if len(file.CLS) != 2 || len(file.Sep) != 2 {
		return affixes{}, errors.New("cls and sep must each be a token and its id")
	}
	a := affixes{make([]int32, 1), make([]int32, 1)}
	return a, errors.Join(json.Unmarshal(file.CLS[1], &a.before[0]), json.Unmarshal(file.Sep[1], &a.after[0]))
}

// parseTemplate reads the template for a single text, such as <s> $A </s>.
func parseTemplate(raw json.RawMessage) (affixes, error) {
	var file struct {
		Single []struct {
			Sequence     *struct{ ID string }
			SpecialToken *struct{ ID string }
		} `json:"single"`
		Specials map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return affixes{}, err
	}
	var a affixes
	texts := 0
	for _, part := range file.Single {
		switch {
		case part.Sequence != nil && part.SpecialToken == nil:
			if texts++; texts > 1 || part.Sequence.ID != "A" {
				return a, errors.New("a template for a single text that holds another text")
			}
		case part.SpecialToken != nil && part.Sequence == nil:
			special, ok := file.Specials[part.SpecialToken.ID]
			if !ok {
				return a, fmt.Errorf("special token %s is not among special_tokens", excerpt(part.SpecialToken.ID))
			}
			if texts == 0 {
				a.before = append(a.before, special.IDs...)
			} else {
				a.after = append(a.after, special.IDs...)
			}
		default:
			return a, errors.New("a template part that is neither Sequence nor SpecialToken")
		}
	}
	if texts == 0 {
		return a, errors.New("a template without the text")
	}
	return a, nil
}
