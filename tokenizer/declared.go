package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spillway/internal/vfs"
)

// Files of a model's folder: the tokenizer, and those that may declare further tokens.
const (
	tokenizerFile = "tokenizer.json"
	settingsFile  = "tokenizer_config.json"
	specialFile   = "special_tokens_map.json" // of old folders
	addedFile     = "added_tokens.json"       // of old folders
)

// OpenFolder reads the tokenizer of a model's folder: tokenizer.json, and tokens that only the files next to it declare. Transformers
// adds those to it, with the ids that come next. Ids stay below most, which the model has.
func OpenFolder(dir string, most int64) (*Tokenizer, error) {
	declared, err := declaredIn(dir)
	if err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, tokenizerFile), func(data []byte) (*Tokenizer, error) { return parseDeclared(data, declared, most) })
}

// FolderFile is the tokenizer.json of a model's folder with the tokens that OpenFolder adds to it.
func FolderFile(dir string, most int64) ([]byte, error) {
	declared, err := declaredIn(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, tokenizerFile)
	data, err := vfs.ReadFile(vfs.OS, path, maxFile)
	if err != nil {
		return nil, err
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var file settings
	var added []addedToken
	if err = json.Unmarshal(data, &file); err == nil && file["added_tokens"] != nil {
		err = json.Unmarshal(file["added_tokens"], &added)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	more := t.vocab.missing(added, declared.tokens, most)
	if len(more) == 0 {
		return data, nil
	}
	if file["added_tokens"], err = json.Marshal(append(added, more...)); err != nil {
		return nil, err
	}
	return json.Marshal(file)
}

// missing are the declared tokens that a file does not add yet: those that the model has, with their ids, and others with the
// next ones.
func (v *vocab) missing(added, declared []addedToken, most int64) (list []addedToken) {
	there, next := map[string]bool{}, int64(len(v.tokens))
	for _, tok := range added {
		there[tok.Content], next = true, max(next, tok.ID+1)
	}
	for _, tok := range declared {
		if tok.Content == "" || there[tok.Content] {
			continue
		}
		there[tok.Content] = true
		if id, ok := v.id(tok.Content); ok {
			tok.ID = int64(id)
		} else if tok.ID = next; next < most {
			next++
		} else {
			continue // no text may have it
		}
		list = append(list, tok)
	}
	return list
}

// settings are the fields of a JSON file.
type settings map[string]json.RawMessage

func readSettings(dir, name string) (s settings, err error) {
	raw, err := vfs.ReadFile(vfs.OS, filepath.Join(dir, name), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("the tokens that %s declares: %w", filepath.Join(dir, name), err)
	}
	return s, nil
}

// declaration is what the files next to tokenizer.json change of it.
type declaration struct {
	tokens       []addedToken // in the order in which transformers adds them
	splitSpecial bool         // special tokens in a text are read as text
	prefixSpace  *bool        // whether a space is put before texts, where the tokenizer reads bytes; nil: as tokenizer.json says
}

// declaredIn reads the files of a folder.
func declaredIn(dir string) (d declaration, err error) {
	config, err := readSettings(dir, settingsFile)
	if err != nil {
		return d, err
	}
	d.splitSpecial = config.on("split_special_tokens")
	if _, given := config["add_prefix_space"]; given && config.readsBytes() {
		on := config.on("add_prefix_space")
		d.prefixSpace = &on
	}
	d.tokens, err = declaredTokens(dir, config)
	return d, err
}

// on says whether a switch is set. What is no switch is none, as in transformers.
func (s settings) on(name string) (is bool) {
	return json.Unmarshal(s[name], &is) == nil && is
}

// readsBytes says whether it is one of the classes that make their steps by add_prefix_space.
func (s settings) readsBytes() bool {
	var class string
	err := json.Unmarshal(s["tokenizer_class"], &class)
	return err == nil && slices.Contains([]string{"GPT2Tokenizer", "Qwen2Tokenizer"}, strings.TrimSuffix(class, "Fast"))
}

// declaredTokens are the tokens that tokenizer_config.json and the files next to it name.
func declaredTokens(dir string, config settings) ([]addedToken, error) {
	if raw, ok := config["added_tokens_decoder"]; ok {
		list, err := listedTokens(raw)
		return append(list, config.specials()...), err
	}
	special, err := readSettings(dir, specialFile)
	if err != nil {
		return nil, err
	}
	old, err := readSettings(dir, addedFile)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(config)
	if all == nil {
		all = settings{}
	}
	maps.Copy(all, special)
	specials := all.specials()
	list, err := oldTokens(old, specials)
	return append(list, specials...), err
}

// listedTokens reads {"32000": {"content": ...}, ...}, by ids.
func listedTokens(raw json.RawMessage) (list []addedToken, err error) {
	var byID map[string]addedToken
	if err := json.Unmarshal(raw, &byID); err != nil {
		return nil, fmt.Errorf("%s: added_tokens_decoder: %w", settingsFile, err)
	}
	for text, tok := range byID {
		if tok.ID, err = strconv.ParseInt(text, 10, 32); err != nil {
			return nil, fmt.Errorf("%s: added_tokens_decoder has the id %s, which is no integer", settingsFile, excerpt(text))
		}
		list = append(list, tok)
	}
	sortByID(list)
	return list, nil
}

// oldTokens reads {"<pad>": 32000, ...}, by ids.
func oldTokens(old settings, specials []addedToken) (list []addedToken, err error) {
	for text, raw := range old {
		tok := addedToken{Content: text, Normalized: true}
		if slices.ContainsFunc(specials, func(s addedToken) bool { return s.Content == text }) {
			tok.Normalized, tok.Special = false, true
		}
		if err := json.Unmarshal(raw, &tok.ID); err != nil {
			return nil, fmt.Errorf("%s: the id of %s: %w", addedFile, excerpt(text), err)
		}
		list = append(list, tok)
	}
	sortByID(list)
	return list, nil
}

func sortByID(list []addedToken) {
	slices.SortFunc(list, func(a, b addedToken) int { return int(a.ID - b.ID) })
}

// specialNames are the special tokens that all tokenizers have, in the order in which they are added.
var specialNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// specials are the tokens under the usual names, in the lists of further ones, and under other names that end in _token.
func (s settings) specials() (list []addedToken) {
	add := func(raw json.RawMessage) {
		if tok, ok := specialToken(raw); ok {
			list = append(list, tok)
		}
	}
	for _, name := range specialNames {
		add(s[name])
	}
	for _, name := range []string{"extra_special_tokens", "additional_special_tokens"} {
		var several []json.RawMessage
		if json.Unmarshal(s[name], &several) == nil {
			for _, raw := range several {
				add(raw)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if strings.HasSuffix(name, "_token") && !slices.Contains(specialNames, name) {
			add(s[name])
		}
	}
	return list
}

// specialToken reads a text, or an object with its content and options.
func specialToken(raw json.RawMessage) (tok addedToken, ok bool) {
	if json.Unmarshal(raw, &tok.Content) != nil {
		tok = addedToken{}
		if json.Unmarshal(raw, &tok) != nil {
			return tok, false
		}
	}
	tok.Special = true
	return tok, tok.Content != ""
}
