package finetune

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"spillway"
	"spillway/chat"
	"spillway/recipe"
	"spillway/tokenizer"
)

// byteModel is the vocabulary of models that read bytes.
const byteModel = 256

// tokenizerFile is what a model folder calls its tokenizer, bytesName how a recipe asks
// for bytes as tokens.
const (
	tokenizerFile = "tokenizer.json"
	bytesName     = "bytes"
)

// OpenTokenizer opens the tokenizer named, the one in the model's folder, or that of a
// model of 256 tokens, which must be bytes. It belongs to the model: one with more tokens
// is refused.
func OpenTokenizer(m *spillway.Model, name string) (*tokenizer.Tokenizer, error) {
	t, err := tokenizer.Bytes(), error(nil)
	switch {
	case name == "" && m.Folder != nil && slices.Contains(m.Folder.Tokenizer, tokenizerFile):
		t, err = tokenizer.OpenFolder(m.Folder.Dir, m.Info.Vocab)
	case name == bytesName || name == "" && m.Info.Vocab == byteModel:
	case name == "":
		err = fmt.Errorf("%s has no %s; name one with --tokenizer%s, or bytes for a model that reads bytes", m.Name, tokenizerFile, otherTokenizer(m))
	case filepath.Ext(name) == ".bin":
		t, err = tokenizer.OpenLlama2C(name)
	default:
		t, err = tokenizer.Open(name)
	}
	if err != nil {
		return nil, err
	}
	if int64(t.VocabSize()) > m.Info.Vocab {
		return nil, fmt.Errorf("the tokenizer has %d tokens, %s only %d; use the tokenizer the model was made with", t.VocabSize(), m.Name, m.Info.Vocab)
	}
	return t, nil
}

// otherTokenizer names the file of llama2.c in a model's folder, which is not taken by itself; ""
// where there is none.
func otherTokenizer(m *spillway.Model) string {
	if m.Folder == nil {
		return ""
	}
	found, err := filepath.Glob(filepath.Join(m.Folder.Dir, "tok*.bin"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return ", such as " + found[0]
}

// openTemplate opens the chat template of the recipe, or the model's own.
func openTemplate(m *spillway.Model, d recipe.Data) (*chat.Template, error) {
	dir := ""
	if m.Folder != nil {
		dir = m.Folder.Dir
	}
	var t *chat.Template
	err := chat.ErrNoTemplate
	switch {
	case d.ChatTemplate != "":
		t, err = chat.OpenFile(d.ChatTemplate, dir)
	case dir != "":
		t, err = chat.Open(dir)
	}
	if errors.Is(err, chat.ErrNoTemplate) {
		return nil, fmt.Errorf("the data holds conversations, and %s cannot write them: %w; name one with --chat-template", m.Name, err)
	}
	if err != nil {
		return nil, err
	}
	t.Now = d.Today
	return t, nil
}

// EndToken is what ends a text of a model: the first end token of its config.json that it knows, else the eos_token of the tokenizer
// in its folder. Configs of small models often have none, or that of the model whose code they use. It is nil where there is none.
func EndToken(m *spillway.Model, t *tokenizer.Tokenizer) (*int32, error) {
	c, err := m.Config()
	if err != nil {
		return nil, err
	}
	for _, id := range c.EOS {
		if int64(id) < m.Info.Vocab {
			end := int32(id)
			return &end, nil
		}
	}
	if m.Folder == nil || t == nil {
		return nil, nil
	}
	special, err := chat.SpecialTokens(m.Folder.Dir)
	if err != nil {
		return nil, err
	}
	if end, ok := t.ID(special["eos_token"]); ok {
		return &end, nil
	}
	return nil, nil
}
