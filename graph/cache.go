package graph

import (
	"fmt"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// KVCache is the cache of keys and values that a model generates with. Each block has two
// tensors, keys and values, cut into pages that a table assigns to sequences.
type KVCache struct {
	Streams int64 `json:"streams"` // sequences at once
	Context int64 `json:"context"` // most positions of a sequence
	Page    int64 `json:"page"`    // positions of a page
	// Chunk is the most rows of one sequence that a step computes: layers with a window
	// store as many positions in addition to those they see.
	Chunk int64 `json:"chunk"`
	// Outputs is how many rows of a step get logits: those that the batch tensor "outputs"
	// names, or all where there are no more rows.
	Outputs int64      `json:"outputs"`
	Key     dtype.Type `json:"key"`
	Value   dtype.Type `json:"value"`
	// Filled is how many positions sequences have when a step is forecast; 0: Context. Only
	// forecasts depend on it.
	Filled int64 `json:"filled,omitempty"`
	// Exact: a row has the same bits whatever rows a step computes with it (op.Attr.Exact).
	Exact bool `json:"exact,omitempty"`
	// Draws: the step gives tokens drawn on the device instead of logits, as the batch tensor
	// "sampling" says (op.Sample).
	Draws bool `json:"draws,omitempty"`
	// Drafts is how many guessed tokens of each sequence steps compute in addition to one that is
	// certain; all rows of such steps get logits.
	Drafts int64 `json:"drafts,omitempty"`
	// Branches is how many further sequences each one may be forked into for a while, to guess several
	// continuations at once. They share all pages with it but those of their last Apart positions.
	Branches int64 `json:"branches,omitempty"`
	Apart    int64 `json:"apart,omitempty"`
}

// Slots is how many sequences the tables of pages have entries for, branches too.
func (c *KVCache) Slots() int64 { return c.Streams * (1 + c.Branches) }

// Stored is how many pages a cache has whose tables have so many entries for each sequence: all of every
// sequence, and those in which branches differ.
func (c *KVCache) Stored(pages int64) int64 {
	if c.Branches == 0 {
		return c.Streams * pages
	}
	return c.Streams * (pages + c.Branches*min(pages, (c.Apart+c.Page-2)/c.Page+1))
}

// DecodeRows is the most rows of steps that add tokens to texts, rather than compute prompts: one of each
// sequence, and those that are guessed, in all branches.
func (c *KVCache) DecodeRows() int64 {
	return max(c.Streams, min(c.Slots()*(1+c.Drafts), c.Chunk))
}

// Check refuses a cache that cannot be.
func (c *KVCache) Check() error {
	switch {
	case c.Streams < 1 || c.Context < 1 || c.Page < 1 || c.Chunk < 1 || c.Outputs < 1:
		return fmt.Errorf("a cache for %d sequences of %d positions in pages of %d, chunks of %d rows and %d outputs; all must be at least 1", c.Streams, c.Context, c.Page, c.Chunk, c.Outputs)
	case c.Streams > 1<<20 || c.Context > 1<<30:
		return fmt.Errorf("a cache for %d sequences of %d positions; the most are %d and %d", c.Streams, c.Context, 1<<20, 1<<30)
	case c.Drafts < 0 || c.Branches < 0 || c.Drafts > 1<<20 || c.Branches > 1<<10 || (c.Branches > 0) != (c.Apart > 0):
		return fmt.Errorf("a cache for %d guessed tokens in %d branches of %d positions; a branch needs positions of its own", c.Drafts, c.Branches, c.Apart)
	case !op.CacheType(c.Key) || !op.CacheType(c.Value):
		return fmt.Errorf("a cache with keys in %v and values in %v; want f32, bf16, f16, int8, fp8 or int4", c.Key, c.Value)
	}
	return nil
}

// Pages is how many pages a sequence has in a layer that sees window positions; 0 for all.
// With a window they are a ring: all that a chunk sees, wherever in a page it begins.
func (c *KVCache) Pages(window int64) int64 {
	all := (c.Context + c.Page - 1) / c.Page
	if window <= 0 {
		return all
	}
	seen := window + min(c.Chunk, c.Context) - 1
	return min(all, (seen+c.Page-2)/c.Page+1)
}

// PagesPrefix begins the names of batch tensors with tables of pages.
const PagesPrefix = "pages"

// PagesName is the batch tensor with the table of pages [Streams Pages] of layers with a
// window, 0 for none: "pages", "pages_4096". Layers whose pages are all of them share a table.
func (c *KVCache) PagesName(window int64) string {
	if c.Pages(window) == c.Pages(0) {
		return PagesPrefix
	}
	return fmt.Sprintf("%s_%d", PagesPrefix, window)
}

// CachedAttention is attention that stores keys and values of its rows in the block's cache
// and sees all that their sequences have there. Attr needs Heads, KVHeads, Scale and, as
// wanted, Window.
func (b *Builder) CachedAttention(a op.Attr, q, k, v Value) Value {
	if b.err != nil {
		return 0
	}
	if b.Cache == nil {
		b.Fail("attention with a cache, and the task %s has none", b.Task)
		return 0
	}
	a = b.attentionDefaults(a, q)
	a.Causal, a.Prob, a.Document = false, 0, b.Cache.Filled
	c := b.Cache
	pages := c.Pages(a.Window)
	kv := b.TypeOf(k).Shape.Last()
	stored := shape.Shape{c.Stored(pages), a.KVHeads, c.Page, kv / max(a.KVHeads, 1)}
	n := len(b.caches) / 2 // a block may have several attentions
	keys, values := Port{Role: Cache, Name: fmt.Sprintf("keys.%d", n)}, Port{Role: Cache, Name: fmt.Sprintf("values.%d", n)}
	out := b.Apply(op.CachedAttention, a, q, k, v,
		b.named(keys, op.Type{DType: c.Key, Shape: stored}), b.named(values, op.Type{DType: c.Value, Shape: stored}),
		b.Part("positions", dtype.I32, 1, b.Seq), b.Part("sequences", dtype.I32, 1, b.Seq),
		b.Part(c.PagesName(a.Window), dtype.I32, c.Slots(), pages))
	keys.Value, values.Value = out[0]&^b.block, out[1]&^b.block
	keys.Index, values.Index = 2*n, 2*n+1
	b.caches = append(b.caches, keys, values)
	return out[2]
}
