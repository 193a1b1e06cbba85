package data

import "sync"

// progressMeter returns what takes how much is done so far, from any goroutine. It calls
// report, if that is not nil, at most about a hundred times from start to end.
func progressMeter(report func(done, total int64), total int64) func(done int64) {
	var lock sync.Mutex
	next := int64(0)
	return func(done int64) {
		lock.Lock()
		defer lock.Unlock()
		if report != nil && done >= next {
			next = done + max(total/100, 1)
			report(done, total)
		}
	}
}
