package data

import "sync"

// meter tells of progress, a hundred times at most from start to end.
type progressMeter struct {
	report      func(done, total int64)
	total, next int64
	done        int64
	lock        sync.Mutex
}

// newMeter tells nobody where tell is nil.
func newProgressMeter(tell func(done, total int64), total int64) *progressMeter {
	return &progressMeter{report: tell, total: total}
}

// at says how far things are.
func (m *progressMeter) at(done int64) {
	if m.report == nil || done < m.next {
		return
	}
	m.next = done + max(m.total/100, 1)
	m.report(done, m.total)
}

// add says that so much more is done. It may be called from several goroutines.
func (m *progressMeter) add(n int64) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.done += n
	m.at(m.done)
}
