package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"spillway/internal/vfs"
)

// Trained carries out the training runs that are known by their names as spillway train does: on
// files of tokens, packed, from random weights. Forecasts are compared with what is measured.
func Trained(ctx context.Context, o Options) (*RandomReport, error) {
	var list []func() (*RandomRow, error)
	for i, row := range trainedRows() {
		if o.wants(row.Name) {
			list = append(list, func() (*RandomRow, error) {
				d := drawing{Rand: rand.New(rand.NewPCG(0, uint64(i))), gpu: true, named: true}
				dir, remove, err := vfs.TempDir("spillway-trained")
				if err != nil {
					return row, err
				}
				defer remove() // nothing of it is needed again
				return row, row.carryOut(ctx, dir, d, o)
			})
		}
	}
	return compare(ctx, list, o)
}

// trainedRows are sizes that people train: with everything on the GPU, and within less memory. Sequences
// are one document each, or of many.
func trainedRows() (list []*RandomRow) {
	type settings = map[string]string
	for _, w := range []struct {
		name, model string
		rows, seq   int
		settings
	}{
		{"qwen2.5-3b", `"qwen2.5-3b"`, 2, 3000, nil},
		{"llama-1.1b", benchConfigs[model11B], 4, 2048, nil},
		{"llama-3.2-3b in 12GiB", `"llama-3.2-3b"`, 2, 4096, settings{"max-memory": "12GiB"}},
		{"qwen2.5-3b all in bf16", `"qwen2.5-3b"`, 2, 3000, settings{"precision": "pure-bf16", "optimizer": "adamw_bf16"}},
		{"qwen2.5-3b in 9GiB", `"qwen2.5-3b"`, 2, 3000, settings{"max-memory": "9GiB"}},
		{"llama-3.2-3b in 12GiB", `"llama-3.2-3b"`, 8, 4096, settings{"max-memory": "12GiB"}},
		{"lora of qwen2.5-7b in 8GiB", `"qwen2.5-7b"`, 3, 1500, settings{"max-memory": "8GiB", "method": "lora"}},
		{"qlora of llama-3-8b in 6GiB", `"llama-3-8b"`, 1, 2048, settings{"max-memory": "6GiB", "method": "qlora", "optimizer": "adamw_8bit"}},
		{"llama-3-8b in 24GiB", `"llama-3-8b"`, 8, 4096, settings{"max-memory": "24GiB"}},
	} {
		for _, documents := range []int{0, documentTokens} {
			name := fmt.Sprintf("%s of %d × %d in whole sequences", w.name, w.rows, w.seq)
			if documents > 0 {
				name = fmt.Sprintf("%s of %d × %d in documents of %d", w.name, w.rows, w.seq, documents)
			}
			all := settings{"precision": "bf16", "batch-size": fmt.Sprint(w.rows), "seq-len": fmt.Sprint(w.seq)}
			for key, value := range w.settings {
				all[key] = value
			}
			list = append(list, &RandomRow{Name: name, Model: json.RawMessage(w.model), Settings: all, Documents: documents})
		}
	}
	return list
}
