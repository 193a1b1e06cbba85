package tokenizer

import (
	"encoding/json"
	"slices"
)

// affixes are the ids added before and after an encoded text.
type affixes struct{ before, after []int32 }

const maxAffixes = 1024

// parsePostProcessors reads one post-processor, a Sequence of them, or null.
func parsePostProcessors(raw json.RawMessage, v *vocab) (all affixes) {
	eachStep(raw, "processors", func(kind string, raw json.RawMessage) {
		var a affixes
		switch kind {
		case "ByteLevel": // concerns offsets, which we do not report
		case "BertProcessing", "RobertaProcessing":
			a = parseBertProcessing(raw)
		case "TemplateProcessing":
			a = parseTemplate(raw)
		default:
			panic(failf("post-processor %s is not supported", excerpt(kind)))
		}
		all.before = append(a.before, all.before...)
		all.after = append(all.after, a.after...)
	})
	if n := len(all.before) + len(all.after); n > maxAffixes {
		panic(failf("%d tokens around a text, at most %d are supported", n, maxAffixes))
	}
	for _, id := range slices.Concat(all.before, all.after) {
		if !v.has(id) {
			panic(failf("it adds id %d, which no token has", id))
		}
	}
	return all
}

// parseBertProcessing reads the two tokens, each ["token", id].
func parseBertProcessing(raw json.RawMessage) affixes {
	file := parsed(raw, struct {
		CLS []json.RawMessage `json:"cls"`
		Sep []json.RawMessage `json:"sep"`
	}{})
	if len(file.CLS) != 2 || len(file.Sep) != 2 {
		panic(failf("cls and sep must each be a token and its id"))
	}
	return affixes{[]int32{parsed(file.CLS[1], int32(0))}, []int32{parsed(file.Sep[1], int32(0))}}
}

// parseTemplate reads the template for a single text, such as <s> $A </s>.
func parseTemplate(raw json.RawMessage) (a affixes) {
	file := parsed(raw, struct {
		Single []struct {
			Sequence     *struct{ ID string }
			SpecialToken *struct{ ID string }
		} `json:"single"`
		Specials map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}{})
	texts := 0
	for _, part := range file.Single {
		switch {
		case part.Sequence != nil && part.SpecialToken == nil:
			if texts++; texts > 1 || part.Sequence.ID != "A" {
				panic(failf("a template for a single text that holds another text"))
			}
		case part.SpecialToken != nil && part.Sequence == nil:
			special, ok := file.Specials[part.SpecialToken.ID]
			if !ok {
				panic(failf("special token %s is not among special_tokens", excerpt(part.SpecialToken.ID)))
			}
			if texts == 0 {
				a.before = append(a.before, special.IDs...)
			} else {
				a.after = append(a.after, special.IDs...)
			}
		default:
			panic(failf("a template part that is neither Sequence nor SpecialToken"))
		}
	}
	if texts == 0 {
		panic(failf("a template without the text"))
	}
	return a
}
