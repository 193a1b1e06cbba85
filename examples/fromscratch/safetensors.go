package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
)

// safetensors is a file in memory: the length of the header in eight bytes, the header
// (JSON with the type, shape and offsets of every tensor), then the bytes of all tensors.
type safetensors struct {
	path    string
	tensors map[string]tensor
	data    []byte
}

// tensor is one entry of the header. Offsets count from the end of the header.
type tensor struct {
	Type    string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

func openSafetensors(path string) (*safetensors, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(file) < 8 || binary.LittleEndian.Uint64(file) > uint64(len(file)-8) {
		return nil, fmt.Errorf("%s: %d bytes do not hold the header they announce", path, len(file))
	}
	end := 8 + binary.LittleEndian.Uint64(file)
	s := &safetensors{path: path, data: file[end:]}
	if err := json.Unmarshal(file[8:end], &s.tensors); err != nil {
		return nil, fmt.Errorf("%s: header: %w", path, err)
	}
	return s, nil
}

// values returns a tensor, which must have the given type, and its shape.
func values[E float32 | int64](s *safetensors, name, want string) ([]E, []int, error) {
	t := s.tensors[name]
	if t.Type != want {
		return nil, nil, fmt.Errorf("%s: tensor %s is of type %q, want %s", s.path, name, t.Type, want)
	}
	count := 1
	for _, n := range t.Shape {
		count *= n
	}
	from, to := t.Offsets[0], t.Offsets[1]
	if from < 0 || to < from || to > len(s.data) || count < 0 || to-from != count*binary.Size(E(0)) {
		return nil, nil, fmt.Errorf("%s: %s of shape %v lies at %d to %d of %d bytes", s.path, name, t.Shape, from, to, len(s.data))
	}
	out := make([]E, count)
	_, err := binary.Decode(s.data[from:to], binary.LittleEndian, out)
	return out, t.Shape, err
}
