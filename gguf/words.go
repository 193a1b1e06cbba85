package gguf

import "slices"

// splitter is a way to split a text into words before pairs of letters are joined, as
// tokenizer.json files have them: one of the names below, or a pattern whose matches are words.
type splitter string

// Splitters with names.
const (
	eachDigit   splitter = "a digit is a word"
	digitRuns   splitter = "digits are a word"
	punctuation splitter = "punctuation is a word"
	gpt2Words   splitter = "words of GPT-2, as bytes" // bytes become letters here, or in the next one
	asBytes     splitter = "as bytes"
)

// named are the splitters that are not patterns, as tokenizer.json has them.
var named = map[splitter]object{
	eachDigit:   {"type": "Digits", "individual_digits": true},
	digitRuns:   {"type": "Digits", "individual_digits": false},
	punctuation: {"type": "Punctuation", "behavior": "Contiguous"},
	gpt2Words:   {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
	asBytes:     {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
}

func (s splitter) object() object {
	if o, ok := named[s]; ok {
		return o
	}
	return object{"type": "Split", "pattern": object{"Regex": string(s)}, "behavior": "Isolated", "invert": false}
}

// Patterns, as the tokenizer.json files of these models have them.
const (
	endings      = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	blanks       = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	upper, lower = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`

	llama3Words splitter = endings + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + blanks
	qwen2Words  splitter = endings + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + blanks
	qwen35Words splitter = endings + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + blanks
	tekkenWords splitter = `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + blanks
	gpt4oWords  splitter = `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+` + endings + `?|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*` + endings + `?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + blanks

	lineEnd   splitter = `[\r\n]`
	chinese   splitter = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
	threeNumb splitter = `\p{N}{1,3}`

	deepSeekLetters splitter = "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
	deepSeekMarks   splitter = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
	deepSeek3Words  splitter = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// preTokenizer is what a name in tokenizer.ggml.pre stands for.
type preTokenizer struct {
	steps        []splitter
	nfc          bool // texts are composed first
	ignoreMerges bool // a word that is a token is that token, whatever pairs there are
	bos          bool // texts begin with a token by default
}

func (p preTokenizer) equal(q preTokenizer) bool {
	return slices.Equal(p.steps, q.steps) && p.nfc == q.nfc && p.ignoreMerges == q.ignoreMerges
}

// Ways that several names stand for.
var (
	likeGPT2   = preTokenizer{steps: []splitter{gpt2Words}}
	likeCode   = preTokenizer{steps: []splitter{eachDigit, gpt2Words}}
	likeLlama3 = preTokenizer{steps: []splitter{llama3Words, asBytes}, ignoreMerges: true, bos: true}
	likeQwen2  = preTokenizer{steps: []splitter{qwen2Words, asBytes}, nfc: true}
	likeGPT4o  = preTokenizer{steps: []splitter{gpt4oWords, asBytes}}
)

// preTokenizers by name. Any other name is refused: words would be split elsewhere.
var preTokenizers = map[string]preTokenizer{
	"gpt-2": likeGPT2, "mpt": likeGPT2, "olmo": likeGPT2, "jais": likeGPT2, "phi-2": likeGPT2,
	"smollm": likeCode, "starcoder": likeCode, "refact": likeCode, "command-r": likeCode, "exaone": likeCode, "codeshell": likeCode,
	"llama-bpe": likeLlama3, "llama3": likeLlama3, "llama-v3": likeLlama3, "falcon3": likeLlama3,
	"qwen2": likeQwen2, "deepseek-r1-qwen": likeQwen2,
	"qwen35": {steps: []splitter{qwen35Words, asBytes}},
	"tekken": {steps: []splitter{tekkenWords, asBytes}, ignoreMerges: true, bos: true},
	"gpt-4o": likeGPT4o, "llama4": likeGPT4o,
	"dbrx": {steps: []splitter{llama3Words, asBytes}}, "smaug-bpe": {steps: []splitter{llama3Words, asBytes}},
	"falcon":         {steps: []splitter{punctuation, gpt2Words, digitRuns, `[0-9][0-9][0-9]`}},
	"deepseek-llm":   {steps: []splitter{lineEnd, deepSeekLetters, deepSeekMarks, `\s+$`, chinese, digitRuns, asBytes}},
	"deepseek-coder": {steps: []splitter{lineEnd, `\s?\p{L}+`, `\s?\p{P}+`, chinese, eachDigit, asBytes}},
	"deepseek-v3":    {steps: []splitter{threeNumb, "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", deepSeek3Words, asBytes}},
}
