package cuda

import "spillway/op"

func init() {
	register(op.Embedding, embedding)
	register(op.EmbeddingGrad, embeddingGrad)
}

func embedding(d *Device, c op.Call) (program, error) {
	width := c.In[1].Shape.Last()
	if width == 0 {
		return program{}, nil
	}
	return single(d.line(unitFor("embedding", c.In[1].DType), "embedding", c.In[0].Shape.Elements(), 128,
		buffer(0), buffer(1), buffer(2), i64(c.In[1].Shape.Rows()), i64(width)))
}

// embeddingGrad clears the table first, unless it is added to.
func embeddingGrad(d *Device, c op.Call) (p program, err error) {
	n, width := c.In[0].Shape.Elements(), c.In[1].Shape.Last()
	if !c.Attr.Accumulate {
		p.actions = append(p.actions, &fill{buffer(2), c.Out[0].Bytes()})
	}
	if n == 0 {
		return p, nil
	}
	name, lane := "embeddingGrad", elementsPerLoad(c.In[1].DType)
	if width%lane != 0 {
		name, lane = "embeddingGradOne", 1
	}
	err = p.add(d.grid(unitFor("embedding", c.In[1].DType), name, [3]int64{n, ceilDiv(width, threads*lane), 1}, [3]int64{threads, 1, 1}, 0,
		buffer(0), buffer(1), buffer(2), i64(n), i64(c.Attr.Rows), i64(width), flag(c.Attr.Accumulate)))
	return p, err
}
