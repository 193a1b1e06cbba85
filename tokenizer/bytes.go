package tokenizer

// Bytes returns a tokenizer without a vocabulary: id b is the byte b. It encodes any
// text, UTF-8 or not.
func Bytes() *Tokenizer {
	v := newVocab()
	v.grow(len(byteLetter))
	for b, letter := range byteLetter {
		token := string(letter)
		v.tokens[b], v.shown[b], v.ids[token] = token, token, int32(b)
	}
	t := &Tokenizer{
		vocab: v, original: newFinder(nil), normalized: newFinder(nil),
		model: &bpe{vocab: v, unknown: -1}, pre: []preTokenizer{byteLevel{}}, decoder: decoders{lettersToBytes},
		anyBytes: true, bytewise: true,
	}
	return t.finish()
}
