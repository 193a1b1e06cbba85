package nn

import (
	"math"

	"spillway/graph"
)

// RelativeBias is a learned number for each pair of query and key and each head, by where they are to each other. What
// it gives is the mask of attention. Its table has the name that its field has: `hf:"relative_attention_bias.weight"`
// as in T5, `hf:"relative_position_bias_table"` as in Swin.
type RelativeBias struct {
	Table *Param `hf:""` // [rows heads]
	// Places says which row of the table each pair has, query by query.
	Places func(queries, keys int64) []int32
}

// NewRelativeBias has a table of so many rows, which starts as Swin's.
func NewRelativeBias(rows, heads int64, places func(queries, keys int64) []int32) *RelativeBias {
	return &RelativeBias{NewParam(Normal(0.02), rows, heads), places}
}

// Forward gives the bias [H T S] of so many queries and keys.
func (r *RelativeBias) Forward(b *graph.Builder, queries, keys int64) graph.Value {
	return b.Permute(b.Embedding(b.Integers("places", r.Places(queries, keys), queries, keys), r.Table.Value(b)), 2, 0, 1)
}

// T5Buckets are the places of T5, for queries and keys that begin at the same position: near distances have one each, far ones
// share those that are left, by the logarithm of the distance up to the largest. In both directions half of the buckets are for
// later keys; else those count as distance 0.
func T5Buckets(bothDirections bool, buckets, largest int32) func(queries, keys int64) []int32 {
	return func(queries, keys int64) []int32 {
		places := make([]int32, 0, queries*keys)
		for q := range queries {
			for k := range keys {
				places = append(places, t5Bucket(int32(k-q), bothDirections, buckets, largest))
			}
		}
		return places
	}
}

func t5Bucket(distance int32, bothDirections bool, buckets, largest int32) int32 {
	first := int32(0)
	if bothDirections {
		buckets /= 2
		if distance > 0 {
			first = buckets
		}
		distance = max(distance, -distance)
	} else {
		distance = max(-distance, 0)
	}
	near := buckets / 2
	if distance < near {
		return first + distance
	}
	far := float32(math.Log(float64(distance)/float64(near))) / float32(math.Log(float64(largest)/float64(near))) * float32(buckets-near)
	return first + min(near+int32(far), buckets-1)
}

// SwinPlaces are the places of Swin for all pairs of a window of so many patches a side: (2·window-1)² rows.
func SwinPlaces(window int64) func(queries, keys int64) []int32 {
	return func(queries, keys int64) []int32 {
		places := make([]int32, 0, queries*keys)
		for q := range queries {
			for k := range keys {
				down, right := q/window-k/window+window-1, q%window-k%window+window-1
				places = append(places, int32(down*(2*window-1)+right))
			}
		}
		return places
	}
}
