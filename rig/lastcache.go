package rig

import (
	"os"
	"strings"
	"sync"

	"spillway/units"
)

// usualCache is what the last cache of a CPU holds that does not say.
const usualCache = 32 << 20

// lastCache is how many bytes the last cache of the CPU holds that a core has.
var lastCache = sync.OnceValue(func() int64 {
	for _, level := range []string{"3", "2"} {
		text, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/index" + level + "/size") // of Linux: "32768K"
		if err == nil {
			return cacheSize(string(text))
		}
	}
	return usualCache
})

// cacheSize reads the size of a cache as Linux writes it.
func cacheSize(text string) int64 {
	if n, err := units.ParseBytes(strings.TrimSpace(text) + "iB"); err == nil && n > 0 {
		return int64(n)
	}
	return usualCache
}
