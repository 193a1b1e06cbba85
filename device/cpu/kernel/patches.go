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

// inside is how many windows from this row on, of n at most, lie side by side in a line of Data and are whole
// along it; place is where the first begins in its line. Their lines lie in memory as they are.
func (p *Patches) inside(row, n int) (count, place int) {
	ow := row % p.Out[2]
	place = ow*p.Stride[2] - p.Padding[2]
	last := p.In[2] - p.Kernel[2] // where the last whole window begins
	if p.Width != p.Channels || p.Dilation[2] != 1 || place < 0 || place > last {
		return 0, place
	}
	return min(n, p.Out[2]-ow, (last-place)/p.Stride[2]+1), place
}

// line is the first place of the line of Data that line k of a row's window sees, if it lies inside.
func (p *Patches) line(row, k int) (int, bool) {
	row /= p.Out[2]
	oh, row := row%p.Out[1], row/p.Out[1]
	od, b := row%p.Out[0], row/p.Out[0]
	z, y := od*p.Stride[0]-p.Padding[0]+k/p.Kernel[1]*p.Dilation[0], oh*p.Stride[1]-p.Padding[1]+k%p.Kernel[1]*p.Dilation[1]
	return ((b*p.In[0]+z)*p.In[1] + y) * p.In[2], z >= 0 && z < p.In[0] && y >= 0 && y < p.In[1]
}

// asTheyLie finds elements from p0 to p0+kc of n rows where they are rows of memory, step apart.
func (p *Patches) asTheyLie(row, n, p0, kc int) (data []float32, step int) {
	if at, ok := p.run(row, n, p0, kc); ok {
		return p.Data[at:], p.Stride[2] * p.Channels
	}
	return nil, 0
}

// run is where in Data such rows begin, if they are there.
func (p *Patches) run(row, n, p0, kc int) (at int, ok bool) {
	line := p.Kernel[2] * p.Width
	if p0%line+kc > line {
		return 0, false
	}
	count, place := p.inside(row, n)
	first, ok := p.line(row, p0/line)
	return (first+place)*p.Channels + p0%line, ok && count == n
}

// fetch is what a tile fetches of a row and the next, where they are rows of memory.
func (p *Patches) fetch(row, p0, kc int) fetch {
	at, ok := p.run(row, 1, p0, kc)
	next, too := p.run(row+1, 1, p0, kc)
	if !ok || !too {
		return fetch{}
	}
	return fetch{&p.Data[at], next - at, lineFloats}
}

// pack fills panels as Matrix.pack does, with rows along them: windows side by side together, where panels are
// parts of their lines. What lies behind the panels is room for a row.
func (p *Patches) pack(r *routines, panels []float32, step, first, n, p0, kc int) {
	row, line := panels[len(panels)-roundUp(n, step):][:n], p.Kernel[2]*p.Width
	for k := 0; k < kc; {
		if count, place := p.inside(p0+k, kc-k); count > 1 && line%step == 0 && first%step == 0 && n%step == 0 {
			for i := 0; i < n; i += step {
				to := panels[i*kc+k*step:][:count*step]
				if from, ok := p.line(p0+k, (first+i)/line); ok {
					r.packCopy(&to[0], step, &p.Data[(from+place)*p.Channels+(first+i)%line], p.Stride[2]*p.Channels, count, step, 1)
				} else {
					clear(to)
				}
			}
			k += count
			continue
		}
		p.Take(row, p0+k, first)
		for i := 0; i < n; i += step {
			w := min(step, n-i)
			copy(panels[i*kc+k*step:][:w], row[i:i+w])
		}
		k++
	}
}
