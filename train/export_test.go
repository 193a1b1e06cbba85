package train

import "time"

// SetSaveWait sets how long the last save waits before it is tried again.
func SetSaveWait(d time.Duration) { saveWait = d }
