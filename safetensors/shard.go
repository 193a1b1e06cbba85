package safetensors

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"spillway/internal/vfs"
	"spillway/tensorfile"
)

// DefaultShard is the size in bytes above which a model is split into several files.
const DefaultShard = 5_000_000_000

// Shard is one file of a model to be written.
type Shard struct {
	Name    string
	Tensors []tensorfile.Output
	Bytes   int64 // of the tensors
}

// Split groups tensors, in the order given, into files of at most limit bytes; a
// larger tensor has a file for itself. The grouping and the names are those of
// Hugging Face's libraries. Tensors with After stay with the one they name, which they
// must follow.
func Split(tensors []tensorfile.Output, limit int64) ([]Shard, error) {
	together, err := groups(tensors)
	if err != nil {
		return nil, err
	}
	var shards []Shard
	var current Shard
	flush := func() {
		if len(current.Tensors) > 0 {
			shards = append(shards, current)
		}
		current = Shard{}
	}
	for _, c := range together {
		if c.Bytes > limit {
			shards = append(shards, c)
			continue
		}
		if c.Bytes > limit-current.Bytes {
			flush()
		}
		current.Tensors = append(current.Tensors, c.Tensors...)
		current.Bytes += c.Bytes
	}
	flush()
	return named(shards), nil
}

// groups are the tensors that belong into one file: one and those written after it.
func groups(tensors []tensorfile.Output) ([]Shard, error) {
	var all []Shard
	seen := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		n, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor %q is given twice", t.Name)
		}
		seen[t.Name] = true
		if t.After == "" {
			all = append(all, Shard{})
		}
		if len(all) == 0 || t.After != "" && all[len(all)-1].Tensors[0].Name != t.After {
			return nil, fmt.Errorf("tensor %q does not follow %q, after which it is written", t.Name, t.After)
		}
		last := &all[len(all)-1]
		last.Tensors, last.Bytes = append(last.Tensors, t), last.Bytes+n
	}
	return all, nil
}

func named(shards []Shard) []Shard {
	if len(shards) <= 1 {
		for i := range shards {
			shards[i].Name = SingleName
		}
		return shards
	}
	for i := range shards {
		shards[i].Name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
	}
	return shards
}

// WriteSet writes the weights of a model into a folder, split by limit bytes
// (DefaultShard where it is 0), with an index where there are several files. The
// files are durable, their names are not yet: see vfs.Publish.
func WriteSet(disk vfs.FS, dir string, tensors []tensorfile.Output, limit int64) error {
	if limit == 0 {
		limit = DefaultShard
	}
	shards, err := Split(tensors, limit)
	if err != nil {
		return err
	}
	for _, s := range shards {
		if err := WriteFile(disk, filepath.Join(dir, s.Name), s.Tensors); err != nil {
			return err
		}
	}
	if len(shards) < 2 {
		return nil
	}
	return vfs.WriteFile(disk, filepath.Join(dir, IndexName), func(w io.Writer) error { return writeIndex(w, shards) })
}

// writeIndex writes keys sorted and indented by two, as Hugging Face's libraries do.
func writeIndex(w io.Writer, shards []Shard) error {
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	index.WeightMap = map[string]string{}
	for _, s := range shards {
		index.Metadata.TotalSize += s.Bytes
		for _, t := range s.Tensors {
			index.WeightMap[t.Name] = s.Name
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(index)
}
