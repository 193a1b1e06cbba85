package cuda

import "spillway/op"

func init() { register(op.Sample, sample) }

// sampleIDs is the most tokens of a vocabulary that the kernel takes: SPANS of SPAN.
const sampleIDs = 1024 * 1024 * 4

func sample(d *Device, c op.Call) (p program, err error) {
	rows, count := c.In[0].Shape[1], c.In[0].Shape[2]
	if count < 1 || count > sampleIDs {
		return p, unsupported("it is for vocabularies of up to 4 million tokens")
	}
	p.workspace = aligned(4 * rows * count) // probabilities
	err = p.addEarly(d.grid(unitFor("sample", c.In[0].DType), "sample", [3]int64{rows, 1, 1}, [3]int64{1024, 1, 1}, 0, buffer(0), buffer(1), buffer(2), scratchAt(0), i64(count)))
	return p, err
}
