package kernel

// Patches are the windows of a tensor with channels last, as rows of a matrix that is never held whole:
// row i is what the window of output place i sees, place by place, each with Width channels. Zeros lie
// outside. A Gemm takes parts of rows as it needs them.
type Patches struct {
	Data                      []float32
	Channels                  int // of a place of Data
	First, Width              int // channels that are taken
	In, Out, Kernel           [3]int
	Stride, Padding, Dilation [3]int
}

// Columns is how many elements a row has.
func (p *Patches) Columns() int { return p.Kernel[0] * p.Kernel[1] * p.Kernel[2] * p.Width }

// Rows is how many windows each of so many samples has, in all.
func (p *Patches) Rows(samples int) int { return samples * p.Out[0] * p.Out[1] * p.Out[2] }

// Take copies elements from first on of a row.
func (p *Patches) Take(dst []float32, row, first int) {
	ow, row := row%p.Out[2], row/p.Out[2]
	oh, row := row%p.Out[1], row/p.Out[1]
	od, b := row%p.Out[0], row/p.Out[0]
	x := ow*p.Stride[2] - p.Padding[2]
	line := p.Kernel[2] * p.Width // elements of one line of a window
	for len(dst) > 0 {
		k, at := first/line, first%line
		n := min(line-at, len(dst))
		z, y := od*p.Stride[0]-p.Padding[0]+k/p.Kernel[1]*p.Dilation[0], oh*p.Stride[1]-p.Padding[1]+k%p.Kernel[1]*p.Dilation[1]
		if z < 0 || z >= p.In[0] || y < 0 || y >= p.In[1] {
			clear(dst[:n])
		} else {
			p.takeLine(dst[:n], ((b*p.In[0]+z)*p.In[1]+y)*p.In[2], x, at)
		}
		dst, first = dst[n:], first+n
	}
}

// takeLine copies elements from at on of a line of a window that begins at place x of the line of Data
// whose first place is place.
func (p *Patches) takeLine(dst []float32, place, x, at int) {
	if p.Width == p.Channels && p.Dilation[2] == 1 { // the line lies in memory as it is
		from := x*p.Channels + at // of the line of Data
		end := p.In[2] * p.Channels
		if from >= 0 && from+len(dst) <= end {
			copy(dst, p.Data[place*p.Channels+from:])
			return
		}
		low := min(max(-from, 0), len(dst))
		high := max(min(end-from, len(dst)), low)
		clear(dst[:low])
		if low < high {
			copy(dst[low:high], p.Data[place*p.Channels+from+low:])
		}
		clear(dst[high:])
		return
	}
	for len(dst) > 0 {
		k, c := at/p.Width, at%p.Width
		n := min(p.Width-c, len(dst))
		if i := x + k*p.Dilation[2]; i >= 0 && i < p.In[2] {
			copy(dst[:n], p.Data[(place+i)*p.Channels+p.First+c:])
		} else {
			clear(dst[:n])
		}
		dst, at = dst[n:], at+n
	}
}

// pack fills panels as Matrix.pack does, with rows along them. What lies behind the panels is room for a row.
func (p *Patches) pack(panels []float32, step, first, n, p0, kc int) {
	row := panels[len(panels)-roundUp(n, step):][:n]
	for k := range kc {
		p.Take(row, p0+k, first)
		for i := 0; i < n; i += step {
			w := min(step, n-i)
			copy(panels[i*kc+k*step:][:w], row[i:i+w])
		}
	}
}
