package recipe

import (
	"flag"
	"fmt"
	"strings"

	"spillway"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/run"
)

// generationSettings are those that only the task generate reads, batchSettings those that it
// does not.
var (
	generationSettings = []string{"context", "streams", "chunk", "cache-type", "exact"}
	batchSettings      = []string{"batch-size", "micro-batch-size", "seq-len"}
)

// generationFlags declares the settings of the cache and the steps of generation.
func generationFlags(f *flag.FlagSet, g *run.Generation) {
	atLeast(f, &g.Context, 1, "context", "store up to `N` tokens of each sequence, prompt included (default: what the model was made for, at most 2048)")
	atLeast(f, &g.Streams, 1, "streams", "generate `N` sequences at once (default: 1)")
	atLeast(f, &g.Chunk, 1, "chunk", "compute at most `N` tokens of prompts at once (default: 512 on a CPU, 2048 on a GPU)")
	f.BoolVar(&g.Exact, "exact", false, "give a sequence the same bits whatever is computed with it: always so on a CPU, on GPUs at some speed")
	parsed(f, "", "cache-type", "store keys and values in `"+strings.Join(cacheTypeNames(), "|")+"`; two types, such as int8:fp8, are those of keys and of values (default: as computed)", func(text string) (err error) {
		g.Key, g.Value, err = ParseCacheType(text)
		return err
	}, cacheTypeNames()...)
}

// compressionFlag declares --compress-weights.
func compressionFlag(f *flag.FlagSet, to *run.Compression) {
	parsed(f, "", "compress-weights", CompressionHelp, func(text string) (err error) {
		*to, err = run.ParseCompression(text)
		return err
	}, run.Compressions...)
}

// CompressionHelp says what the setting is for.
const CompressionHelp = "hold frozen linear weights in bf16 in 12 bits each, `auto|on|off`; every bit of what is computed stays as it is. auto: on CPUs with\nAVX2 that infer or generate, which read a quarter less. on: also those that stream to a GPU, over its link and for the CPU\nnext to it, which was not measured on a GPU yet (default: auto)"

// cacheTypes are the types of a cache by the names that users know, largest first.
var cacheTypes = []struct {
	name string
	t    dtype.Type
}{{"fp32", dtype.F32}, {"bf16", dtype.BF16}, {"fp16", dtype.F16}, {"int8", quant.RowI8}, {"fp8", quant.RowF8}, {"int4", quant.RowI4}}

func cacheTypeNames() (names []string) {
	for _, c := range cacheTypes {
		names = append(names, c.name)
	}
	return names
}

// ParseCacheType reads the type of a cache, or those of keys and values: "bf16", "int8:fp8", with a colon
// or a comma between.
func ParseCacheType(text string) (key, value dtype.Type, err error) {
	of := func(name string) dtype.Type {
		for _, c := range cacheTypes {
			if c.name == name {
				return c.t
			}
		}
		if t, plain := dtype.ParsePlain(name); plain == nil && op.CacheType(t) {
			return t
		}
		err = fmt.Errorf("it is %s, or two of them for keys and values: int8:fp8", strings.Join(cacheTypeNames(), ", "))
		return dtype.Invalid
	}
	first, second, both := strings.Cut(strings.Replace(text, ",", ":", 1), ":")
	if !both {
		second = first
	}
	return of(first), of(second), err
}

// CacheTypeName is the type of a cache as users know it: "bf16", or "int8:fp8" of keys and
// values.
func CacheTypeName(g run.Generation) string {
	name := func(t dtype.Type) string {
		for _, c := range cacheTypes {
			if c.t == t {
				return c.name
			}
		}
		return t.String()
	}
	if g.Key == g.Value {
		return name(g.Key)
	}
	return name(g.Key) + ":" + name(g.Value)
}

// smallerCaches are ways to generate within less memory, of each of which the first that fits
// is wanted: fewer sequences, shorter ones, 8 or 4 bits, smaller chunks of prompts, and 8 bits with
// fewer sequences or shorter ones.
func (p *Plan) smallerCaches(m *spillway.Model, o spillway.Options) [][]way {
	g := o.Generation
	if g.Context == 0 {
		g.Context = m.UsualSeq()
	}
	var streams, contexts, bits, chunks, both []way
	coded := way{"--cache-type int8", func(o *spillway.Options) { o.Generation.Key, o.Generation.Value = quant.RowI8, quant.RowI8 }}
	if !g.Key.Block() && !g.Value.Block() {
		bits = append(bits, coded, way{"--cache-type int4", func(o *spillway.Options) { o.Generation.Key, o.Generation.Value = quant.RowI4, quant.RowI4 }})
	}
	for n := g.Streams / 2; n >= 1; n /= 2 {
		streams = append(streams, way{fmt.Sprintf("--streams %d", n), func(o *spillway.Options) { o.Generation.Streams = n }})
	}
	for n := g.Context / 2; n >= 64; n /= 2 {
		contexts = append(contexts, way{fmt.Sprintf("--context %d", n), func(o *spillway.Options) { o.Generation.Context = n }})
	}
	for n := int64(512); n >= 32; n /= 4 {
		if g.Chunk == 0 || n < g.Chunk {
			chunks = append(chunks, way{fmt.Sprintf("--chunk %d", n), func(o *spillway.Options) { o.Generation.Chunk = n }})
		}
	}
	for _, s := range streams {
		both = append(both, joined(coded, s))
	}
	for _, c := range contexts {
		if len(streams) > 0 {
			c = joined(c, streams[len(streams)-1])
		}
		both = append(both, joined(coded, c))
	}
	return [][]way{streams, contexts, bits, chunks, both}
}
