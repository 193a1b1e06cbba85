package tokenizer

// Bytes is the tokenizer without a vocabulary: id b is the byte b. Any text, UTF-8
// or not, can be encoded.
func Bytes() *Tokenizer {
	v := newVocab()
	for b, letter := range byteLetter {
		if err := v.add(v.ids, string(letter), int64(b), len(byteLetter)); err != nil {
			panic(err) // the letters differ, and so do the ids
		}
	}
	t := &Tokenizer{
		vocab: v, original: newFinder(), normalized: newFinder(),
		model: &bpe{vocab: v, unknown: -1}, pre: []preTokenizer{byteLevel{}}, decoder: decoders{lettersToBytes{}},
		anyBytes: true,
	}
	return t.ready()
}
