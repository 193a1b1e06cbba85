package cuda

import "spillway/op"

func init() { register(op.Sample, sample) }

// Sizes of sample.cu.
const (
	sampleIDs        = 1024 * 1024 * 4 // most tokens of a vocabulary
	sampleThreads    = 1024            // THREADS
	sampleParts      = 8               // PARTS
	sampleHistograms = 5 * 3 * 256 * 4 // PASSES of BINS
	sampleOwn        = 8 << 10         // at most, that a block declares itself
)

func sample(d *Device, c op.Call) (p program, err error) {
	t, rows, count := c.In[0].DType, c.In[0].Shape[1], c.In[0].Shape[2]
	if count < 1 || count > sampleIDs {
		return p, unsupported("it is for vocabularies of up to 4 million tokens")
	}
	blocks, lane := d.sampleBlocks(rows), elementsPerLoad(t)
	chunk := ceilDiv(count, sampleParts*sampleThreads*lane) * lane
	shared, holds := sampleHistograms+t.Bytes(sampleParts/blocks*sampleThreads*chunk), true
	if shared+sampleOwn > int64(d.gpu.shared) {
		shared, holds = sampleHistograms, false
	}
	k, err := d.grid(unitFor("sample", t), "sample", [3]int64{rows * blocks, 1, 1}, [3]int64{sampleThreads, 1, 1}, shared,
		buffer(0), buffer(1), buffer(2), i64(count), i64(chunk), i64(blocks), flag(holds))
	if err != nil {
		return p, err
	}
	k.cluster = uint32(blocks)
	return p, p.addEarly(k, nil)
}

// sampleBlocks is how many blocks share a row: as many as leave a multiprocessor for each, where blocks can be clusters.
func (d *Device) sampleBlocks(rows int64) (blocks int64) {
	for blocks = 1; d.gpu.major >= 9 && !d.plainly.clusters && blocks < sampleParts && 2*blocks*rows <= int64(d.gpu.multiprocessors); blocks *= 2 {
	}
	return blocks
}
