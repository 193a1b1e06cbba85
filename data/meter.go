package data

import "sync"

// progressMeter reports progress at most about a hundred times from start to end.
type progressMeter struct {
	report      func(done, total int64)
	total, next int64
	done        int64
	lock        sync.Mutex
}

// newProgressMeter returns a meter that calls report, if it is not nil.
func newProgressMeter(report func(done, total int64), total int64) *progressMeter {
	return &progressMeter{report: report, total: total}
}

// at takes how much is done so far and reports it if due.
func (m *progressMeter) at(done int64) {
	if m.report == nil || done < m.next {
		return
	}
	m.next = done + max(m.total/100, 1)
	m.report(done, m.total)
}

// add takes how much more is done. It may be called from several goroutines.
func (m *progressMeter) add(n int64) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.done += n
	m.at(m.done)
}
